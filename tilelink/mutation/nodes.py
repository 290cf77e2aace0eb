"""Mutants of steps: what a planner, an elaboration or a pass with one bug could have made. Nothing here knows of a mechanism.

One field differs, by its *type*. A bool flips, an enum takes another member, a union another one, and what may be absent is
absent. A number and an index are one more, one less, or 0. A name is another one of its kind that the schedule has. Of what
stands in a row, one is dropped, doubled, or changes places with the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin, get_type_hints

from tilelink.mutation.mutant import StepMutant, short
from tilelink.mutation.sites import Path, Site, at, named
from tilelink.schedule.index import Index
from tilelink.schedule.roles import Schedule

Names = dict[str, tuple[str, ...]]  # kind -> names of that kind
Change = tuple[str, object]  # what was done, and what stands there now

_PARTS = ("buffers", "signals", "launches")  # the others are given by the spec
_COMMUTE = ("+", "*", "min", "max")


@dataclass(frozen=True, slots=True)
class _Place:
    """`value` at `path`, which the annotation `hint` describes; it is part of `field` of `owner`. `scope`: names of indices."""

    path: Path
    owner: type
    field: str
    hint: Any
    value: object
    scope: tuple[str, ...]


def mutants(schedule: Schedule) -> Iterator[StepMutant]:
    """Schedules that differ from `schedule` and from each other; the same ones in the same order each time. Nobody checks
    that they mean anything."""
    seen = {schedule}
    names = _names(schedule)
    for place in _all_places(schedule):
        for what, new in _changes(place, names):
            mutated = Site(schedule, place.path, place.value).put(new)
            if mutated not in seen:
                seen.add(mutated)
                operator = f"{place.owner.__name__}.{place.field}: {what}"
                yield StepMutant(operator, _site(schedule, mutated, place.path), mutated)


def _all_places(schedule: Schedule) -> Iterator[_Place]:
    for part in _PARTS:
        yield from _places(
            _Place((part,), Schedule, part, _hints(Schedule)[part], getattr(schedule, part), ("rank", "call", "tile"))
        )


def _places(place: _Place) -> Iterator[_Place]:
    """`place` and all in it."""
    yield place
    value, scope = place.value, place.scope
    if isinstance(value, tuple):
        for number, (item, hint) in enumerate(zip(value, _elements(place.hint, len(value)), strict=True)):
            yield from _places(_Place((*place.path, number), place.owner, place.field, hint, item, scope))
    elif isinstance(value, Index):
        for number, item in enumerate(value.args):
            path = (*place.path, "args", number)
            yield from _places(_Place(path, place.owner, place.field, Index | int, item, scope))
    elif is_dataclass(value) and not isinstance(value, type):
        scope = (*scope, *_bound(value))
        for field in fields(value):
            hint, item = _hints(type(value))[field.name], getattr(value, field.name)
            yield from _places(_Place((*place.path, field.name), type(value), field.name, hint, item, scope))


def _changes(place: _Place, names: Names) -> Iterator[Change]:
    """All that may stand there instead."""
    value, kind = place.value, _kind(place.hint)
    match value:
        case bool():
            yield "not", not value
        case Enum():
            yield from (("another member", other) for other in type(value) if other is not value)
        case int() | float():
            yield from (("one more", value + 1), ("one less", value - 1), ("nothing", type(value)(0)))
        case Index():
            yield from (("one more", value + 1), ("one less", value - 1), ("nothing", 0))
            yield from _of_index(value, place.scope, names)
        case str() if kind:
            yield from (("another name", name) for name in names[kind] if name != value)
        case tuple():
            yield from _of_row(value, place.hint)
    members = _members(place.hint)
    if NoneType in members and value is not None:
        yield "absent", None
    for other in members:
        if is_dataclass(value) and isinstance(other, type) and other is not type(value) and _needs_nothing(other):
            yield "another kind", other()


def _of_index(index: Index, scope: tuple[str, ...], names: Names) -> Iterator[Change]:
    """Another name, another table, an operator without one of its arguments or with both exchanged."""
    if index.is_name:
        yield from (("another name", Index(name)) for name in dict.fromkeys(scope) if name != index.op)
    elif index.is_lookup:
        yield from (("another name", Index(name, index.args)) for name in names["table"] if name != index.op)
    else:
        yield from (("an argument alone", argument) for argument in index.args)
    if len(index.args) > 1 and index.op not in _COMMUTE:
        yield "exchanged", Index(index.op, index.args[::-1])


def _of_row(row: tuple[object, ...], hint: Any) -> Iterator[Change]:
    """Numbers have a place each, so they only change places; a name that stands there twice says nothing more."""
    element, *others = _elements(hint, 1)
    if others:  # a pair
        return
    nodes = all(is_dataclass(item) and not isinstance(item, Index) for item in row)
    for here, item in enumerate(row):
        if nodes or _kind(element):
            yield "dropped", (*row[:here], *row[here + 1 :])
        if nodes:
            yield "doubled", (*row[: here + 1], *row[here:])
        if here + 1 < len(row) and row[here + 1] != item and not isinstance(item, tuple):
            yield "exchanged", (*row[:here], row[here + 1], item, *row[here + 2 :])


# ---- types of fields ---------------------------------------------------------------------------------------------------


@cache
def _hints(owner: type) -> dict[str, Any]:
    return get_type_hints(owner, include_extras=True)


def _members(hint: Any) -> tuple[Any, ...]:
    """Those of a union; the hint alone if it is none."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _kind(hint: Any) -> str:
    """Of which kind names are that stand there (`tilelink.schedule.names`), or empty."""
    for member in _members(hint):
        if get_origin(member) is Annotated:
            return cast("str", get_args(member)[1])
    return ""


def _elements(hint: Any, length: int) -> tuple[Any, ...]:
    """Annotations of the elements of a tuple."""
    arguments = get_args(hint)
    return (arguments[0],) * length if arguments[-1] is ... else arguments


@cache
def _needs_nothing(kind: type) -> bool:
    """Whether a dataclass may be made without arguments."""
    return is_dataclass(kind) and all(
        one.default is not MISSING or one.default_factory is not MISSING for one in fields(kind)
    )


def _names(schedule: Schedule) -> Names:
    """Names by kind: those in use, and those of tables."""
    found: dict[str, dict[str, None]] = {"table": {table.name: None for table in schedule.tables}}
    for place in _all_places(schedule):
        kind = _kind(place.hint)
        if kind and isinstance(place.value, str):
            found.setdefault(kind, {})[place.value] = None
    return {kind: tuple(names) for kind, names in found.items()}


def _bound(node: object) -> tuple[str, ...]:
    """Names of indices that a node binds for all in it: a variable, and pairs of a name and what it stands for."""
    lets = tuple(name for name, _ in getattr(node, "let", ()))
    return (*((node.variable,) if hasattr(node, "variable") else ()), *lets)


def _site(before: Schedule, after: Schedule, path: Path) -> str:
    """Where, and what was changed into what: of a part of an index, all of the index."""
    path = path[: path.index("args")] if "args" in path else path
    around, last = Site(before, path[:-1], None).label, path[-1]
    where = f"{around}[{last}]" if isinstance(last, int) else f"{around}, {last}".removeprefix(", ")
    return f"{where}: {_word(at(before, path))} -> {_word(at(after, path))}"


def _word(value: object) -> str:
    match value:
        case Enum():
            return str(value.value)
        case tuple():
            return short(f"({', '.join(map(_word, value))})")
        case Index() | int() | float() | str() | None:
            return short(str(value))
        case _:
            return named(value)
