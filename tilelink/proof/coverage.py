"""Coverage: whatever a tile, a copy or a library call reads has been waited for, or was written before it in stream order."""

from __future__ import annotations

from collections.abc import Iterator

from tilelink.ir.calls import Collective, LibraryGemm
from tilelink.ir.nodes import CopyOwn, CopyProgram, Exchange, Kernel, Kind, Publish, Scope, Transfer
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import Access, Operand, Step, SumParts, Wait
from tilelink.proof.bug_class import BugClass
from tilelink.proof.contract import arrived, is_counted
from tilelink.proof.findings import Finding
from tilelink.proof.walk import (
    Interval,
    Point,
    chunks_of,
    has_axis,
    is_local,
    points,
    reads,
    rows_in_part,
)
from tilelink.proof.written import Portion, is_there


def coverage(schedule: Schedule) -> Iterator[Finding]:
    """Findings about reads. Every read is looked at, for each tile extent, of the own part and of any other rank's."""
    for index, launch in enumerate(schedule.launches):
        match launch:
            case Kernel(compute=role, comm=comm):
                for comm_role in comm:
                    yield from _mover(schedule, index, schedule.exchange(comm_role.exchange), index)
                if role is not None:
                    for at, step in points(index, role):
                        for operand, waits in reads(step):
                            yield from _operand(schedule, at, step, operand, (*at.waits, *waits))
            case CopyProgram(exchange, _, after_source):
                # a stream that is not forked after its source sees what was there when the call began
                yield from _mover(schedule, index, schedule.exchange(exchange), index if after_source else 0)
            case Publish(exchange, copy_from):
                yield from _publish(schedule, index, schedule.exchange(exchange), copy_from)
            case CopyOwn(exchange):
                yield from _copy_own(schedule, index, schedule.exchange(exchange))
            case LibraryGemm():
                yield from _library_gemm(schedule, index, launch)
            case Collective(operand=name):
                yield from _plain(schedule, f"launch {index}, {launch.function}", name, Portion.WHOLE, index)


def _operand(schedule: Schedule, at: Point, step: Step, operand: Operand, waits: tuple[Wait, ...]) -> Iterator[Finding]:
    where = f"{at}, {type(step).__name__} reads {operand.buffer}"
    exchange = _delivering(schedule, operand)
    if exchange is None:
        yield from _plain(schedule, where, operand.buffer, Portion.WHOLE, at.launch)
        return
    if exchange.slots:
        return  # tilelink.proof.slots looks at reads of items
    own_read = (not operand.slot or operand.slot not in at.others) and not (isinstance(step, SumParts) and step.onto)
    fits = [wait for wait in waits if wait.exchange == exchange.name and wait.own]
    awaited = exchange.own_copied and any(wait.every or wait.slot == operand.slot for wait in fits)
    if own_read and not awaited:
        home = operand.own or operand.buffer
        portion = Portion.OWN if not operand.own or operand.own_slots > 1 else Portion.WHOLE
        if operand.remote and operand.own_slots == 1:
            portion = Portion.WHOLE
        yield from _plain(schedule, f"{where}, own part in {home}", home, portion, at.launch)
    if operand.slot and operand.slot in at.own:
        return
    if isinstance(step, SumParts) and step.wait is not None and step.wait.slot != operand.slot:
        # a sum goes through the parts one by one, and waits for the one that it is at
        fact = f"parts along {operand.slot} are added, and those along {step.wait.slot} are waited for"
        yield Finding(BugClass.WAIT_TOO_LITTLE, where, fact, step.wait.signal)
        return
    yield from _awaited(schedule, at, where, exchange, operand, waits)


def _delivering(schedule: Schedule, operand: Operand) -> Exchange | None:
    """The exchange that puts other ranks' parts where the operand reads them."""
    for exchange in schedule.exchanges:
        if (operand.remote and exchange.source == operand.buffer and not exchange.target) or (
            not operand.remote and exchange.target == operand.buffer
        ):
            return exchange
    return None


def _awaited(
    schedule: Schedule, at: Point, where: str, exchange: Exchange, operand: Operand, waits: tuple[Wait, ...]
) -> Iterator[Finding]:
    """Other ranks' parts: some wait on the arrival signal of the exchange covers the rows of each tile."""
    promise = arrived(exchange)
    if promise is None:
        fact = "its parts are complete when the ranks meet at the end of the call, and no sooner"
        yield Finding(BugClass.ORDERING, where, fact)
        return
    mine = [wait for wait in waits if wait.exchange == exchange.name and wait.signal == promise.name]
    if not mine:
        yield Finding(BugClass.ORDERING, where, "no wait comes before the read of other ranks' parts", promise.name)
        return
    for wait in mine:
        yield from _right_value(schedule, where, wait, promise.arrivals)
    fits = [wait for wait in mine if wait.every or wait.slot == operand.slot]
    if not fits:
        read = f"those along {operand.slot}" if operand.slot else "all of them"
        fact = f"the wait is for the part along {mine[0].slot}, the read of {read}"
        yield Finding(BugClass.WAIT_TOO_LITTLE, where, fact, promise.name)
        return
    yield from _rows(at, where, exchange, operand, fits)
    if operand.access is Access.DESCRIPTOR and not any(wait.fence for wait in fits):
        fact = "the tile is loaded through a descriptor, and no proxy fence comes after the wait"
        yield Finding(BugClass.ASYNC_STORE, where, fact, promise.name)


def _right_value(schedule: Schedule, where: str, wait: Wait, arrivals: int) -> Iterator[Finding]:
    """An epoch is compared with the call (target 0); a count with all its arrivals."""
    if wait.target == arrivals:
        return
    if arrivals == 0 or wait.target == 0:
        kind = "an epoch" if arrivals == 0 else "a count"
        fact = f"{kind} is compared with {wait.target or 'the number of the call'}"
        yield Finding(BugClass.STALE_SIGNAL, where, fact, wait.signal)
    elif wait.target < arrivals:
        fact = f"the wait ends after {wait.target} of {arrivals} arrivals"
        yield Finding(BugClass.SIGNAL_TOO_EARLY, where, fact, wait.signal)
    else:
        fact = f"the wait is for {wait.target} arrivals and only {arrivals} come"
        yield Finding(BugClass.CIRCLE, where, fact, wait.signal)


def _rows(at: Point, where: str, exchange: Exchange, operand: Operand, waits: list[Wait]) -> Iterator[Finding]:
    """Rows of the part that each tile reads lie in chunks that it waited for."""
    if exchange.chunks == 1:
        return
    name = operand.index[0]
    everything = any(not wait.rows for wait in waits)
    if everything:
        return
    if not name or not has_axis(at.role, name) or at.role.axis(name).reduction:
        fact = "every row of the part is read, and only the chunks of one tile are waited for"
        yield Finding(BugClass.WAIT_TOO_LITTLE, where, fact, waits[0].signal)
        return
    needed = rows_in_part(at.role, name, local=is_local(operand, name))
    covered = [_chunks_waited(at, exchange, wait, name, len(needed)) for wait in waits]
    for number, rows in enumerate(needed):
        missing = [c for c in chunks_of(exchange, rows) if not any(c in chunks[number] for chunks in covered)]
        if missing:
            tile = f"tile {number} along {name}, rows {rows[0]} to {rows[1]} of the part"
            fact = f"chunk {missing[0]} is read without having been waited for"
            yield Finding(BugClass.WAIT_TOO_LITTLE, where, fact, waits[0].signal, tile)
            return


def _chunks_waited(at: Point, exchange: Exchange, wait: Wait, name: str, count: int) -> list[range]:
    """Chunks that `wait` covers, for each piece of axis `name`."""
    nothing = [range(0)] * count
    if wait.rows != name:
        return nothing  # along another axis: the tile's rows say nothing about what was waited for
    local = wait.rows == wait.slot or wait.rows in at.own
    spans: list[Interval] = rows_in_part(at.role, wait.rows, local=local)
    return [chunks_of(exchange, rows) for rows in spans] if len(spans) == count else nothing


def _plain(schedule: Schedule, where: str, buffer: str, portion: Portion, before: int) -> Iterator[Finding]:
    if not is_there(schedule, buffer, portion, schedule.launched_at(before)):
        fact = f"nothing launched before writes the {portion.value} of {buffer}, and no signal orders it"
        yield Finding(BugClass.ORDERING, where, fact)


def _mover(schedule: Schedule, index: int, exchange: Exchange, seen: int) -> Iterator[Finding]:
    """A mover reads the source: counted chunk by chunk, ready at the peer, or complete before launch `seen`."""
    where = f"launch {index}, mover of {exchange.name}"
    if exchange.transfer is Transfer.PULL or is_counted(schedule, exchange):
        return  # waits for X_ready, or X_count, chunk by chunk: what lowering does for every mover
    whole = is_there(schedule, exchange.source, Portion.WHOLE, seen)
    needs = Portion.OTHERS if exchange.kind is Kind.SCATTER else Portion.WHOLE
    if not whole and not is_there(schedule, exchange.source, needs, seen):
        fact = f"{exchange.source} is read, which nothing counts and nothing launched before completes"
        yield Finding(BugClass.SIGNAL_TOO_EARLY, where, fact, f"{exchange.name}_arrived")


def _publish(schedule: Schedule, index: int, exchange: Exchange, copy_from: str) -> Iterator[Finding]:
    where = f"launch {index}, publish {exchange.name}"
    if copy_from:
        yield from _plain(schedule, where, copy_from, Portion.WHOLE, index)
    elif not is_there(schedule, exchange.source, Portion.WHOLE, index):
        fact = f"peers are told that {exchange.source} is there before it is written"
        yield Finding(BugClass.SIGNAL_TOO_EARLY, where, fact, f"{exchange.name}_ready")


def _copy_own(schedule: Schedule, index: int, exchange: Exchange) -> Iterator[Finding]:
    where = f"launch {index}, copy of the own part of {exchange.name}"
    portion = Portion.OWN if exchange.kind is Kind.SCATTER else Portion.WHOLE
    yield from _plain(schedule, where, exchange.source, portion, index)


def _library_gemm(schedule: Schedule, index: int, gemm: LibraryGemm) -> Iterator[Finding]:
    where = f"launch {index}, library matmul into {gemm.out.buffer}"
    yield from _plain(schedule, where, gemm.right.buffer, Portion.WHOLE, index)
    exchange = _delivering(schedule, gemm.left) if gemm.left.slot else None
    if exchange is None:
        yield from _plain(schedule, where, gemm.left.buffer, Portion.WHOLE, index)
        return
    home = gemm.left.own or gemm.left.buffer
    portion = Portion.OWN if not gemm.left.own or gemm.left.own_slots > 1 else Portion.WHOLE
    yield from _plain(schedule, f"{where}, own part in {home}", home, portion, index)
    promise = arrived(exchange)
    if promise is None:
        fact = "its parts are complete when the ranks meet at the end of the call, and no sooner"
        yield Finding(BugClass.ORDERING, where, fact)
        return
    wait = gemm.wait
    if wait is None or wait.signal != promise.name or gemm.split != exchange.name:
        yield Finding(BugClass.ORDERING, where, "no wait comes before the read of other ranks' parts", promise.name)
        return
    yield from _right_value(schedule, where, wait, 0 if promise.scope is Scope.PEER else promise.arrivals)
