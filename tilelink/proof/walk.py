"""Steps of a role with what is known where they stand, and the rows that tiles and waits span."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilelink.ir.nodes import Axis, ComputeRole, Exchange
from tilelink.ir.steps import (
    Apply,
    AwaitPlaces,
    IfOwn,
    Load,
    MatmulBody,
    Notify,
    Operand,
    SlotNotify,
    SlotWait,
    Step,
    Store,
    SumParts,
    SumWords,
    UserBody,
    Wait,
)

Interval = tuple[int, int]  # [first, end)


@dataclass(frozen=True, slots=True)
class Point:
    """Where a step stands in the body of a role."""

    launch: int
    role: ComputeRole
    number: int  # of the step, counted through branches
    own: tuple[str, ...]  # axes whose segment is the own one here
    others: tuple[str, ...]  # axes whose segment is another rank's here
    waits: tuple[Wait, ...]  # done by this tile before
    stores: tuple[Store, ...]  # done by this tile before

    def __str__(self) -> str:
        return f"launch {self.launch}, role {self.role.name}, step {self.number}"


def points(launch: int, role: ComputeRole) -> Iterator[tuple[Point, Step]]:
    """Each step, branches opened; a branch itself is not among them."""
    yield from _points(Point(launch, role, 0, (), (), (), ()), role.body)


def _points(at: Point, steps: tuple[Step, ...]) -> Iterator[tuple[Point, Step]]:
    for step in steps:
        match step:
            case IfOwn(axis, own, others):
                mine = list(_points(replace(at, own=(*at.own, axis)), own))
                yield from mine
                at = replace(at, number=at.number + len(mine))
                theirs = list(_points(replace(at, others=(*at.others, axis)), others))
                yield from theirs
                at = replace(at, number=at.number + len(theirs))
                # a branch may not have been taken, so that what it waited for or stored is not counted on
                continue
            case Wait():
                yield at, step
                at = replace(at, waits=(*at.waits, step))
            case Store():
                yield at, step
                at = replace(at, stores=(*at.stores, step))
            case _:
                yield at, step
        at = replace(at, number=at.number + 1)


def reads(step: Step) -> tuple[tuple[Operand, tuple[Wait, ...]], ...]:
    """Operands that the step loads, each with the waits of the step itself that come before it."""
    match step:
        case MatmulBody(left=left, right=right, waits=waits):
            return ((left, waits), (right, waits))
        case UserBody(operands=operands):
            return tuple((operand, ()) for _, operand in operands)
        case SumParts(operand=operand, wait=wait):
            return ((operand, (wait,) if wait is not None else ()),)
        case Load(operand=operand):
            return ((operand, ()),)
        case Wait() | Apply() | SumWords() | Store() | Notify() | IfOwn() | SlotWait() | SlotNotify() | AwaitPlaces():
            return ()


def has_axis(role: ComputeRole, name: str) -> bool:
    return any(axis.name == name for axis in role.axes)


def pieces(axis: Axis) -> list[Interval]:
    """What the tiles of one segment span, in elements of the segment."""
    if not axis.tile or axis.reduction:
        return [(0, axis.extent)]
    return [(tile * axis.tile, min((tile + 1) * axis.tile, axis.extent)) for tile in range(axis.tiles)]


def rows_in_part(role: ComputeRole, name: str, *, local: bool) -> list[Interval]:
    """Rows of a part that the tiles of axis `name` span: positions count from the start of the segment if `local`,
    else through all segments."""
    axis = role.axis(name)
    segments = 1 if local else axis.segments
    return [
        (segment * axis.extent + first, segment * axis.extent + end)
        for segment in range(segments)
        for first, end in pieces(axis)
    ]


def chunks_of(exchange: Exchange, rows: Interval) -> range:
    """Chunks that hold some of `rows`."""
    return range(rows[0] // exchange.chunk_rows, (rows[1] - 1) // exchange.chunk_rows + 1)


def is_local(operand: Operand, axis: str) -> bool:
    """Whether positions along `axis` count from the start of the segment."""
    return axis == operand.slot or axis in operand.local


def extent_of(role: ComputeRole, operand: Operand, name: str) -> int:
    """Elements that all tiles together span along one dimension of the operand (of one part or slot of it)."""
    if not name:
        return 1
    axis = role.axis(name)
    if name == operand.item:
        return axis.tile
    if name == operand.cut:
        return axis.extent * axis.segments // operand.own_slots
    return axis.extent if is_local(operand, name) else axis.extent * axis.segments
