"""Names: every buffer, signal, exchange and axis that a step or a launch speaks of exists. All other checks rest on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tilelink.ir.calls import Collective, LibraryGemm
from tilelink.ir.nodes import AwaitPeers, Begin, CopyOwn, CopyProgram, Finish, Kernel, Publish, TellPlace
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import (
    AwaitPlaces,
    IfOwn,
    MatmulBody,
    Notify,
    Operand,
    SlotNotify,
    SlotWait,
    Step,
    Store,
    SumParts,
    SumWords,
    Wait,
)
from tilelink.proof.bug_class import BugClass
from tilelink.proof.findings import Finding
from tilelink.proof.walk import Point, has_axis, points, reads

Reference = tuple[str, str]  # what it is, its name


def names(schedule: Schedule) -> Iterator[Finding]:
    known: dict[str, list[str]] = {
        "buffer": [buffer.name for buffer in schedule.buffers],
        "signal": [signal.name for signal in schedule.signals],
        "exchange": [exchange.name for exchange in schedule.exchanges],
    }
    for what, listed in known.items():
        for name, times in Counter(listed).items():
            if times > 1:
                yield Finding(BugClass.SLOTS, f"{what} {name}", f"there are {times} of that name")
    for where, (what, name) in _references(schedule):
        if name not in known[what]:
            yield Finding(BugClass.WRONG_PLACE, where, f"there is no {what} {name or 'without a name'}")
    for index, launch in enumerate(schedule.launches):
        if isinstance(launch, Kernel) and launch.compute is not None:
            for at, step in points(index, launch.compute):
                yield from _axes(at, step)
            yield from _branches(f"launch {index}, role {launch.compute.name}", launch.compute.body, launch)


def _references(schedule: Schedule) -> Iterator[tuple[str, Reference]]:
    for index, launch in enumerate(schedule.launches):
        where = f"launch {index}"
        match launch:
            case Kernel(comm=comm, compute=role):
                for one in comm:
                    yield where, ("exchange", one.exchange)
                    around: tuple[Step, ...] = (*one.before, *one.after)
                    for step in around:
                        yield from ((where, reference) for reference in _of_step(step))
                if role is not None:
                    for at, step in points(index, role):
                        for reference in _of_step(step):
                            yield str(at), reference
            case CopyProgram(exchange=name) | CopyOwn(exchange=name) | TellPlace(exchange=name):
                yield where, ("exchange", name)
            case Publish(exchange, copy_from):
                yield where, ("exchange", exchange)
                if copy_from:
                    yield where, ("buffer", copy_from)
            case LibraryGemm(out, left, right, split, _, wait, count):
                for operand in (out, left, right):
                    yield from ((where, reference) for reference in _of_operand(operand))
                if split:
                    yield (
                        where,
                        ("exchange", split) if _is_exchange(schedule, split) or count or wait else ("buffer", split),
                    )
                yield from ((where, reference) for reference in (_of_wait(wait) if wait else ()))
                if count:
                    yield where, ("signal", count)
            case Collective(_, out, operand):
                yield where, ("buffer", out)
                yield where, ("buffer", operand)
            case Begin() | AwaitPeers() | Finish():
                pass


def _is_exchange(schedule: Schedule, name: str) -> bool:
    return any(exchange.name == name for exchange in schedule.exchanges)


def _of_step(step: Step) -> Iterator[Reference]:
    for operand, waits in reads(step):
        yield from _of_operand(operand)
        for wait in waits:
            yield from _of_wait(wait)
    match step:
        case Wait():
            yield from _of_wait(step)
        case Store(operand=operand):
            yield from _of_operand(operand)
        case Notify(count=count, exchange=exchange, then=then):
            yield "signal", count
            yield "exchange", exchange
            if then:
                yield "signal", then
        case (
            SlotWait(signal=signal, exchange=exchange)
            | SlotNotify(signal=signal, exchange=exchange)
            | AwaitPlaces(signal, exchange)
        ):
            yield "signal", signal
            yield "exchange", exchange
        case _:
            return


def _of_operand(operand: Operand) -> Iterator[Reference]:
    yield "buffer", operand.buffer
    if operand.own:
        yield "buffer", operand.own


def _of_wait(wait: Wait) -> Iterator[Reference]:
    yield "signal", wait.signal
    yield "exchange", wait.exchange


def _axes(at: Point, step: Step) -> Iterator[Finding]:
    """Axes are those of the role; a part may also be that of a loop over the parts, which has no axis of its own."""
    spoken: list[str] = []
    for operand, waits in reads(step):
        spoken += [axis for axis in operand.index if axis]
        spoken += [wait.rows for wait in waits if wait.rows]
        if operand.slot and not isinstance(step, SumParts):
            spoken.append(operand.slot)
        if operand.item:
            spoken.append(operand.item)
    match step:
        case Store(operand=operand):
            spoken += [axis for axis in (*operand.index, operand.slot, operand.cut) if axis]
        case SumWords(index=index, cut=cut):
            spoken += [axis for axis in (*index, cut) if axis]
        case Notify(slot=slot, rows=rows):
            spoken += [rows, *([slot] if slot else [])]
        case Wait(slot=slot, rows=rows, every=every):
            spoken += [axis for axis in (rows, "" if every else slot) if axis]
        case SlotWait(rows=rows) | SlotNotify(rows=rows):
            spoken.append(rows)
        case MatmulBody(axis=axis):
            spoken.append(axis)
        case _:
            pass
    own_waits = [step] if isinstance(step, Wait) else [wait for _, waits in reads(step) for wait in waits]
    for wait in own_waits:
        tiled = has_axis(at.role, wait.slot) and not at.role.axis(wait.slot).reduction
        if wait.every and tiled and at.role.axis(wait.slot).segments > 1:
            fact = f"every part along {wait.slot} is waited for, where the tile is in the part of one segment"
            yield Finding(BugClass.WRONG_PLACE, str(at), fact, wait.signal)
    for name in dict.fromkeys(spoken):
        if not has_axis(at.role, name):
            yield Finding(BugClass.WRONG_PLACE, str(at), f"the role has no axis {name or 'without a name'}")


def _branches(where: str, steps: tuple[Step, ...], kernel: Kernel) -> Iterator[Finding]:
    role = kernel.compute
    assert role is not None
    for step in steps:
        if isinstance(step, IfOwn):
            if not has_axis(role, step.axis) or role.axis(step.axis).segments == 1:
                yield Finding(BugClass.WRONG_PLACE, where, f"axis {step.axis} has no own segment to branch on")
            yield from _branches(where, (*step.own, *step.others), kernel)
