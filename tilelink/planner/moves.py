"""Fields of decisions and the moves of a search over them, as tables: a mechanism contributes a row, the search knows none.

A field says how to read its value, and which values are of one kind: what suits a kind of mover or loop is mostly other than
what suits another kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tilelink.planner.choices import ComputeChoice, ExchangeChoice, LibraryCompute, TritonLoop
from tilelink.planner.decisions import Option

EXCHANGE, COMPUTE = "exchange", "compute"


def _alike(value: object) -> object:
    """All values are of one kind."""
    return None


def _same(value: object) -> object:
    """Each value is a kind of its own."""
    return value


@dataclass(frozen=True, slots=True)
class Field:
    """`follows`: what is good there follows from the other fields of the decision, and decides nothing about them."""

    name: str
    of: str
    value: Callable[[Option], object]
    kind: Callable[[object], object] = _alike
    follows: bool = False


def _exchange(name: str, kind: Callable[[object], object] = _alike, *, follows: bool = False) -> Field:
    def value(option: Option) -> object:
        return getattr(option, name)

    return Field(name, EXCHANGE, value, kind, follows)


def _compute(name: str, kind: Callable[[object], object] = _alike, *, follows: bool = False) -> Field:
    def value(option: Option) -> object:
        assert isinstance(option, ComputeChoice)
        return getattr(option.loop, name) if isinstance(option.loop, TritonLoop) else None

    return Field(name, COMPUTE, value, kind, follows)


def _by_library(option: Option) -> object:
    return isinstance(option, ComputeChoice) and isinstance(option.loop, LibraryCompute)


def _in_epilogue(option: Option) -> object:
    return isinstance(option, ComputeChoice) and option.sum_in_epilogue


FIELDS: tuple[Field, ...] = (
    _exchange("mover", kind=type),
    _exchange("transfer", kind=_same),
    _exchange("chunks", follows=True),
    _exchange("nest", follows=True),
    _exchange("per_peer", follows=True),
    _exchange("slots", follows=True),
    _exchange("consumers", follows=True),
    Field("library", COMPUTE, _by_library, kind=_same),
    Field("sum_in_epilogue", COMPUTE, _in_epilogue, kind=_same),
    _compute("tile", kind=lambda tile: getattr(tile, "warpgroups", 0)),
    _compute("group"),
    _compute("prefetch"),
    _compute("halves", follows=True),
    _compute("late", follows=True),
)
WIDTH = {EXCHANGE: 4, COMPUTE: 3}  # of the best values of fields that lead, those of which all that follows is tried


def of(option: Option) -> str:
    return EXCHANGE if isinstance(option, ExchangeChoice) else COMPUTE


def leading(option: Option) -> tuple[object, ...]:
    """Values of the fields that lead."""
    return tuple(field.value(option) for field in _FIELDS[of(option)] if not field.follows)


def following(option: Option) -> tuple[object, ...]:
    """Values of the fields that follow."""
    return tuple(field.value(option) for field in _FIELDS[of(option)] if field.follows)


def kind_of(option: Option) -> tuple[object, ...]:
    """The kind of each field: options of one kind are neighbours."""
    return tuple(field.kind(field.value(option)) for field in _FIELDS[of(option)])


def by_leading(options: Iterable[Option]) -> dict[tuple[object, ...], list[Option]]:
    """Options that have the fields that lead in common, in their order."""
    return _grouped(options, leading)


def by_kind(options: Iterable[Option]) -> dict[tuple[object, ...], list[Option]]:
    return _grouped(options, kind_of)


def nearest(options: Sequence[Option], now: Option) -> Option:
    """The first option that follows as `now` does, else the first."""
    wanted = following(now)
    return next((option for option in options if following(option) == wanted), options[0])


def other_kinds(options: Iterable[Option], now: Option) -> Iterator[list[Option]]:
    """The options of each kind but that of `now`."""
    yield from (group for kind, group in by_kind(options).items() if kind != kind_of(now))


def _grouped(
    options: Iterable[Option], key: Callable[[Option], tuple[object, ...]]
) -> dict[tuple[object, ...], list[Option]]:
    found: dict[tuple[object, ...], list[Option]] = {}
    for option in options:
        found.setdefault(key(option), []).append(option)
    return found


_FIELDS = {kind: tuple(field for field in FIELDS if field.of == kind) for kind in (EXCHANGE, COMPUTE)}
