"""Fields of decisions and the moves of a search over them, as tables: a mechanism contributes a row, the search knows none.

A field says how to read its value, and which values are of one kind: what suits a kind of mover or loop is mostly other than
what suits another kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache
from operator import eq
from typing import NamedTuple, TypeVar

from tilelink.ir.choices import ComputeChoice, ExchangeChoice, LibraryCompute, TritonLoop
from tilelink.planner.decisions import Option

EXCHANGE, COMPUTE = "exchange", "compute"
Key = TypeVar("Key")


def _alike(value: object) -> object:
    """All values are of one kind."""
    return None


def _same(value: object) -> object:
    """Each value is a kind of its own."""
    return value


class When(Enum):
    """When a search decides a field."""

    FIRST = 0
    THEN = 1  # what is good there depends on the first fields of the decision, and decides little about them
    LAST = 2  # what is good there depends on all other decisions, and decides nothing about them


@dataclass(frozen=True, slots=True)
class Field:
    """`kind`: of a value, what it has in common with those that other fields suit as well. `in_step`: of two exchanges in a row
    both may need another value."""

    name: str
    of: str
    value: Callable[[Option], object]
    kind: Callable[[object], object] = _alike
    when: When = When.FIRST
    in_step: bool = False


def _exchange(
    name: str,
    kind: Callable[[object], object] = _alike,
    when: When = When.FIRST,
    *,
    both: bool = False,
) -> Field:
    def value(option: Option) -> object:
        return getattr(option, name)

    return Field(name, EXCHANGE, value, kind, when, in_step=both)


def _compute(name: str, kind: Callable[[object], object] = _alike, when: When = When.FIRST) -> Field:
    def value(option: Option) -> object:
        assert isinstance(option, ComputeChoice)
        return getattr(option.loop, name) if isinstance(option.loop, TritonLoop) else None

    return Field(name, COMPUTE, value, kind, when)


def _by_library(option: Option) -> object:
    return isinstance(option, ComputeChoice) and isinstance(option.loop, LibraryCompute)


def _in_epilogue(option: Option) -> object:
    return isinstance(option, ComputeChoice) and option.sum_in_epilogue


FIELDS: tuple[Field, ...] = (
    _exchange("mover", kind=type),
    _exchange("transfer", kind=_same),
    _exchange("chunks", when=When.THEN, both=True),
    _exchange("nest", when=When.THEN, both=True),
    _exchange("cut", when=When.THEN),
    _exchange("per_peer", when=When.THEN),
    _exchange("slots"),  # with the mover: more programs need more slots
    _exchange("consumers", when=When.THEN),
    Field("library", COMPUTE, _by_library, kind=_same),
    Field("sum_in_epilogue", COMPUTE, _in_epilogue, kind=_same),
    _compute("tile", kind=lambda tile: getattr(tile, "warpgroups", 0)),
    _compute("group"),
    _compute("prefetch"),
    _compute("own_first", when=When.THEN),
    _compute("tail", when=When.LAST),
    _compute("late", when=When.LAST),
)
WIDTH = 4  # of the best values of the fields that come first, those of which all that comes then is tried


def of(option: Option) -> str:
    return EXCHANGE if isinstance(option, ExchangeChoice) else COMPUTE


class Values(tuple[object, ...]):
    """Values of fields, which are looked up more often than made."""

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return super().__hash__()


class _Read(NamedTuple):
    """Values of the fields of an option by when they are decided, and their kinds."""

    first: Values
    then: Values
    last: Values
    kind: Values


@lru_cache(maxsize=4096)  # all options that there are without pins are fewer
def _read(option: Option) -> _Read:
    found = [(field, field.value(option)) for field in _FIELDS[of(option)]]
    first, then, last = (Values(value for field, value in found if field.when is when) for when in When)
    return _Read(first, then, last, Values(field.kind(value) for field, value in found))


def values(option: Option, when: When) -> Values:
    """Values of the fields that are decided then."""
    return _read(option)[when.value]


def in_step(option: Option) -> tuple[object, ...]:
    """Values of the fields that two exchanges in a row may have to change together."""
    return tuple(field.value(option) for field in _FIELDS[of(option)] if field.in_step)


def kind_of(option: Option) -> Values:
    """The kind of each field: options of one kind are neighbours."""
    return _read(option).kind


class Options(tuple[Option, ...]):
    """The options of a decision, in their order."""

    @cached_property
    def by_first(self) -> dict[Values, list[Option]]:
        """Options that have the fields in common that are decided first."""
        return _grouped(self, lambda option: _read(option).first)

    @cached_property
    def by_kind(self) -> dict[Values, list[Option]]:
        return _grouped(self, kind_of)


def by_last(options: Iterable[Option]) -> dict[Option, list[Option]]:
    """Options that differ in the fields alone that are decided last, by the first one of them."""
    groups = _grouped(options, lambda option: _read(option)[:2])
    return {group[0]: group for group in groups.values()}


def nearest(options: Sequence[Option], now: Option) -> Option:
    """The first option of those that have most in common with `now` in what comes then: what one mover has a field for, such as
    streams, another one has not."""
    wanted = _read(now).then

    def common(option: Option) -> int:
        return sum(map(eq, _read(option).then, wanted))

    return max(options, key=common)


def other_kinds(options: Options, now: Option) -> Iterator[list[Option]]:
    """The options of each kind but that of `now`."""
    yield from (group for kind, group in options.by_kind.items() if kind != kind_of(now))


def _grouped(options: Iterable[Option], key: Callable[[Option], Key]) -> dict[Key, list[Option]]:
    found: dict[Key, list[Option]] = {}
    for option in options:
        found.setdefault(key(option), []).append(option)
    return found


_FIELDS = {kind: tuple(field for field in FIELDS if field.of == kind) for kind in (EXCHANGE, COMPUTE)}
