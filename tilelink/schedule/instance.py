"""Schedules with numbers in place of the names of their dims: their own, or others.

    m = (m_stage * GROUP_M + m_rest % GROUP_M) * TILE_M    ->    m = (m_stage * 8 + m_rest % 8) * 128

`instantiated` is for who looks at numbers: the proof, the interpreter, people who read a plan. `with_origins` is for who
prints: numbers again, so that all that decides by values does so, but each knows how it is spelled.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from operator import is_
from typing import TypeVar

from tilelink.schedule.errors import DerivedDim, NotAMultiple, UnknownDim
from tilelink.schedule.index import Index, Number, replaced, spelled, value_of
from tilelink.schedule.known import Known, origin
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import For, If, Step

Node = TypeVar("Node")


def with_indices(node: Node, change: Callable[[Number], Number]) -> Node:
    """A schedule, a step, ... with every index in it replaced by `change` of it; numbers that are known by names are indices."""
    if isinstance(node, Index | Known):
        return change(node)  # type: ignore[return-value]
    if isinstance(node, tuple):
        each = tuple([with_indices(one, change) for one in node])
        return node if all(map(is_, each, node)) else each  # type: ignore[return-value]
    new = {}
    for name in _fields(type(node)):  # type: ignore[arg-type]
        value = getattr(node, name)
        one = with_indices(value, change)
        if one is not value:
            new[name] = one
    return replace(node, **new) if new else node  # type: ignore[type-var]


@cache
def _fields(of: type) -> tuple[str, ...]:
    """The names of the fields of a dataclass; of anything else, none."""
    return tuple(field.name for field in fields(of)) if is_dataclass(of) else ()


def reindexed(step: Step, change: Callable[[Number], Number]) -> Step:
    """`step` with each index that stands in it, not in its bodies, replaced."""
    match step:
        case For():
            return replace(with_indices(replace(step, body=()), change), body=step.body)
        case If():
            return replace(with_indices(replace(step, body=(), others=()), change), body=step.body, others=step.others)
    return with_indices(step, change)


def instantiated(schedule: Schedule, sizes: Mapping[str, int] | None = None) -> Schedule:
    """`schedule` with numbers for its dims: the values that they have, or `sizes` for some, from which others follow.

    Raises UnknownDim, DerivedDim for one that follows from others, NotAMultiple where the steps rely on it.
    """
    if not schedule.dims:
        return schedule
    resized = with_sizes(schedule, sizes) if sizes else schedule
    values: dict[str, Number] = dict(resized.sizes)
    return with_indices(replace(resized, dims=()), lambda index: replaced(origin(index), values))


def with_origins(schedule: Schedule) -> Schedule:
    """`schedule` with the numbers of its dims, each of which knows how it follows from dims. The dims stay."""
    values: dict[str, Number] = {name: Known(value, Index(name)) for name, value in schedule.sizes.items()}
    bare = with_indices(replace(schedule, dims=()), lambda index: replaced(index, values))
    return replace(bare, dims=schedule.dims)


def with_sizes(schedule: Schedule, sizes: Mapping[str, int]) -> Schedule:
    """`schedule` with other `sizes` of dims that do not follow from others. Raises as `instantiated` does."""
    given = {dim.name: dim for dim in schedule.dims}
    free = [dim.name for dim in schedule.dims if isinstance(dim.size, int)]
    for name in sizes:
        if name not in given:
            close = difflib.get_close_matches(name, list(given), n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise UnknownDim(name=name, schedule=schedule.name, hint=hint, legal=", ".join(free) or "none")
        size = given[name].size
        if not isinstance(size, int):
            raise DerivedDim(name=name, schedule=schedule.name, text=spelled(size), legal=", ".join(free))
    dims = tuple(replace(dim, size=sizes.get(dim.name, dim.size)) for dim in schedule.dims)
    resized = replace(schedule, dims=dims)
    for dim in dims:
        for by in dim.multiples:
            value, many = resized.sizes[dim.name], value_of(by, resized.sizes)
            if value % many:
                raise NotAMultiple(name=dim.name, value=value, schedule=schedule.name, by=spelled(by), number=many)
    return resized
