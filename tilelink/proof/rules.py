"""What a planned schedule must keep to that its steps do not say: one table of rules, each with its reason.

Steps know an order of accesses and the values that move. They know neither a machine (SMs, links, descriptors), nor how words lie
in memory and are set back between calls, nor what a compiler makes of a loop. Nodes of a planned schedule also say twice what
steps say once; the rules see to it that they agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from tilelink.ir.calls import WordCollective
from tilelink.ir.counting import is_counted
from tilelink.ir.links import why_no_algorithm, why_no_exchange
from tilelink.ir.nodes import (
    AwaitPeers,
    BeforeKernel,
    Begin,
    CommSms,
    CopyProgram,
    Exchange,
    Finish,
    Fused,
    Kernel,
    Memory,
    Publish,
    Scope,
    TellPlace,
    Transfer,
)
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import AwaitPlaces, Notify, SlotWait, Step, SumWords
from tilelink.ir.walk import flat, waits_of
from tilelink.proof import kernel_rules, said_twice
from tilelink.proof.broken import Broken
from tilelink.proof.bug_class import BugClass
from tilelink.proof.findings import Finding
from tilelink.schedule import roles, steps
from tilelink.schedule.index import rank
from tilelink.schedule.walk import all_steps, notifies


@dataclass(frozen=True, slots=True)
class Rule:
    """`broken` yields where a schedule breaks it, `reason` says what happens then."""

    bug: BugClass
    reason: str
    broken: Callable[[Schedule], Iterator[Broken]]


def broken_rules(schedule: Schedule) -> Iterator[Finding]:
    """A finding for each place at which a rule is broken."""
    for rule in RULES:
        for where, fact, signal in rule.broken(schedule):
            yield Finding(rule.bug, where, f"{fact}; {rule.reason}", signal)


# ---- machines ----------------------------------------------------------------------------------------------------------


def _residency(schedule: Schedule) -> Iterator[Broken]:
    spinning = sum(_side_programs(schedule, x) for x in schedule.launches if isinstance(x, CopyProgram))
    for index, launch in enumerate(schedule.launches):
        if not isinstance(launch, Kernel | WordCollective) or (isinstance(launch, WordCollective) and launch.within):
            continue
        waits = isinstance(launch, WordCollective) or _waits(schedule, launch)
        if launch.sms + spinning > schedule.machine.num_sms and (waits or (spinning and isinstance(launch, Kernel))):
            name = launch.name if isinstance(launch, Kernel) else launch.function
            shared = f", {launch.per_sm} an SM," if launch.per_sm > 1 else ""
            beside = f" and {spinning} that hold up side streams" if spinning else ""
            fact = f"{launch.programs} programs{shared}{beside} do not fit on {schedule.machine.num_sms} SMs"
            yield Broken(f"launch {index}, {name}", fact)


def _waits(schedule: Schedule, kernel: Kernel) -> bool:
    gathers = any(isinstance(one, WordCollective) for one in schedule.within(kernel))  # and waits for all programs
    return gathers or bool(kernel.comm) or (kernel.compute is not None and any(map(_spins, flat(kernel.compute.body))))


def _spins(step: Step) -> bool:
    return isinstance(step, SlotWait | AwaitPlaces | SumWords) or bool(waits_of(step))


def _side_programs(schedule: Schedule, copies: CopyProgram) -> int:
    """One-program kernels that may spin at once on the streams of a copy program: for an epoch, whose value only the device
    knows, or for a count where streams wait for no words."""
    exchange = schedule.exchange(copies.exchange)
    counted = is_counted(schedule, exchange) and not schedule.machine.stream_waits
    return copies.streams if exchange.transfer is Transfer.PULL or counted else 0


def _links(schedule: Schedule) -> Iterator[Broken]:
    if schedule.machine.peer_atomics:
        return
    for launch in schedule.launches:
        if isinstance(launch, Finish) and not launch.by_copy:
            yield Broken("finish", "done is raised by an atomic at peers", "done")
    for exchange in schedule.exchanges:
        reason = why_no_exchange(exchange.mover, exchange.transfer, by_tiles=is_counted(schedule, exchange))
        if reason:
            ending = "ready" if exchange.transfer is Transfer.PULL else "arrived"
            yield Broken(f"exchange {exchange.name}", reason, f"{exchange.name}_{ending}")
    for name, algorithm in schedule.algorithms.items():
        if reason := why_no_algorithm(algorithm):
            yield Broken(f"collective {name}", reason)


def _stream_waits(schedule: Schedule) -> Iterator[Broken]:
    for index, launch in enumerate(schedule.launches):
        if isinstance(launch, CopyProgram) and launch.awaits_done and not schedule.machine.stream_waits:
            yield Broken(f"launch {index}, copy program", "its stream waits for peers", "done")


# ---- words -------------------------------------------------------------------------------------------------------------


def _raised_as(schedule: Schedule, elaborated: roles.Schedule) -> dict[str, Scope]:
    """The scope of each word that steps raise, by who raises it and how."""
    told = {f"{one.exchange}_place" for one in schedule.launches if isinstance(one, TellPlace)}
    found: dict[str, Scope] = {}
    for notify in (one for step in all_steps(elaborated) for one in notifies(step)):
        if notify.signal in told:
            found[notify.signal] = Scope.PLACE
        elif notify.at == rank:
            found.setdefault(notify.signal, Scope.LOCAL)
        else:
            found[notify.signal] = Scope.PEER_COUNT if notify.to is None else Scope.PEER
    return found


def words_as_steps(schedule: Schedule, elaborated: roles.Schedule) -> Iterator[Finding]:
    """Words are declared as steps raise them, and somebody waits for each."""
    raised = _raised_as(schedule, elaborated)
    awaited = {step.signal for step in all_steps(elaborated) if isinstance(step, steps.Wait)}
    for signal in schedule.signals:
        scope = raised.get(signal.name, Scope.LOCAL)  # what no step has is counted by programs of one launch
        if signal.scope is not scope and (signal.name in raised or signal.name not in awaited):
            fact = f"it is a word of scope {signal.scope.value}, and {scope.value} is what raises it"
            yield Finding(BugClass.STALE_SIGNAL, f"signal {signal.name}", fact, signal.name)
    for name, times in Counter(one.name for one in schedule.signals).items():
        if times > 1:
            yield Finding(BugClass.SLOTS, f"signal {name}", f"there are {times} of that name", name)
    for name in raised.keys() - awaited:
        fact = "it is raised, and nobody waits for what it tells"
        yield Finding(BugClass.ORDERING, f"signal {name}", fact, name)


def _targets(schedule: Schedule) -> Iterator[Broken]:
    for where, step in said_twice.tile_steps(schedule):
        for wait in waits_of(step):
            counted = schedule.has_signal(wait.signal) and schedule.signal(wait.signal).scope is Scope.LOCAL
            if counted != (wait.target > 0):
                kind = "a count" if counted else "an epoch"
                yield Broken(where, f"{kind} is compared with {wait.target or 'the number of the call'}", wait.signal)


def _counters(schedule: Schedule) -> Iterator[Broken]:
    needed: dict[str, int] = {}
    for kernel in schedule.kernels():
        for step in flat(kernel.compute.body) if kernel.compute is not None else ():
            if isinstance(step, Notify):
                exchange = schedule.exchange(step.exchange)
                parts = schedule.num_ranks if step.slot else 1
                needed[step.count] = parts * exchange.chunks
    for exchange in schedule.exchanges:
        if isinstance(exchange.mover, CommSms) and exchange.transfer is Transfer.PUSH and not exchange.slots:
            needed[f"{exchange.name}_sent"] = schedule.num_ranks * exchange.chunks
    if any(isinstance(one, Finish) and one.within for one in schedule.launches):
        needed["ended"] = 1
    for name, slots in needed.items():
        has = schedule.signal(name).slots if schedule.has_signal(name) else 0
        if has < slots:
            yield Broken(f"signal {name}", f"it has {has} words, and {slots} are counted in", name)


def _aliases(schedule: Schedule) -> Iterator[Broken]:
    for local in (True, False):
        found = [one for one in schedule.signals if (one.scope is Scope.LOCAL) is local]
        taken = sorted((one.first, one.first + one.slots, one.name) for one in found)
        words = sum(one.slots for one in found)
        for (_, end, name), (first, _, other) in pairwise(taken):
            if first < end:
                yield Broken(f"signal {other}", f"it shares the words {first} to {end} with {name}", other)
        for first, end, name in taken:
            if first < 0 or end > words:
                fact = f"its words {first} to {end} lie outside the {words} words of its scope"
                yield Broken(f"signal {name}", fact, name)


# ---- the frame of a call -----------------------------------------------------------------------------------------------


def _epochs(schedule: Schedule) -> Iterator[Broken]:
    begins = sum(isinstance(one, Begin) for one in schedule.launches)
    turns = any(isinstance(one, Finish) and one.turns for one in schedule.launches)
    if schedule.exchanges and begins + turns != 1:
        yield Broken("launches", f"{begins + turns} launches go to the next epoch")
    for index, one in enumerate(schedule.launches):
        if not turns and (isinstance(one, AwaitPeers) or (isinstance(one, CopyProgram) and one.awaits_done)):
            yield Broken(
                f"launch {index}", "it waits for a count of peers, which only a `finish` that turns keeps", "done"
            )


def _met(schedule: Schedule) -> Iterator[Broken]:
    if any(isinstance(one, Finish) and one.meets for one in schedule.launches):
        for index, one in enumerate(schedule.launches):
            if isinstance(one, Finish) and not one.turns:
                yield Broken(f"launch {index}, finish", "it waits for a count of peers that nobody keeps", "done")
            if isinstance(one, AwaitPeers) or (isinstance(one, CopyProgram) and one.awaits_done):
                yield Broken(f"launch {index}", "it waits for peers that the last call has met", "done")


def _ends(schedule: Schedule) -> Iterator[Broken]:
    copies = [one for one in schedule.launches if isinstance(one, CopyProgram)]
    for index, one in enumerate(schedule.launches):
        if isinstance(one, Finish) and one.within and not (one.turns and all(copy.tells_end for copy in copies)):
            fact = "a program ends the call, and a stream that tells it nothing may still copy, or `begin` is to turn"
            yield Broken(f"launch {index}, finish", fact, "done")
        if isinstance(one, Finish) and one.by_copy and (one.turns or one.within):
            yield Broken(f"launch {index}, finish", "copies write words, and count nothing", "done")


def _carried(schedule: Schedule) -> Iterator[Broken]:
    known = {id(launch) for kernel in schedule.kernels() for launch in schedule.within(kernel)}
    for index, launch in enumerate(schedule.launches):
        if isinstance(launch, BeforeKernel | Finish) and launch.within and id(launch) not in known:
            yield Broken(f"launch {index}", "no kernel beside it has a program that does it")
        if isinstance(launch, Publish) and launch.within and launch.copy_from:
            yield Broken(f"launch {index}, publish", f"its program would have to copy {launch.copy_from} first")


# ---- memory that outlives a call ---------------------------------------------------------------------------------------


def _outputs(schedule: Schedule) -> Iterator[Broken]:
    placed = {exchange.target for exchange in schedule.exchanges if exchange.met}
    for buffer in schedule.buffers:
        shared = buffer.memory in (Memory.SYMMETRIC, Memory.POOL)
        if buffer.name in schedule.spec.outputs and shared and buffer.name not in placed:
            yield Broken(f"output {buffer.name}", "peers put nothing together there")
    for exchange in schedule.exchanges:
        if exchange.met and exchange.target in schedule.spec.outputs and not exchange.own_copied:
            yield Broken(f"exchange {exchange.name}", f"the own part does not come to {exchange.target}")


def _places(schedule: Schedule) -> Iterator[Broken]:
    told = {one.exchange for one in schedule.launches if isinstance(one, TellPlace)}
    for exchange in schedule.exchanges:
        by_tiles = exchange.met and isinstance(exchange.mover, Fused)
        if (_pooled(schedule, exchange) or exchange.name in told) and not (_pooled(schedule, exchange) and by_tiles):
            fact = f"a place of {exchange.target} is told, or looked for, where tiles do not put a pool together"
            yield Broken(f"exchange {exchange.name}", fact, f"{exchange.name}_place")


def _told(schedule: Schedule) -> Iterator[Broken]:
    told = Counter(one.exchange for one in schedule.launches if isinstance(one, TellPlace))
    for exchange in schedule.exchanges:
        if _pooled(schedule, exchange) and told[exchange.name] != 1:
            fact = f"the place of {exchange.target} is told {told[exchange.name]} times a call"
            yield Broken(f"exchange {exchange.name}", fact, f"{exchange.name}_place")


def _pooled(schedule: Schedule, exchange: Exchange) -> bool:
    return any(one.name == exchange.target and one.memory is Memory.POOL for one in schedule.buffers)


RULES: tuple[Rule, ...] = (
    Rule(BugClass.RESIDENCY, "those that wait do not leave theirs", _residency),
    Rule(BugClass.LINK_ATOMICS, "links of the machine carry no atomics of peers", _links),
    Rule(BugClass.REUSE, "streams of the machine wait for no word of memory", _stream_waits),
    Rule(BugClass.STALE_SIGNAL, "a count is set back in every call, an epoch never", _targets),
    Rule(BugClass.SLOTS, "whoever comes last is told by a count", _counters),
    Rule(BugClass.SLOTS, "a word means one thing", _aliases),
    Rule(BugClass.STALE_SIGNAL, "ranks whose epochs differ take signals of one call for those of another", _epochs),
    Rule(BugClass.CIRCLE, "each meeting takes back what it was told", _met),
    Rule(BugClass.STALE_SIGNAL, "streams wait for the epoch of their call and send it", _ends),
    Rule(BugClass.WRONG_PLACE, "a launch of its own does what it is for", _carried),
    Rule(BugClass.WRONG_PLACE, "the caller would hold memory that the next call writes to", _outputs),
    Rule(BugClass.WRONG_PLACE, "only tiles look up the place that a rank has told", _places),
    Rule(BugClass.STALE_SIGNAL, "words of places are those of one call", _told),
    *(Rule(bug, reason, broken) for bug, reason, broken in (*said_twice.RULES, *kernel_rules.RULES)),
)
