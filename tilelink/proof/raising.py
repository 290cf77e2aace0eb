"""Signals are raised only after what they promise is true, by exactly those who must raise them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tilelink.ir.calls import LibraryGemm
from tilelink.ir.counting import chunk_arrivals
from tilelink.ir.nodes import CommSms, CopyEngine, CopyProgram, Exchange, Fused, Kernel, Kind, Publish, Transfer
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import Access, Notify, Place, Store
from tilelink.proof.bug_class import BugClass
from tilelink.proof.contract import counters
from tilelink.proof.findings import Finding
from tilelink.proof.walk import Interval, Point, chunks_of, has_axis, is_local, points, rows_in_part
from tilelink.proof.written import written


def raising(schedule: Schedule) -> Iterator[Finding]:
    """Findings about notifies, movers and publications."""
    for index, launch in enumerate(schedule.launches):
        if isinstance(launch, Kernel) and launch.compute is not None:
            for at, step in points(index, launch.compute):
                if isinstance(step, Notify):
                    yield from _notify(schedule, at, step)
        elif isinstance(launch, LibraryGemm) and launch.count and launch.count != f"{launch.split}_count":
            where = f"launch {index}, library matmul into {launch.out.buffer}"
            yield Finding(
                BugClass.WRONG_PLACE, where, f"{launch.count} is not the count of {launch.split}", launch.count
            )
    for exchange in schedule.exchanges:
        yield from _counted_once(schedule, exchange)
        yield from _movers(schedule, exchange)


def _notify(schedule: Schedule, at: Point, step: Notify) -> Iterator[Finding]:
    """A tile counts after it has stored what the chunk holds of it, for all chunks that it touches."""
    where = f"{at}, notify {step.count}"
    exchange = next((x for x in schedule.exchanges if x.name == step.exchange), None)
    if exchange is None or step.count != f"{step.exchange}_count":
        yield Finding(BugClass.WRONG_PLACE, where, f"{step.count} is not the count of {step.exchange}", step.count)
        return
    fused = isinstance(exchange.mover, Fused) and exchange.transfer is Transfer.PUSH
    buffer = exchange.target if fused else exchange.source
    mine = [store for store in at.stores if store.operand.buffer == buffer]
    if not mine:
        fact = f"the tile is counted before it is stored to {buffer}"
        yield Finding(BugClass.SIGNAL_TOO_EARLY, where, fact, step.count)
        return
    yield from _announced(where, exchange, step)
    for store in mine:
        yield from _stored(where, exchange, step, store, fused=fused)
        yield from _rows_counted(at, where, exchange, step, store)
    yield from _arrivals(at, where, exchange, step)


def _announced(where: str, exchange: Exchange, step: Notify) -> Iterator[Finding]:
    """Who completes a chunk raises the signal that others wait for, at those who wait."""
    if exchange.transfer is Transfer.PULL:
        then = f"{exchange.name}_ready"
    else:
        then = f"{exchange.name}_arrived" if isinstance(exchange.mover, Fused) and not exchange.met else ""
    if step.then != then:
        fact = f"the last tile of a chunk raises {step.then or 'nothing'} instead of {then or 'nothing'}"
        yield Finding(BugClass.CIRCLE if then else BugClass.SIGNAL_TOO_EARLY, where, fact, then or step.then)
    there = Place.PEER if exchange.kind is Kind.SCATTER else Place.EVERY_PEER
    if step.then and step.place is not there:
        fact = f"{step.then} is raised at {step.place.value}, and awaited at {there.value}"
        yield Finding(BugClass.WRONG_PLACE, where, fact, step.then)


def _stored(where: str, exchange: Exchange, step: Notify, store: Store, *, fused: bool) -> Iterator[Finding]:
    if store.operand.access is Access.DESCRIPTOR:
        fact = "the tile is stored through a descriptor, which the release does not wait for"
        yield Finding(BugClass.ASYNC_STORE, where, fact, step.count)
    there = Place.PEER if exchange.kind is Kind.SCATTER else Place.EVERY_PEER
    here = Place.OWN if exchange.source == exchange.target else Place.HERE
    if store.place is not (there if fused else here):
        fact = (
            f"the tile is stored {store.place.value}, but {exchange.name} takes it {(there if fused else here).value}"
        )
        yield Finding(BugClass.WRONG_PLACE, where, fact, step.count)
    slot = store.operand.slot if exchange.kind is Kind.SCATTER else ""
    if step.slot != slot or (exchange.kind is Kind.SCATTER and not step.slot):
        fact = f"the tile is counted for the part along {step.slot or 'nothing'}, and stored into that along {slot}"
        yield Finding(BugClass.WRONG_PLACE, where, fact, step.count)


def _rows_counted(at: Point, where: str, exchange: Exchange, step: Notify, store: Store) -> Iterator[Finding]:
    """The tile is counted for the chunks that its rows lie in, no more and no fewer."""
    name = store.operand.index[0]
    if step.rows != name or not has_axis(at.role, name):
        fact = f"chunks are counted along {step.rows}, and rows of {store.operand.buffer} lie along {name}"
        yield Finding(BugClass.SIGNAL_TOO_EARLY, where, fact, step.count)
        return
    if exchange.chunks == 1:
        return
    spans = rows_in_part(at.role, name, local=is_local(store.operand, name))
    counted: list[Interval] = rows_in_part(at.role, step.rows, local=step.rows == step.slot or step.rows in at.own)
    for number, (stored, said) in enumerate(zip(spans, counted, strict=False)):
        if chunks_of(exchange, stored) != chunks_of(exchange, said) or len(spans) != len(counted):
            tile = f"tile {number} along {name}"
            fact = f"rows {stored[0]} to {stored[1]} are stored, and counted as rows {said[0]} to {said[1]}"
            yield Finding(BugClass.SIGNAL_TOO_EARLY, where, fact, step.count, tile)
            return


def _arrivals(at: Point, where: str, exchange: Exchange, step: Notify) -> Iterator[Finding]:
    """What lowering takes as complete is what the tiles, gone through one by one, add up to."""
    if not has_axis(at.role, step.rows):
        return
    local = step.rows == step.slot or step.rows in at.own
    found: Counter[int] = Counter()
    for rows in rows_in_part(at.role, step.rows, local=local):
        found.update(chunks_of(exchange, rows))
    others = 1
    for axis in at.role.axes:
        if not axis.reduction and axis.name != step.rows:
            others *= axis.tiles * (1 if axis.name == step.slot or axis.name in at.own else axis.segments)
    counts = [found[chunk] * others for chunk in range(exchange.chunks)]
    stated = chunk_arrivals(at.role, step, exchange, at.own)
    if counts != stated:
        chunk = next(c for c in range(exchange.chunks) if counts[c] != stated[c])
        fact = f"chunk {chunk} counts as complete after {stated[chunk]} tiles, and {counts[chunk]} write to it"
        bug = BugClass.SIGNAL_TOO_EARLY if stated[chunk] < counts[chunk] else BugClass.CIRCLE
        yield Finding(bug, where, fact, step.count)


def _counted_once(schedule: Schedule, exchange: Exchange) -> Iterator[Finding]:
    """Tiles that write the source are those that count for it, once."""
    if exchange.slots:
        return  # its source is complete before the launch
    found = counters(schedule, exchange)
    where = f"exchange {exchange.name}"
    name = f"{exchange.name}_count"
    if len(found) > 1:
        fact = f"{len(found)} steps count for one chunk, so it looks complete before it is"
        yield Finding(BugClass.SIGNAL_TOO_EARLY, where, fact, name)
    pushed_by_tiles = isinstance(exchange.mover, Fused) and exchange.transfer is Transfer.PUSH
    buffer = exchange.target if pushed_by_tiles else exchange.source
    made = [
        (at, step)
        for index, launch in enumerate(schedule.launches)
        if isinstance(launch, Kernel) and launch.compute is not None
        for at, step in points(index, launch.compute)
        if isinstance(step, Store) and step.operand.buffer == buffer
    ]
    if len(made) > 1:
        yield Finding(BugClass.REUSE, where, f"{len(made)} steps store to {buffer}")
    if not found and schedule.has_signal(name):
        fact = "whoever moves it waits for a count, and nothing counts"
        yield Finding(BugClass.CIRCLE, str(made[0][0]) if made else where, fact, name)
    elif made and not found and not (exchange.met and pushed_by_tiles):
        at, _ = made[0]
        if pushed_by_tiles or not _complete_before(schedule, exchange, at.launch):
            fact = f"tiles are stored to {buffer} and never counted"
            yield Finding(BugClass.CIRCLE, str(at), fact, name)
    if made and found and isinstance(found[0][1], LibraryGemm):
        yield Finding(BugClass.REUSE, where, f"tiles and a library matmul both write {buffer}")


def _complete_before(schedule: Schedule, exchange: Exchange, launch: int) -> bool:
    """Whether stream order alone says that the source is complete: `launch` is all that writes it, and whoever moves it, or
    tells peers to pull it, is launched later. That this launch writes all of it is looked at by tilelink.proof.coverage."""
    if any(entry.launch != launch for entry in written(schedule) if entry.buffer == exchange.source):
        return False
    for index, other in enumerate(schedule.launches):
        match other:
            case Kernel(comm=comm) if any(role.exchange == exchange.name for role in comm):
                begins = schedule.launched_at(index)
            case CopyProgram(exchange=name, after_source=after_source) if name == exchange.name:
                begins = index if after_source else 0
            case Publish(exchange=name) if name == exchange.name:
                begins = index
            case _:
                continue
        if begins <= launch:
            return False
    return True


def _movers(schedule: Schedule, exchange: Exchange) -> Iterator[Finding]:
    """One mover carries out the exchange, and a source that is pulled is published once."""
    where = f"exchange {exchange.name}"
    copies = [x for x in schedule.launches if isinstance(x, CopyProgram) and x.exchange == exchange.name]
    roles = [r for kernel in schedule.kernels() for r in kernel.comm if r.exchange == exchange.name]
    published = [x for x in schedule.launches if isinstance(x, Publish) and x.exchange == exchange.name]
    match exchange.mover:
        case CopyEngine():
            wanted = (1, 0)
        case CommSms(num_sms):
            wanted = (0, 1)
            if roles and roles[0].programs != num_sms:
                fact = f"{roles[0].programs} programs move the chunks, and arrivals of {num_sms} are awaited"
                bug = BugClass.CIRCLE if roles[0].programs < num_sms else BugClass.SIGNAL_TOO_EARLY
                yield Finding(bug, where, fact, f"{exchange.name}_arrived")
        case Fused():
            wanted = (0, 0)
    if (len(copies), len(roles)) < wanted:
        yield Finding(
            BugClass.CIRCLE, where, "nobody moves it, so its arrival is never raised", f"{exchange.name}_arrived"
        )
    elif (len(copies), len(roles)) != wanted:
        fact = f"{len(copies) + len(roles)} movers write to {exchange.target}, the later ones after it may be read"
        yield Finding(BugClass.REUSE, where, fact, f"{exchange.name}_arrived")
    yield from _published(schedule, exchange, where, len(published))


def _published(schedule: Schedule, exchange: Exchange, where: str, times: int) -> Iterator[Finding]:
    signal = f"{exchange.name}_ready"
    by_tiles = bool(counters(schedule, exchange))
    if exchange.transfer is Transfer.PULL and not by_tiles and times == 0:
        yield Finding(BugClass.CIRCLE, where, "nobody publishes its source, so pulls wait for ever", signal)
    elif times and by_tiles:
        fact = "its source is published before its tiles have written it"
        yield Finding(BugClass.SIGNAL_TOO_EARLY, where, fact, signal)
    elif times > 1:
        yield Finding(
            BugClass.REUSE, where, f"its source is published {times} times, and may be read meanwhile", signal
        )
    elif times and exchange.transfer is not Transfer.PULL:
        yield Finding(BugClass.WRONG_PLACE, where, "its source is published, and nobody pulls", signal)
