"""Reuse: no write of a call overtakes a read or a wait of an earlier one; inside a call each region has one writer.

The argument, which `reuse` checks the premises of. All that a rank does in call n lies between its `begin` and its
`finish` on the compute stream, or on side streams that `begin` or a later launch forks and `finish` joins. `finish` then
raises `done` at every peer; `begin` of call n + 1 waits for it from every peer. So each access of call n, by anyone, to
symmetric memory of a rank happens before each access of call n + 1 to the same memory. Local counts are set to 0 by
`begin`, after everything of call n that counted or waited here; epochs of call n + 1 differ from all earlier ones.

A schedule in which only copy programs touch memory of peers, or only programs of kernels do, needs no `begin`: copy
streams wait for `done` themselves, programs behind an `AwaitPeers`, and `finish` clears the counts and goes to the next
epoch, after everything of the call and before anything of the next. What a rank does before that wait, or beside it,
touches its own memory only, which the order of its streams protects. `done` is a count here: each peer adds one a call,
`finish` takes off what was waited for. A peer that adds twice cannot stand in for one that has not added: it would have
finished call n + 1, and so have passed its own wait for call n + 1 before. The first wait of all that ends too early
would need one that did so before it.

A `finish` within a kernel comes after all programs of that kernel, and after the copies of all side streams if each of them
tells it so: only then are the counts cleared and the epoch changed that streams wait for and send.

Where calls end together, `finish` waits for `done` of this call instead, and nothing in the next call has to: what a rank
does in call n + 1 comes after its meeting at the end of call n, and so after everything of call n, by anyone. See also
tilelink.proof.meeting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tilelink.ir.calls import Collective, LibraryGemm
from tilelink.ir.nodes import (
    AwaitPeers,
    BeforeKernel,
    Begin,
    CopyOwn,
    CopyProgram,
    Finish,
    Kernel,
    Launch,
    Memory,
    Publish,
    TellPlace,
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
    yield from _carried(schedule)
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
        counted = isinstance(launch, AwaitPeers) or (isinstance(launch, CopyProgram) and launch.awaits_done)
        if counted and not turns:
            fact = "it waits for a count of peers, and `done` holds epochs"
            yield Finding(BugClass.STALE_SIGNAL, f"launch {index}", fact, "done")
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
    """Without `begin`: copy programs wait for `done` on their stream, and an `AwaitPeers` comes before whatever else
    writes what peers may still use, or tells them something."""
    launches = schedule.launches
    copies = [launch for launch in launches if isinstance(launch, CopyProgram)]
    for index, launch in enumerate(launches):
        if isinstance(launch, Finish) and launch.within and not all(one.tells_end for one in copies):
            fact = "a program goes to the next epoch, and a stream that tells it nothing may still copy to peers"
            yield Finding(BugClass.STALE_SIGNAL, f"launch {index}, finish", fact, "done")
    if any(isinstance(launch, Finish) and launch.meets for launch in launches):
        return
    if copies and not schedule.machine.stream_waits:
        fact = f"streams of {schedule.machine.topology} cannot wait for a word of memory"
        yield Finding(BugClass.REUSE, "finish", fact, "done")
    awaited = next((i for i, launch in enumerate(launches) if isinstance(launch, AwaitPeers)), len(launches))
    for index, launch in enumerate(launches[:awaited]):
        fact = _disturbs(schedule, launch)
        if fact:
            yield Finding(BugClass.REUSE, f"launch {index}", f"{fact}, and have not finished the last call", "done")
    for index, launch in enumerate(launches):
        if isinstance(launch, CopyProgram) and not launch.awaits_done:
            fact = "its stream does not wait until peers have finished the last call, and overwrites what they read"
            yield Finding(BugClass.REUSE, f"launch {index}, copy program", fact, "done")


def _disturbs(schedule: Schedule, launch: Launch) -> str:
    """What the launch does to memory that peers use; empty if nothing."""
    pulled = {x.source for x in schedule.exchanges if x.transfer is Transfer.PULL}
    match launch:
        case Kernel(comm=comm, compute=role):
            steps = flat(role.body) if role is not None else []
            stores = [step for step in steps if isinstance(step, Store)]
            pushed = any(schedule.exchange(one.exchange).transfer is Transfer.PUSH for one in comm)
            raised = any(isinstance(step, Notify) and step.then for step in steps)
            if pushed or raised or any(store.place is not Place.HERE for store in stores):
                return f"{launch.name} writes to peers, which may still read what it overwrites"
            written = {store.operand.buffer for store in stores}
        case Publish(exchange=exchange):
            return f"peers are told to pull {schedule.exchange(exchange).source}, which they may still pull"
        case LibraryGemm(out=out):
            written = {out.buffer}
        case Collective(out=target):
            written = {target}
        case TellPlace(exchange=exchange):
            return (
                f"peers are told a place of {schedule.exchange(exchange).target}, who may still look for the last one"
            )
        case Begin() | AwaitPeers() | CopyProgram() | CopyOwn() | Finish():
            written = set()
    found = sorted(written & pulled)
    return f"it writes {found[0]}, which peers may still pull" if found else ""


def _carried(schedule: Schedule) -> Iterator[Finding]:
    """What programs of a kernel carry out stands right before that kernel, or right behind it."""
    known = {id(launch) for kernel in schedule.kernels() for launch in schedule.within(kernel)}
    for index, launch in enumerate(schedule.launches):
        if isinstance(launch, BeforeKernel | Finish) and launch.within and id(launch) not in known:
            fact = "no kernel beside it has a program that does it"
            yield Finding(BugClass.WRONG_PLACE, f"launch {index}", fact)
        if isinstance(launch, Publish) and launch.within and launch.copy_from:
            fact = f"its program would have to copy {launch.copy_from} first"
            yield Finding(BugClass.WRONG_PLACE, f"launch {index}, publish", fact)
        if isinstance(launch, Finish) and launch.within and not launch.turns:
            fact = "programs of a kernel finish a call by going to the next epoch, and `begin` does that here"
            yield Finding(BugClass.STALE_SIGNAL, f"launch {index}, finish", fact, "done")


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
    collected = {launch.out for launch in schedule.launches if isinstance(launch, Collective)}
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
