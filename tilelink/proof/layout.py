"""Signals and buffers: as many slots as are used, no two signals on one word, no buffer smaller than what is touched."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tilelink.ir.nodes import CopyProgram, Exchange, Finish, Kind, Memory, Scope, Transfer
from tilelink.ir.schedule import Schedule
from tilelink.proof.bug_class import BugClass
from tilelink.proof.contract import promises
from tilelink.proof.findings import Finding


def signals(schedule: Schedule) -> Iterator[Finding]:
    """Each signal that an exchange needs exists, with its scope and slots; no two share a word."""
    for exchange in schedule.exchanges:
        for promise in promises(schedule, exchange):
            where = f"signal {promise.name} of exchange {exchange.name}"
            if not schedule.has_signal(promise.name):
                yield Finding(BugClass.SLOTS, where, "there is no such signal", promise.name)
                continue
            found = schedule.signal(promise.name)
            if found.scope is not promise.scope:
                if promise.scope is Scope.PLACE or found.scope is Scope.PLACE:
                    fact = f"it is a word of scope {found.scope.value}, and {promise.scope.value} is what is raised and awaited"
                    yield Finding(BugClass.STALE_SIGNAL, where, fact, promise.name)
                elif promise.scope is Scope.PEER:
                    fact = "it is raised by another rank, and is a count of this one that `begin` clears"
                    yield Finding(BugClass.STALE_SIGNAL, where, fact, promise.name)
                else:
                    fact = "it counts arrivals of this rank, and is never set to 0"
                    yield Finding(BugClass.STALE_SIGNAL, where, fact, promise.name)
            if found.slots < promise.slots:
                fact = f"it has {found.slots} slots for {promise.slots} chunks of all parts"
                yield Finding(BugClass.SLOTS, where, fact, promise.name)
    yield from _done(schedule)
    yield from _aliases(schedule)


def _done(schedule: Schedule) -> Iterator[Finding]:
    if not schedule.exchanges:
        return
    if not schedule.has_signal("done"):
        yield Finding(BugClass.REUSE, "signal done", "there is no such signal, so calls overtake each other", "done")
        return
    done = schedule.signal("done")
    finishes = [launch for launch in schedule.launches if isinstance(launch, Finish)]
    turns = any(finish.turns for finish in finishes)
    if any(finish.within for finish in finishes):
        counted = schedule.has_signal("ended") and schedule.signal("ended").scope is Scope.LOCAL
        if not counted or schedule.signal("ended").slots < 1:
            fact = "programs that end are counted to know the last one, and there is no local count for that"
            yield Finding(BugClass.SLOTS, "signal ended", fact, "ended")
    yield from _copied(schedule)
    slots = 1 if turns else schedule.num_ranks
    if done.slots < slots:
        fact = f"it has {done.slots} slots for {schedule.num_ranks} ranks"
        yield Finding(BugClass.SLOTS, "signal done", fact, "done")
    if done.scope is Scope.LOCAL:
        yield Finding(BugClass.STALE_SIGNAL, "signal done", "it is cleared by `begin`, and raised by peers", "done")
    elif (done.scope is Scope.PEER_COUNT) is not turns:
        held = "counts peers" if done.scope is Scope.PEER_COUNT else "holds the epoch of each peer"
        fact = f"it {held}, and `finish` {'counts' if turns else 'writes epochs'}"
        yield Finding(BugClass.STALE_SIGNAL, "signal done", fact, "done")


def _copied(schedule: Schedule) -> Iterator[Finding]:
    """A word for each stream that tells when it has nothing left to copy, and none that nobody writes."""
    streams = sum(x.streams for x in schedule.launches if isinstance(x, CopyProgram) and x.tells_end)
    found = schedule.signal("copied") if schedule.has_signal("copied") else None
    slots = found.slots if found is not None and found.scope is Scope.LOCAL else 0
    if slots < streams:
        fact = f"{streams} side streams tell that they have nothing left to copy, and it has {slots} local words"
        yield Finding(BugClass.SLOTS, "signal copied", fact, "copied")
    if slots > streams:
        fact = f"whoever ends the call waits for {slots} side streams, of which {streams} tell"
        yield Finding(BugClass.CIRCLE, "signal copied", fact, "copied")


def _aliases(schedule: Schedule) -> Iterator[Finding]:
    here = [signal for signal in schedule.signals if signal.scope is Scope.LOCAL]
    by_peers = [signal for signal in schedule.signals if signal.scope is not Scope.LOCAL]
    for found in (here, by_peers):
        taken = sorted((s.first, s.first + s.slots, s.name) for s in found)
        words = sum(s.slots for s in found)
        for (_, end, name), (first, _, other) in itertools.pairwise(taken):
            if first < end:
                fact = f"it shares the words {first} to {end} with {name}"
                yield Finding(BugClass.SLOTS, f"signal {other}", fact, other)
        for first, end, name in taken:
            if first < 0 or end > words:
                fact = f"its words {first} to {end} lie outside the {words} words of its scope"
                yield Finding(BugClass.SLOTS, f"signal {name}", fact, name)


def buffers(schedule: Schedule) -> Iterator[Finding]:
    """Sources and targets have the shape of their parts, and lie where the mover can reach them."""
    names = [buffer.name for buffer in schedule.buffers]
    for exchange in schedule.exchanges:
        where = f"exchange {exchange.name}"
        for name, parts, part in _pieces(schedule, exchange):
            if not name or (exchange.met and name == exchange.source == exchange.target and parts == 1):
                continue
            if name not in names:
                yield Finding(BugClass.WRONG_PLACE, where, f"there is no buffer {name}")
                continue
            shape = schedule.buffer(name).shape
            size, needed = _size(shape), parts * part[0] * part[1]
            if size != needed:
                fact = f"buffer {name} has {size} elements, and {parts} parts of {part[0]} x {part[1]} are {needed}"
                yield Finding(BugClass.SLOTS if size < needed else BugClass.WRONG_PLACE, where, fact)
        yield from _reachable(schedule, exchange.name)


def _pieces(schedule: Schedule, exchange: Exchange) -> Iterator[tuple[str, int, tuple[int, int]]]:
    """(buffer, how many pieces it holds, rows and columns of one) of source and target."""
    part, ranks = (exchange.rows, exchange.cols), schedule.num_ranks
    yield exchange.source, ranks if exchange.kind is Kind.SCATTER else 1, part
    if exchange.slots:
        yield exchange.target, exchange.slots, (exchange.chunk_rows, exchange.cols)
    else:
        yield exchange.target, ranks, part


def _reachable(schedule: Schedule, name: str) -> Iterator[Finding]:
    """What a peer reads or writes is symmetric memory."""
    exchange = schedule.exchange(name)
    touched = exchange.target if exchange.transfer is Transfer.PUSH else exchange.source
    found = next((buffer for buffer in schedule.buffers if buffer.name == touched), None)
    in_pool = found is not None and found.memory is Memory.POOL and exchange.transfer is Transfer.PUSH
    if found is not None and found.memory is not Memory.SYMMETRIC and not in_pool:
        fact = f"a peer accesses {touched}, which is {found.memory.value} memory"
        yield Finding(BugClass.WRONG_PLACE, f"exchange {name}", fact)


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for extent in shape:
        size *= extent
    return size
