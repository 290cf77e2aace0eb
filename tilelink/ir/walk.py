"""Going through the body of a role: its steps, branches opened, with what is known where they stand; what they read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TypeVar

from tilelink.ir.nodes import ComputeRole
from tilelink.ir.steps import (
    Apply,
    AttendBody,
    AwaitPlaces,
    CombineBody,
    IfOwn,
    Load,
    MatmulBody,
    Notify,
    Operand,
    SlotNotify,
    SlotWait,
    Step,
    Store,
    SumPackets,
    SumParts,
    UserBody,
    Wait,
)

Node = TypeVar("Node")


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


def flat(steps: tuple[Step, ...]) -> list[Step]:
    """All steps, those inside branches too."""
    found: list[Step] = []
    for step in steps:
        if isinstance(step, IfOwn):
            found += [*flat(step.own), *flat(step.others)]
        else:
            found.append(step)
    return found


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
        case CombineBody(rows=rows, weights=weights, ids=ids):
            return ((rows, ()), (weights, ()), (ids, ()))
        case AttendBody(queries=queries, keys=keys, values=values, waits=waits):
            return ((queries, ()), (keys, waits), (values, waits))
        case SumParts(operand=operand, wait=wait):
            return ((operand, (wait,) if wait is not None else ()),)
        case Load(operand=operand):
            return ((operand, ()),)
        case Wait() | Apply() | SumPackets() | Store() | Notify() | IfOwn() | SlotWait() | SlotNotify() | AwaitPlaces():
            return ()


def waits_of(step: Step) -> tuple[Wait, ...]:
    """The step itself if it waits, or the waits in it."""
    match step:
        case Wait():
            return (step,)
        case MatmulBody(waits=waits) | AttendBody(waits=waits):
            return waits
        case SumParts(wait=Wait() as wait):
            return (wait,)
    return ()


def has_axis(role: ComputeRole, name: str) -> bool:
    return any(axis.name == name for axis in role.axes)


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


def one_step_behind_wait(role: ComputeRole) -> bool:
    """Whether tiles wait and then load operands for a single step of k. A compiler that runs the loops over tiles and over k as
    one then takes the loop over tiles for that over k, and loads operands of later tiles in front of their wait (Triton 3.6)."""
    at = next((at for at, step in enumerate(role.body) if isinstance(step, MatmulBody)), None)
    if at is None:
        return False
    matmul = role.body[at]
    assert isinstance(matmul, MatmulBody)
    waits = bool(matmul.waits) or any(isinstance(step, Wait | SlotWait) for step in role.body[:at])
    return waits and role.axis(matmul.axis).tiles == 1


def changed(node: Node, change: Callable[[object], object]) -> Node:
    """A node with each node in it replaced, inner ones first."""
    if isinstance(node, tuple):
        return tuple(changed(one, change) for one in node)  # type: ignore[return-value]
    if not is_dataclass(node) or isinstance(node, type):
        return node
    values = {field.name: getattr(node, field.name) for field in fields(node)}
    new = {name: changed(one, change) for name, one in values.items()}
    return change(replace(node, **{name: one for name, one in new.items() if one is not values[name]}))  # type: ignore[return-value]
