"""Reuse: no write of a call overtakes a read or a wait of an earlier one; inside a call each region has one writer.

The argument, which `reuse` checks the premises of. All that a rank does in call n lies between its `begin` and its
`finish` on the compute stream, or on side streams that `begin` or a later launch forks and `finish` joins. `finish` then
raises `done` at every peer; `begin` of call n + 1 waits for it from every peer. So each access of call n, by anyone, to
symmetric memory of a rank happens before each access of call n + 1 to the same memory. Local counts are set to 0 by
`begin`, after everything of call n that counted or waited here; epochs of call n + 1 differ from all earlier ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tilelink.ir.nodes import (
    Begin,
    CopyOwn,
    CopyProgram,
    Finish,
    Kernel,
    Launch,
    LibraryCollective,
    LibraryGemm,
    Memory,
    Publish,
)
from tilelink.ir.schedule import Schedule
from tilelink.proof.bug_class import BugClass
from tilelink.proof.findings import Finding
from tilelink.proof.written import Portion, written


def reuse(schedule: Schedule) -> Iterator[Finding]:
    yield from _brackets(schedule)
    yield from _written_once(schedule)
    yield from _inputs_kept(schedule)


def _brackets(schedule: Schedule) -> Iterator[Finding]:
    """`begin` comes first and `finish` last, once each."""
    if not schedule.exchanges:
        return
    launches = schedule.launches
    begins = [i for i, launch in enumerate(launches) if isinstance(launch, Begin)]
    ends = [i for i, launch in enumerate(launches) if isinstance(launch, Finish)]
    if not begins:
        fact = "no launch goes to the next epoch: signals of the last call are taken for those of this one"
        yield Finding(BugClass.STALE_SIGNAL, "launches", fact)
    elif begins[0] != 0:
        fact = "what is launched before `begin` may overtake a peer that still reads, and uses the last epoch"
        yield Finding(BugClass.REUSE, f"launch {begins[0]}, begin", fact)
    if len(begins) > 1:
        fact = "counts of the running call are cleared, and the epoch runs ahead of that of the peers"
        yield Finding(BugClass.STALE_SIGNAL, f"launch {begins[1]}, begin", fact)
    if not ends:
        fact = "nobody is told that this rank has finished: peers would overwrite what it reads, or wait for ever"
        yield Finding(BugClass.REUSE, "launches", fact, "done")
    elif ends[0] != len(launches) - 1:
        fact = f"launch {ends[0] + 1} comes after peers were told that the call is over here"
        yield Finding(BugClass.REUSE, f"launch {ends[0]}, finish", fact, "done")


def _written_once(schedule: Schedule) -> Iterator[Finding]:
    """No two launches write the same portion of a buffer: the later one would overtake readers of the first."""
    count: Counter[tuple[str, Portion]] = Counter()
    for entry in written(schedule):
        count[entry.buffer, entry.portion] += 1
        if entry.portion is not Portion.WHOLE:
            continue
        for portion in (Portion.OWN, Portion.OTHERS):
            if count[entry.buffer, portion]:
                count[entry.buffer, Portion.WHOLE] += 1
    collected = {launch.out for launch in schedule.launches if isinstance(launch, LibraryCollective)}
    for (buffer, portion), times in count.items():
        in_place = buffer in collected and times == 2  # an all-reduce adds in place
        if times > 1 and not in_place:
            yield Finding(BugClass.REUSE, f"buffer {buffer}", f"its {portion.value} is written {times} times in a call")


def _inputs_kept(schedule: Schedule) -> Iterator[Finding]:
    """The caller's tensors are never written, and every launch names buffers that exist."""
    inputs = {buffer.name for buffer in schedule.buffers if buffer.memory is Memory.INPUT}
    for entry in written(schedule):
        if entry.buffer in inputs:
            yield Finding(BugClass.WRONG_PLACE, f"launch {entry.launch}", f"input {entry.buffer} is written")


def enqueues_remote(launch: Launch) -> bool:
    """Whether peers see something of the launch."""
    match launch:
        case Kernel() | CopyProgram() | Publish() | Finish() | Begin():
            return True
        case CopyOwn() | LibraryGemm() | LibraryCollective():
            return False
