"""Why a run failed: the class of the bug, from the failure and from runs that differ in one thing.

Equal trials are equal runs, so that "the same run without the rule of CTA barriers", "with one call" or "with ten times as
many SMs" isolates a cause.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from tilelink.adversary.call_counts import CallCounts
from tilelink.adversary.host_code import HostCodeFailed
from tilelink.adversary.subject import Subject
from tilelink.adversary.sync_log import SyncLog
from tilelink.adversary.trials import (
    NotRefused,
    Outcome,
    Scenario,
    Trial,
    WrongResult,
    run_trial,
    with_rule_lifted,
)
from tilelink.emulator import errors as emulation
from tilelink.emulator.dialects.errors import NoMulticast
from tilelink.emulator.events import Kind
from tilelink.emulator.place import NOWHERE, Place
from tilelink.emulator.races import Touch
from tilelink.emulator.report import TaskState
from tilelink.errors import ScheduleMismatch
from tilelink.proof.bug_class import BugClass

_RULES = (
    ("scopes", BugClass.SCOPE),
    ("cta_barriers", BugClass.CTA_BARRIER),
    ("async_completion", BugClass.ASYNC_STORE),
    ("proxy_fences", BugClass.ASYNC_STORE),
    ("semantics", BugClass.ORDERING),
)
_MORE_SMS = 64
_EQUAL = re.compile(r"\(value (-?\d+)\) == (-?\d+)")  # a wait of the emulator for one value


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`bug` is None where the file does not run at all. `rank` and `place` are where the mistake shows."""

    bug: BugClass | None
    rank: int
    place: Place
    why: str  # one sentence without a full stop


def diagnose(subject: Subject, outcome: Outcome) -> Diagnosis:
    """The cause of `outcome.error`, which is not None. Runs the trial again, changed, up to ten times."""
    error = outcome.error
    assert error is not None
    difference = outcome.difference
    match error:
        case emulation.NarrowScope():
            narrow = error.narrow
            why = (
                f"the atomics are not indivisible to each other: {narrow.scope.value} scope ends before {narrow.beyond}"
            )
            return Diagnosis(BugClass.SCOPE, narrow.rank, narrow.place, why)
        case emulation.Race():
            return _race(subject, outcome, error)
        case emulation.NoPeerAtomics() | NoMulticast():
            return _at(BugClass.LINK_ATOMICS, error, "the link does not have it")
        case emulation.LateSetup():
            return _at(BugClass.LATE_SETUP, error, "ranks meet in an allocation while operations are under way")
        case emulation.OutOfBounds():
            signals = "int32" in str(error.facts["nearest"]) or str(error.facts["access"]).startswith("atomic")
            bug = BugClass.SLOTS if signals else BugClass.WRONG_PLACE
            return _at(bug, error, f"{error.facts['access']} outside of all buffers: {error.facts['nearest']}")
        case emulation.IllegalCapture():
            return _at(BugClass.BAKED_CONSTANT, error, str(error.facts["reason"]))
        case NotRefused():
            fewer = "SMs" in str(error.facts["what"])
            bug = BugClass.RESIDENCY if fewer else BugClass.PER_RANK_CHOICE
            return Diagnosis(bug, 0, NOWHERE, f"nothing refuses it although {error.facts['what']}")
        case emulation.CollectiveMismatch() | emulation.SymmetricMismatch() | ScheduleMismatch():
            return _at(BugClass.PER_RANK_CHOICE, error, str(difference or "ranks enqueue different collectives"))
    if difference is not None and not isinstance(error, HostCodeFailed | emulation.KernelError):
        place = (difference.other or difference.own).place if difference.other or difference.own else None  # type: ignore[union-attr]
        return Diagnosis(BugClass.PER_RANK_CHOICE, difference.other_rank, place or NOWHERE, str(difference))
    match error:
        case emulation.Deadlock():
            return _hang(subject, outcome, error)
        case WrongResult():
            return _wrong(subject, outcome, error)
    return _at(None, error, "the file does not run")


def _at(bug: BugClass | None, error: Exception, why: str) -> Diagnosis:
    facts: dict[str, object] = getattr(error, "facts", {})
    rank, place = facts.get("rank", 0), facts.get("place", NOWHERE)
    tasks = facts.get("tasks", ())
    if isinstance(tasks, tuple) and tasks and place is NOWHERE:
        rank, place = tasks[0].rank, tasks[0].place
    return Diagnosis(bug, rank if isinstance(rank, int) else 0, place if isinstance(place, Place) else NOWHERE, why)


def _by_scenario(subject: Subject, trial: Trial) -> BugClass | None:
    """The class of what goes wrong only when calls are replayed, or alternate."""
    if trial.scenario in (Scenario.CALLS, Scenario.WAITED):
        return None
    if run_trial(subject, replace(trial, scenario=Scenario.CALLS)).error is not None:
        return None
    return BugClass.BAKED_CONSTANT if trial.scenario is Scenario.REPLAYS else BugClass.SHARED_SIGNALS


def _first_call_passes(subject: Subject, trial: Trial) -> bool:
    return trial.calls > 1 and run_trial(subject, replace(trial, calls=1)).error is None


# races


def _race(subject: Subject, outcome: Outcome, race: emulation.Race) -> Diagnosis:
    first, second = race.facts["first"], race.facts["second"]
    assert isinstance(first, Touch) and isinstance(second, Touch)
    scenario = _by_scenario(subject, outcome.trial)
    if scenario is not None:
        why = f"it goes wrong with {outcome.trial.scenario.value}, and not otherwise"
        return Diagnosis(scenario, second.rank, second.place, why)
    # a stream may be a call ahead of the kernels by which the hint tells calls apart
    later = not race.facts["same_call_hint"] or _belongs_later(subject, outcome.trial, first, second)
    unchecked = later and not _has_waited(subject, outcome.trial, second)
    for rule, bug in _RULES:
        if rule == "semantics" and unchecked:
            continue  # where nothing is waited for at all, stronger semantics order calls by chance only
        again = run_trial(subject, with_rule_lifted(outcome.trial, rule)).error
        if not _same_pair(race, again):
            return Diagnosis(
                bug, second.rank, second.place, f"without the rule of {_spoken(rule)} nothing would be wrong"
            )
    if outcome.trial.calls > 1 and (unchecked or not race.facts["same_call_hint"]):
        alone = run_trial(subject, replace(outcome.trial, calls=1))
        if isinstance(alone.error, emulation.Race):
            return _race(subject, alone, alone.error)
        if _told_in_an_earlier_call(subject, outcome.trial, first, second):
            why = (
                "what is waited for before the second access was told in an earlier call than that of the first access"
            )
            return Diagnosis(BugClass.STALE_SIGNAL, second.rank, second.place, why)
        why = "the second access belongs to a later call than the first"
        return Diagnosis(BugClass.REUSE, second.rank, second.place, why)
    writers = [touch for touch in (first, second) if touch.kind is not Kind.LOAD]
    if len(writers) == 2:
        why = "two tasks write to one place in the same call"
        return Diagnosis(BugClass.WRONG_PLACE, second.rank, second.place, why)
    if outcome.trial.calls > 1:
        alone = run_trial(subject, replace(outcome.trial, calls=1))
        if isinstance(alone.error, emulation.Race):
            return _race(subject, alone, alone.error)
        if alone.error is None:
            why = "the first call is right; in a later one a wait passes by the signal of an earlier one"
            return Diagnosis(BugClass.STALE_SIGNAL, second.rank, second.place, why)
    reader = first if first.kind is Kind.LOAD else second
    return _missing_edge(subject, outcome.trial, writers[0], reader)


def _belongs_later(subject: Subject, trial: Trial, first: Touch, second: Touch) -> bool:
    """Whether the second access belongs to a later call than the first one does."""
    if trial.calls == 1 or trial.scenario not in (Scenario.CALLS, Scenario.WAITED):
        return False
    run, alone = CallCounts(), CallCounts()
    run_trial(subject, replace(trial, detect_races=False), observers=[run])
    run_trial(subject, replace(trial, calls=1, detect_races=False), observers=[alone])
    each = alone.a_call()
    calls = [run.call(touch.rank, touch.place, touch.number, each) for touch in (first, second)]
    return 0 < calls[0] < calls[1]


def _told_in_an_earlier_call(subject: Subject, trial: Trial, first: Touch, second: Touch) -> bool:
    """Whether the word of the first access' rank that the second task awaited last had been raised for a call before."""
    run, alone, log = CallCounts(), CallCounts(), SyncLog()
    run_trial(subject, replace(trial, detect_races=False), observers=[run, log])
    run_trial(subject, replace(trial, calls=1, detect_races=False), observers=[alone])
    each = alone.a_call()
    raised = {one.word for one in (*log.words, *log.at_once) if one.raises and one.rank == first.rank}
    waited = [one for one in log.awaited_before(second.task_number, second.number + 1) if one.word in raised]
    if not waited:
        return False
    read = run.call(first.rank, first.place, first.number, each)
    raiser = log.last_raise(waited[-1])
    if raiser is None:  # what host code had put there before the first call
        return read > 0
    return 0 < run.call(raiser.rank, raiser.place, raiser.number, each) < read


def _has_waited(subject: Subject, trial: Trial, touch: Touch) -> bool:
    """Whether the task of the access has looked at words that other ranks raise before, or does so by this access."""
    if touch.kind is Kind.ATOMIC:
        return True
    log = SyncLog()
    run_trial(subject, replace(trial, detect_races=False), observers=[log])
    awaited = {one.word for one in log.awaited_before(touch.task_number, touch.number + 1)}
    return any(one.word in awaited and one.raises and one.rank != touch.rank for one in log.words)


def _spoken(rule: str) -> str:
    return rule.replace("_", " ").replace("cta", "CTA").replace("async", "asynchronous")


def _same_pair(race: emulation.Race, other: Exception | None) -> bool:
    if not isinstance(other, emulation.Race):
        return False
    return _pair(race) == _pair(other)


def _pair(race: emulation.Race) -> list[tuple[object, ...]]:
    touches = (race.facts["first"], race.facts["second"])
    return [(t.rank, t.task, t.place, t.kind) for t in touches if isinstance(t, Touch)]


def _missing_edge(subject: Subject, trial: Trial, writer: Touch, reader: Touch) -> Diagnosis:
    """Nothing orders a write and a read of one call: which half of the signal is missing."""
    log = SyncLog()
    run_trial(subject, replace(trial, detect_races=False), observers=[log])
    waited = [one for one in log.awaited_before(reader.task_number, reader.number) if not log.filled(one)]
    told = log.told_of(writer.task_number, writer.number)
    where = (reader.rank, reader.place)
    if not told:
        return Diagnosis(BugClass.ORDERING, writer.rank, writer.place, "no signal is raised after the write")
    if not waited:
        return Diagnosis(BugClass.ORDERING, *where, "no signal is waited for before the read")
    raisers = [raiser for raiser in map(log.raiser, waited) if raiser is not None]
    if not raisers:
        last = waited[-1]
        why = f"the wait for {last.name} at {last.place} passes by a value that nobody raised in this run"
        return Diagnosis(BugClass.STALE_SIGNAL, last.rank, last.place, why)
    for access in reversed(waited):
        if access.word in told and told[access.word].number > access.number:
            raised = told[access.word]
            why = f"{access.name} is awaited at {access.place}, and is raised before the write as well as after it"
            return Diagnosis(BugClass.SIGNAL_TOO_EARLY, raised.rank, raised.place, why)
    for raiser in raisers:
        early = [told[word] for word in log.had_read(raiser) if word in told]
        if early:
            why = f"it is raised at {raiser.place} on the strength of {early[0].name}, to which the writer adds later"
            return Diagnosis(BugClass.SIGNAL_TOO_EARLY, raiser.rank, raiser.place, why)
    signal = next(iter(told.values()))
    why = (
        f"the write is told of by {signal.name}, raised at {signal.place}, in a word that the reader does not wait for"
    )
    return Diagnosis(BugClass.WAIT_TOO_LITTLE, *where, why)


# hangs


def _hang(subject: Subject, outcome: Outcome, hang: emulation.Deadlock) -> Diagnosis:
    tasks = hang.facts["tasks"]
    assert isinstance(tasks, tuple)
    trial = replace(outcome.trial, detect_races=False)
    loading = [task for task in tasks if "to be idle" in task.waits_for]
    if loading:
        why = f"{loading[0].name} waits for {loading[0].waits_for}"
        return Diagnosis(BugClass.LATE_SETUP, loading[0].rank, loading[0].place, why)
    starved = [task for task in tasks if "free SM" in task.waits_for]
    if starved and run_trial(replace(subject, num_sms=subject.num_sms * _MORE_SMS), trial).error is None:
        why = f"{starved[0].name} waits for {starved[0].waits_for}; with more SMs nothing hangs"
        return Diagnosis(BugClass.RESIDENCY, starved[0].rank, starved[0].place, why)
    scenario = _by_scenario(subject, trial)
    waiting = [task for task in tasks if task.kernel and task.waits_for] or list(tasks)
    stuck = waiting[0]
    if scenario is not None:
        return Diagnosis(scenario, stuck.rank, stuck.place, f"it hangs with {trial.scenario.value}, and not otherwise")
    equal = next(
        (task for task in waiting if _waits_for_equality(task.place) and "(value 0)" not in task.waits_for), None
    )
    if equal is None and _first_call_passes(subject, trial):
        why = "the first call ends; in a later one a signal is not what it was at the start"
        return Diagnosis(BugClass.STALE_SIGNAL, stuck.rank, stuck.place, why)
    equal = equal or next((task for task in waiting if _has_passed(task)), None)
    if equal is not None:
        why = f"the wait ends at one value only, and the word has another one: {equal.waits_for}"
        return Diagnosis(BugClass.EQUALITY, equal.rank, equal.place, why)
    return _never_raised(subject, trial, stuck, waiting)


def _has_passed(task: TaskState) -> bool:
    """Whether the task waits for one value only, and the word has gone on to a larger one."""
    return any(int(held) > int(wanted) for held, wanted in _EQUAL.findall(task.waits_for))


def _waits_for_equality(place: Place) -> bool:
    """Whether the line is a loop whose test compares by == or !=."""
    text = place.text
    if not text.startswith("while "):
        return False
    try:
        test = ast.parse(f"{text.rstrip(':')}: pass").body[0]
    except SyntaxError:
        return False
    compares = [node for node in ast.walk(test) if isinstance(node, ast.Compare)]
    return any(isinstance(op, ast.Eq | ast.NotEq) for node in compares for op in node.ops)


def _never_raised(subject: Subject, trial: Trial, stuck: TaskState, waiting: Iterable[TaskState]) -> Diagnosis:
    """The word is never raised: nobody would, someone raises another one, or who would waits in turn."""
    log, released = SyncLog(), SyncLog()
    alone = replace(trial, calls=1)  # a raise in a later call is none for this one
    if run_trial(subject, alone, observers=[log]).error is None:
        alone, log = trial, SyncLog()
        run_trial(subject, alone, observers=[log])
    run_trial(subject, replace(alone, force_waits=True), observers=[released])
    late = [access for access in released.words if access.raises and access.number > log.events]
    awaited = log.last_awaited({task.number for task in waiting})
    for access in late:
        if access.word in awaited:
            why = f"the word that {stuck.name} waits for would be raised at {access.place}, behind a wait of its own"
            return Diagnosis(BugClass.CIRCLE, stuck.rank, stuck.place, why)
    unread = log.raised_unread()
    names = {access.name for access in log.words if access.word in awaited}
    astray = next((access for access in unread if access.name in names), None)
    if astray is not None:
        why = f"a word of {astray.name} is raised at {astray.place} that nobody waits for, and another one is awaited"
        return Diagnosis(BugClass.WRONG_PLACE, astray.rank, astray.place, why)
    why = f"nobody raises what {stuck.name} waits for: {stuck.waits_for}"
    return Diagnosis(BugClass.ORDERING, stuck.rank, stuck.place, why)


# results


def _wrong(subject: Subject, outcome: Outcome, wrong: WrongResult) -> Diagnosis:
    trial = outcome.trial
    rank = wrong.facts["rank"]
    assert isinstance(rank, int)
    scenario = _by_scenario(subject, trial)
    if scenario is not None:
        return Diagnosis(scenario, rank, NOWHERE, f"it is wrong with {trial.scenario.value}, and not otherwise")
    if _first_call_passes(subject, trial):
        return Diagnosis(BugClass.STALE_SIGNAL, rank, NOWHERE, "the first call is right, a later one is not")
    why = "no race and no hang: a wrong rank, offset, region or operation"
    return Diagnosis(BugClass.WRONG_PLACE, rank, NOWHERE, why)
