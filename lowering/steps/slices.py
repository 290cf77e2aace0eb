"""Runs of steps that do the same with one slice of a tile after the other: a function does it, and is called for each slice.

y_0_64, y_64_128 = halves(y)             y_0_64, y_64_128 = halves(y)
out = y_0_64; ...; store out at n        out_slice(y_0_64, n)
out = y_64_128; ...; store out at n + 64   out_slice(y_64_128, n + 64)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilelink.schedule.index import Index, Number, names_in, replaced
from tilelink.schedule.instance import reindexed
from tilelink.schedule.steps import Compute, For, Load, Step, Store
from tilelink.schedule.walk import indices, mapped, steps_in

Body = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Sliced:
    """`work` is done with each of `values`, which it calls `tile`, where `column` is that of `starts`; `before` halves the tile
    into the values."""

    before: Body
    tile: str
    work: Body
    values: tuple[str, ...]
    column: str
    starts: tuple[Number, ...]
    behind: Body

    @property
    def names(self) -> tuple[str, ...]:
        """Indices of the tile that the work depends on, in the order in which they appear."""
        bound = {name for name, _ in _bound(self.work)}
        found = [name for step in steps_in(self.work) for index in indices(step) for name in sorted(names_in(index))]
        return tuple(name for name in dict.fromkeys(found) if name not in bound)


def sliced(body: Body) -> Sliced | None:
    """The slices of a body, if it does with each of them what it does with the first one."""
    last = max((place for place, step in enumerate(body) if _halves(step)), default=-1)
    if last < 0:
        return None
    tile, values = _leaves(body[: last + 1])
    runs = _runs(body[last + 1 :], values)
    if not runs or taken(runs[0]) != {values[0]}:
        return None
    behind = body[last + 1 + sum(map(len, runs)) :]
    for column in dict.fromkeys(
        name for step in steps_in(runs[0]) for index in indices(step) for name in names_in(index)
    ):
        starts = [_start(runs[0], run, column) for run in runs]
        if all(
            start is not None and _moved(runs[0], values[0], value, column, start) == run
            for run, value, start in zip(runs, values, starts, strict=True)
        ):
            found = tuple(start for start in starts if start is not None)
            work = _moved(runs[0], values[0], tile, column, Index(column))
            return Sliced(body[: last + 1], tile, work, values, column, found, behind)
    return None


def _halves(step: Step) -> bool:
    return isinstance(step, Compute) and step.op == "halves"


def _leaves(body: Body) -> tuple[str, tuple[str, ...]]:
    """What is halved first, and the slices that are left at the end, from left to right."""
    tile, values = "", list[str]()
    for step in body:
        if isinstance(step, Compute) and step.op == "halves":
            (halved,) = step.operands
            if halved not in values:
                tile, values = str(halved), [str(halved)]
            place = values.index(str(halved))
            values[place : place + 1] = step.results
    return tile, tuple(values)


def _runs(body: Body, values: tuple[str, ...]) -> list[Body]:
    """The steps of each slice: from the first one that takes it to that of the next one; all are as many as those of the first.
    Empty if they are not."""
    first = [next((at for at, step in enumerate(body) if value in _used((step,))), -1) for value in values]
    if len(values) < 2 or first[0] != 0 or min(first[1:]) < 1:
        return []
    size = first[1]
    if first != [size * number for number in range(len(values))] or len(body) < size * len(values):
        return []
    return [body[at : at + size] for at in first]


def _used(body: Body) -> set[str]:
    """Values that steps take."""
    found = set[str]()
    for step in steps_in(body):
        match step:
            case Compute():
                found |= {one for one in step.operands if isinstance(one, str)}
            case Store():
                found.add(step.value)
    return found


def taken(body: Body) -> set[str]:
    """Values that steps take and have not made."""
    made, taken = set[str](), set[str]()
    for step in steps_in(body):
        taken |= _used((step,)) - made if isinstance(step, Compute | Store) else set()
        match step:
            case Compute():
                made |= set(step.results)
            case Load():
                made.add(step.result)
    return taken


def _bound(body: Body) -> Iterator[tuple[str, Number]]:
    for step in steps_in(body):
        if isinstance(step, For):
            yield step.variable, step.count
            yield from step.let


def _start(first: Body, other: Body, column: str) -> Number | None:
    """Where another run has what is `column` in the first one."""
    for one, two in zip(steps_in(first), steps_in(other), strict=False):
        for index, found in zip(indices(one), indices(two), strict=False):
            if index == Index(column):
                return found
    return None


def _moved(body: Body, value: str, other: str, column: str, start: Number) -> Body:
    """`body` with another slice, which begins elsewhere."""

    def change(step: Step) -> tuple[Step, ...]:
        step = reindexed(step, lambda index: replaced(index, {column: start}))
        match step:
            case Compute():
                return (replace(step, operands=tuple(other if one == value else one for one in step.operands)),)
            case Store() if step.value == value:
                return (replace(step, value=other),)
        return (step,)

    return mapped(body, change)
