"""Bounded exchanges: an item is stored into a slot that is free, and loaded from it once it is there; every word is raised
to exactly the value that somebody waits for.

The argument, which `slots` checks the premises of. The uses of a slot are numbered from 0 on through all calls: item i of
a call is use i // slots of slot i % slots in that call, and earlier calls account for a number that depends on nothing but
the slot and the number of the call. Use u goes like this.

    producer    wait free >= u          the first u uses are over, so that the slot may be overwritten
                store the item
                raise arrived to u + 1  at the receiver
    consumer    wait arrived >= u + 1   the item is there
                load it
                raise free to u + 1     at the sender: the load is over

Both words grow by one at a time, in the order of the uses, since each use waits for what the one before has raised. Until
somebody has waited for a value, nobody can raise the next one: a wait by equality is as good as one by order. What was
raised in a call stays, so that no word is ever set back.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilelink.ir.nodes import CommRole, ComputeRole, Exchange, Kernel
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import Operand, SlotNotify, SlotWait
from tilelink.proof.bug_class import BugClass
from tilelink.proof.findings import Finding
from tilelink.proof.walk import Point, points, reads

_PRODUCER, _CONSUMER = "producer", "consumer"


def slots(schedule: Schedule) -> Iterator[Finding]:
    """Findings about producers and consumers of bounded exchanges."""
    for exchange in schedule.exchanges:
        if exchange.slots:
            yield from _sides(schedule, exchange)
    for index, launch in enumerate(schedule.launches):
        if isinstance(launch, Kernel):
            for comm in launch.comm:
                yield from _producer(schedule, index, comm)
            if launch.compute is not None:
                yield from _consumer(schedule, index, launch.compute)


def _sides(schedule: Schedule, exchange: Exchange) -> Iterator[Finding]:
    """Producers and consumers are programs of one launch: of two, the second would wait for the first to end, which waits
    for slots that the second frees."""
    where = f"exchange {exchange.name}"
    loading = [
        kernel
        for kernel in schedule.kernels()
        if kernel.compute is not None and _loads(kernel.compute, exchange.target)
    ]
    if len(loading) != 1:
        fact = f"its items are taken by {len(loading)} launches, and each can be taken once"
        bug = BugClass.REUSE if loading else BugClass.CIRCLE
        yield Finding(bug, where, fact, f"{exchange.name}_free")
    for kernel in loading:
        if not any(comm.exchange == exchange.name for comm in kernel.comm):
            fact = f"its items are produced beside another launch than {kernel.name}, which takes them"
            yield Finding(BugClass.CIRCLE, where, fact, f"{exchange.name}_arrived")


def _loads(role: ComputeRole, buffer: str) -> list[tuple[Point, Operand]]:
    return [(at, operand) for at, step in points(0, role) for operand, _ in reads(step) if operand.buffer == buffer]


def _producer(schedule: Schedule, index: int, role: CommRole) -> Iterator[Finding]:
    exchange = schedule.exchange(role.exchange)
    where = f"launch {index}, {_PRODUCER} of {exchange.name}"
    if not exchange.slots:
        if role.before or role.after:
            fact = "it waits for slots, and its exchange has a place for every chunk"
            yield Finding(BugClass.WRONG_PLACE, where, fact)
        return
    if role.programs < 1:
        yield Finding(BugClass.CIRCLE, where, "no program produces its items", f"{exchange.name}_arrived")
    yield from _waits(where, exchange, role.before, f"{exchange.name}_free", 0, _PRODUCER)
    yield from _raises(where, exchange, role.after, f"{exchange.name}_arrived", _PRODUCER)
    for axis in (*(step.rows for step in role.before), *(step.rows for step in role.after)):
        if axis:
            yield Finding(BugClass.WRONG_PLACE, where, f"it goes through items, and {axis} is an axis of tiles")


def _consumer(schedule: Schedule, index: int, role: ComputeRole) -> Iterator[Finding]:
    steps = list(points(index, role))
    for exchange in schedule.exchanges:
        loading = [
            (number, operand)
            for number, (_, step) in enumerate(steps)
            for operand, _ in reads(step)
            if exchange.slots and operand.buffer == exchange.target
        ]
        synced = [
            (number, step)
            for number, (_, step) in enumerate(steps)
            if isinstance(step, SlotWait | SlotNotify) and step.exchange == exchange.name
        ]
        where = f"launch {index}, role {role.name}, {_CONSUMER} of {exchange.name}"
        if not loading:
            if synced:
                yield Finding(BugClass.WRONG_PLACE, where, "it speaks of slots from which it takes nothing")
            continue
        axis = loading[0][1].item
        yield from _item_tiles(where, exchange, role, [operand for _, operand in loading])
        first, last = loading[0][0], loading[-1][0]
        waits = tuple(step for n, step in synced if isinstance(step, SlotWait) and n < first)
        raised = [(n, step) for n, step in synced if isinstance(step, SlotNotify)]
        yield from _waits(where, exchange, waits, f"{exchange.name}_arrived", 1, _CONSUMER)
        yield from _raises(where, exchange, tuple(s for _, s in raised), f"{exchange.name}_free", _CONSUMER)
        if any(n < last for n, _ in raised):
            fact = "the slot is given back before the item has been loaded"
            yield Finding(BugClass.REUSE, where, fact, f"{exchange.name}_free")
        for _, step in synced:
            if step.rows != axis:
                fact = (
                    f"items are tiles along {axis or 'nothing'}, and {step.signal} is that of a tile along {step.rows}"
                )
                yield Finding(BugClass.WRONG_PLACE, where, fact, step.signal)


def _item_tiles(where: str, exchange: Exchange, role: ComputeRole, operands: list[Operand]) -> Iterator[Finding]:
    """Each tile is one item: as many rows, all columns. Whether they come in a good order, the search for circles says."""
    for operand in operands:
        if operand.remote or operand.slot or operand.own or not operand.item or operand.item != operand.index[0]:
            fact = f"{operand.buffer} holds items in slots, and is not read by the slot of an item"
            yield Finding(BugClass.WRONG_PLACE, where, fact)
            return
    written = [axis for axis in role.axes if not axis.reduction]
    rows = role.axis(operands[0].item)
    whole = all(axis.tiles == 1 for axis in written if axis != rows)
    if rows.tile != exchange.chunk_rows or not whole or any(axis.segments > 1 for axis in written):
        fact = f"tiles of {' x '.join(str(axis.tile) for axis in written)} are no items of {exchange.chunk_rows} rows"
        yield Finding(BugClass.WRONG_PLACE, where, fact, f"{exchange.name}_arrived")


def _waits(
    where: str, exchange: Exchange, steps: tuple[SlotWait, ...], signal: str, plus: int, side: str
) -> Iterator[Finding]:
    """Some wait for `signal` at the right value, and none for one that nobody raises in time."""
    mine = [step for step in steps if step.signal == signal]
    astray = [step for step in steps if step.signal != signal or step.exchange != exchange.name]
    for step in astray:
        yield Finding(BugClass.WRONG_PLACE, where, f"it waits for {step.signal}, not for {signal}", step.signal)
    if not mine:
        if side == _PRODUCER:
            fact = "nothing is waited for before a slot is overwritten, from which the last item may still be loaded"
            yield Finding(BugClass.REUSE, where, fact, signal)
        else:
            fact = "no wait comes before the item is loaded"
            yield Finding(BugClass.ORDERING, where, fact, signal)
    for step in mine:
        if step.plus > plus:
            fact = f"use u waits for u + {step.plus}, which only a later use raises"
            yield Finding(BugClass.CIRCLE, where, fact, signal)
    if mine and max(step.plus for step in mine) < plus:
        best = max(step.plus for step in mine)
        if side == _PRODUCER:
            fact = f"use u waits for u - {-best} only: the item of the use before may still be loaded"
            yield Finding(BugClass.REUSE, where, fact, signal)
        else:
            fact = f"use u waits for {f'u - {-best}' if best else 'u'} only, which an earlier use has raised"
            yield Finding(BugClass.STALE_SIGNAL, where, fact, signal)


def _raises(where: str, exchange: Exchange, steps: tuple[SlotNotify, ...], signal: str, side: str) -> Iterator[Finding]:
    """`signal` is raised once, from the number of the use to the next."""
    mine = [step for step in steps if step.signal == signal]
    for step in steps:
        if step.signal != signal or step.exchange != exchange.name:
            yield Finding(BugClass.WRONG_PLACE, where, f"it raises {step.signal}, not {signal}", step.signal)
    if len(mine) > 1:
        fact = (
            f"a use raises it {len(mine)} times, and the last of them may set it back behind what the next use raised"
        )
        yield Finding(BugClass.STALE_SIGNAL, where, fact, signal)
    if not mine:
        yield Finding(BugClass.CIRCLE, where, "it is never raised, and somebody waits for it", signal)
    for step in mine:
        if step.plus < 1:
            fact = f"use u raises it to u{f' - {-step.plus}' if step.plus else ''}, and u + 1 is waited for"
            yield Finding(BugClass.CIRCLE, where, fact, signal)
        elif step.plus > 1:
            done = "were there" if side == _PRODUCER else "had been loaded"
            fact = f"use u raises it to u + {step.plus}, as if the item of use u + {step.plus - 1} {done}"
            yield Finding(BugClass.SIGNAL_TOO_EARLY, where, fact, signal)
