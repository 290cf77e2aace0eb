"""Which launches of a rank write which of its own buffers, and what is there when a launch starts.

The compute stream runs one launch after the other, so what an earlier launch wrote needs no signal. Copies on side
streams and stores by peers are never counted on here: they need one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from tilelink.ir.calls import Collective, LibraryGemm
from tilelink.ir.nodes import AwaitPeers, Begin, CopyOwn, CopyProgram, Finish, Kernel, Memory, Publish, TellPlace
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import Place, Store
from tilelink.proof.walk import Point, extent_of, points


class Portion(Enum):
    """Which parts of a buffer: the own one, those of all others, or everything."""

    OWN = "own part"
    OTHERS = "other parts"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class Written:
    """Launch `launch` writes `portion` of this rank's `buffer`."""

    launch: int
    buffer: str
    portion: Portion


def written(schedule: Schedule) -> tuple[Written, ...]:
    """Everything that the compute stream of a rank writes to buffers of the same rank."""
    return tuple(entry for index in range(len(schedule.launches)) for entry in _by_launch(schedule, index))


def _by_launch(schedule: Schedule, index: int) -> Iterator[Written]:
    launch = schedule.launches[index]
    match launch:
        case Kernel(compute=role):
            if role is not None:
                for at, step in points(index, role):
                    if isinstance(step, Store):
                        yield from _by_store(schedule, at, step)
        case CopyOwn(exchange):
            yield Written(index, schedule.exchange(exchange).target, Portion.OWN)
        case Publish(exchange, copy_from):
            if copy_from:
                yield Written(index, schedule.exchange(exchange).source, Portion.WHOLE)
        case LibraryGemm(out=out):
            yield Written(index, out.buffer, Portion.WHOLE)
        case Collective(out=name):
            yield Written(index, name, Portion.WHOLE)
        case Begin() | AwaitPeers() | TellPlace() | Finish() | CopyProgram():
            return


def _by_store(schedule: Schedule, at: Point, step: Store) -> Iterator[Written]:
    operand = step.operand
    if step.place is not Place.HERE:
        if operand.slot not in at.others:
            yield Written(at.launch, operand.buffer, Portion.OWN)
        return
    shape = schedule.buffer(operand.buffer).shape[-len(operand.index) :]
    if tuple(extent_of(at.role, operand, axis) for axis in operand.index) != shape:
        return  # not all of it; tilelink.proof.regions says so
    if operand.slot and operand.slot in at.own:
        yield Written(at.launch, operand.buffer, Portion.OWN)
    elif operand.slot and operand.slot in at.others:
        yield Written(at.launch, operand.buffer, Portion.OTHERS)
    elif not any(axis in (*at.own, *at.others) and axis not in operand.local for axis in operand.index):
        yield Written(at.launch, operand.buffer, Portion.WHOLE)


def is_there(schedule: Schedule, buffer: str, portion: Portion, before: int) -> bool:
    """Whether launches before `before`, or the caller, have written `portion` of `buffer`."""
    if schedule.buffer(buffer).memory is Memory.INPUT:
        return True
    found = {entry.portion for entry in written(schedule) if entry.buffer == buffer and entry.launch < before}
    match portion:
        case Portion.WHOLE:
            return Portion.WHOLE in found or {Portion.OWN, Portion.OTHERS} <= found
        case Portion.OWN | Portion.OTHERS:
            return portion in found or Portion.WHOLE in found
