"""Reuse: no write of a call overtakes a read or a wait of an earlier one; inside a call each region has one writer.

The argument, which `reuse` checks the premises of. All that a rank does in call n lies between its `begin` and its
`finish` on the compute stream, or on side streams that `begin` or a later launch forks and `finish` joins. `finish` then
raises `done` at every peer; `begin` of call n + 1 waits for it from every peer. So each access of call n, by anyone, to
symmetric memory of a rank happens before each access of call n + 1 to the same memory. Local counts are set to 0 by
`begin`, after everything of call n that counted or waited here; epochs of call n + 1 differ from all earlier ones.

A schedule in which only copy programs touch memory of peers needs no `begin`: their streams wait for `done` themselves,
and `finish` clears the counts and goes to the next epoch, after everything of the call and before anything of the next.
What a rank computes meanwhile touches its own memory only, which the order of its streams protects. `done` is a count
here: each peer adds one a call, `finish` takes off what was waited for. Peers that add once cannot stand in for one that
has not, since none of them finishes call n + 1 without this rank's part in it, which is sent after the wait.
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
    Transfer,
)
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import Notify, Place, Store
from tilelink.proof.bug_class import BugClass
from tilelink.proof.contract import flat
from tilelink.proof.findings import Finding
from tilelink.proof.written import Portion, written


def reuse(schedule: Schedule) -> Iterator[Finding]:
    yield from _brackets(schedule)
    yield from _written_once(schedule)
    yield from _inputs_kept(schedule)


def _brackets(schedule: Schedule) -> Iterator[Finding]:
    """`begin` comes first and `finish` last, once each; or `finish` turns, and streams wait for `done` by themselves."""
    if not schedule.exchanges:
        return
    launches = schedule.launches
    begins = [i for i, launch in enumerate(launches) if isinstance(launch, Begin)]
    ends = [i for i, launch in enumerate(launches) if isinstance(launch, Finish)]
    turns = any(isinstance(launch, Finish) and launch.turns for launch in launches)
    if turns:
        yield from _unbracketed(schedule)
    elif not begins:
        fact = "no launch goes to the next epoch: signals of the last call are taken for those of this one"
        yield Finding(BugClass.STALE_SIGNAL, "launches", fact)
    if turns and begins:
        fact = "`finish` has gone to the epoch of this call, and `begin` goes on to one that peers do not use"
        yield Finding(BugClass.STALE_SIGNAL, f"launch {begins[0]}, begin", fact)
    elif begins and begins[0] != 0:
        fact = "what is launched before `begin` may overtake a peer that still reads, and uses the last epoch"
        yield Finding(BugClass.REUSE, f"launch {begins[0]}, begin", fact)
    for index, launch in enumerate(launches):
        if isinstance(launch, CopyProgram) and launch.awaits_done and not turns:
            fact = "its stream waits for a count of peers, and `done` holds epochs"
            yield Finding(BugClass.STALE_SIGNAL, f"launch {index}, copy program", fact, "done")
    if len(begins) > 1:
        fact = "counts of the running call are cleared, and the epoch runs ahead of that of the peers"
        yield Finding(BugClass.STALE_SIGNAL, f"launch {begins[1]}, begin", fact)
    if not ends:
        fact = "nobody is told that this rank has finished: peers would overwrite what it reads, or wait for ever"
        yield Finding(BugClass.REUSE, "launches", fact, "done")
    elif ends[0] != len(launches) - 1:
        fact = f"launch {ends[0] + 1} comes after peers were told that the call is over here"
        yield Finding(BugClass.REUSE, f"launch {ends[0]}, finish", fact, "done")


def _unbracketed(schedule: Schedule) -> Iterator[Finding]:
    """Without `begin`: whoever writes to peers has waited for `done` on its stream, and nobody else touches them."""
    if not schedule.machine.stream_waits:
        fact = f"streams of {schedule.machine.topology} cannot wait for a word of memory"
        yield Finding(BugClass.REUSE, "finish", fact, "done")
    for index, launch in enumerate(schedule.launches):
        match launch:
            case CopyProgram(awaits_done=False):
                fact = "its stream does not wait until peers have finished the last call, and overwrites what they read"
                yield Finding(BugClass.REUSE, f"launch {index}, copy program", fact, "done")
            case Publish():
                fact = "peers are told to pull, and may still pull what the last call left there"
                yield Finding(BugClass.REUSE, f"launch {index}, publish", fact, "done")
            case Kernel(comm=comm, compute=role):
                steps = flat(role.body) if role is not None else []
                stored = any(isinstance(step, Store) and step.place is not Place.HERE for step in steps)
                raised = any(isinstance(step, Notify) and step.then for step in steps)
                if comm or stored or raised:
                    fact = "it touches memory of peers, which may not have finished the last call"
                    yield Finding(BugClass.REUSE, f"launch {index}, {launch.name}", fact, "done")
            case _:
                pass
    for exchange in schedule.exchanges:
        if exchange.transfer is Transfer.PULL:
            fact = "peers pull, and whoever writes its source does not wait until they have"
            yield Finding(BugClass.REUSE, f"exchange {exchange.name}", fact, "done")


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
