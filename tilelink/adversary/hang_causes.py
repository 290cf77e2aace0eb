"""Why a run hangs: which wait is the root of it, and what has become of the word that it waits for.

A wait is *the root* if it would not end although all others did: runs that let waits pass tell. What others wait for behind
it is not to blame. Of the word of a root the run knows the history: a value that it had before and that would have ended
the wait, which a run shows where it gets that value back, was overwritten; a word that never had one was not raised.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tilelink.adversary.diagnosis import Diagnosis, by_scenario, first_call_passes
from tilelink.adversary.subject import Subject
from tilelink.adversary.sync_log import Progress, SyncLog, Word, WordAccess
from tilelink.adversary.trials import Outcome, Trial, run_trial
from tilelink.emulator.errors import Deadlock
from tilelink.emulator.place import Place
from tilelink.emulator.report import TaskState
from tilelink.proof.bug_class import BugClass

_MORE_SMS = 64
_MOST_GROUPS = 8  # of waits that are tried as the root
_MOST_VALUES = 4  # of a word, the last ones, that are given back to it
_EQUAL = re.compile(r"\(value (-?\d+)\) == (-?\d+)")  # a wait of the emulator for one value


@dataclass(frozen=True)
class _Hang:
    """A run that hangs, without its races, and one that goes on by letting waits pass."""

    trial: Trial
    tasks: tuple[TaskState, ...]
    log: SyncLog
    passed: SyncLog

    def words(self, task: TaskState) -> set[Word]:
        """The words that `task` waits for."""
        found = (self.log.word_at(start) for start, _ in task.ranges)
        return {word for word in found if word is not None}


def hang_cause(subject: Subject, outcome: Outcome, hang: Deadlock) -> Diagnosis:
    """The cause of `hang`, which ended `outcome`. Runs the trial again, changed, up to twenty times."""
    tasks, trial = _states(hang), replace(outcome.trial, detect_races=False)
    loading = [task for task in tasks if "to be idle" in task.waits_for]
    if loading:
        loaded = run_trial(subject, replace(trial, lazy_loading=False))
        if isinstance(loaded.error, Deadlock):  # the program that keeps the GPU busy waits for something else
            return hang_cause(subject, loaded, loaded.error)
        why = f"{loading[0].name} waits for {loading[0].waits_for}"
        return Diagnosis(BugClass.LATE_SETUP, loading[0].rank, loading[0].place, why)
    starved = [task for task in tasks if "free SM" in task.waits_for]
    if starved and run_trial(replace(subject, num_sms=subject.num_sms * _MORE_SMS), trial).error is None:
        why = f"{starved[0].name} waits for {starved[0].waits_for}; with more SMs nothing hangs"
        return Diagnosis(BugClass.RESIDENCY, starved[0].rank, starved[0].place, why)
    scenario = by_scenario(subject, trial)
    if scenario is not None:
        stuck = _stuck(tasks)[0]
        return Diagnosis(scenario[0], stuck.rank, stuck.place, scenario[1])
    shown = _shown(subject, trial, tasks)
    roots = _roots(subject, shown)
    for task in roots:
        found = _by_itself(subject, shown, task) or _overwritten(subject, shown, task)
        if found is not None:
            return found
    return _not_raised(subject, trial, shown, roots)


def _states(hang: Deadlock) -> tuple[TaskState, ...]:
    tasks = hang.facts["tasks"]
    assert isinstance(tasks, tuple)
    return tasks


def _stuck(tasks: Iterable[TaskState]) -> list[TaskState]:
    """The programs that wait, or whoever does if none is."""
    waiting = [task for task in tasks if task.waits_for]
    return [task for task in waiting if task.kernel] or waiting


def _shown(subject: Subject, trial: Trial, tasks: tuple[TaskState, ...]) -> _Hang:
    """The hang in one call if that is enough: what later calls raise tells nothing of this one."""
    log, passed = SyncLog(), SyncLog()
    alone = replace(trial, calls=1)
    hung = run_trial(subject, alone, observers=[log]).error
    if not isinstance(hung, Deadlock):
        alone, log = trial, SyncLog()
        hung = run_trial(subject, alone, observers=[log]).error
    run_trial(subject, replace(alone, excused=True), observers=[passed])
    return _Hang(alone, _states(hung) if isinstance(hung, Deadlock) else tasks, log, passed)


def _roots(subject: Subject, hang: _Hang) -> list[TaskState]:
    """One task of each group of waits that do not end although all others do; empty if they wait in a circle."""
    groups: dict[tuple[tuple[int, int], ...], list[TaskState]] = {}
    for task in hang.tasks:
        if task.waits_for and task.ranges:
            groups.setdefault(task.ranges, []).append(task)
    late = {one.word for one in hang.passed.words if one.raises and one.number > hang.log.events}
    likely = sorted(groups.values(), key=lambda group: not late.isdisjoint(hang.words(group[0])))
    return [group[0] for group in likely[:_MOST_GROUPS] if _is_root(subject, hang, group)]


def _is_root(subject: Subject, hang: _Hang, group: Sequence[TaskState]) -> bool:
    spared = frozenset(task.number for task in group)
    return not _goes_on(subject, hang, group[0], replace(hang.trial, excused=True, spared=spared))


def _goes_on(subject: Subject, hang: _Hang, task: TaskState, trial: Trial) -> bool:
    """Whether the wait of `task` ends in `trial`, which is that of the hang up to where it hangs."""
    progress = Progress(task, hang.log.events)
    run_trial(subject, trial, observers=[progress])
    return progress.made


# a value that was there


def _overwritten(subject: Subject, hang: _Hang, task: TaskState) -> Diagnosis | None:
    """A value that would have ended the wait of `task`, and that something has changed before it was seen."""
    for word in sorted(hang.words(task)):
        changes = hang.log.history(word)
        last = changes[-1].value if changes else 0
        tried = 0
        for put, change in reversed(list(pairwise(changes))):
            if put.value in (change.value, last) or tried == _MOST_VALUES:
                continue
            tried += 1
            if hang.log.seen(word, task.place, put.number, change.number) or not _ends(subject, hang, task, put):
                continue
            return _by_change(task, put, change)
    return None


def _by_change(task: TaskState, put: WordAccess, change: WordAccess) -> Diagnosis:
    what = f"{put.name} is raised to {put.value} at {put.place}, which would end the wait of {task.name}"
    counts = not _is_blind(change)
    if counts and change.value > put.value:
        why = f"{what}; it goes on to {change.value} before that is seen, and the wait ends at one value only"
        return Diagnosis(BugClass.EQUALITY, task.rank, task.place, why)
    if counts:
        why = f"{what}; it is taken at {change.place} by somebody else"
        return Diagnosis(BugClass.SHARED_SIGNALS, change.rank, change.place, why)
    if change.rank != put.rank and change.rank != change.word[1]:
        why = f"{what}; at {change.place} rank {change.rank} overwrites it with a signal of its own"
        return Diagnosis(BugClass.SLOTS, change.rank, change.place, why)
    why = f"{what}; at {change.place} it is set to {change.value} before that is seen"
    return Diagnosis(BugClass.STALE_SIGNAL, change.rank, change.place, why)


def _is_blind(change: WordAccess) -> bool:
    """Whether it overwrites whatever the word holds."""
    return not change.reads or "xchg" in change.place.text


def _by_itself(subject: Subject, hang: _Hang, task: TaskState) -> Diagnosis | None:
    """A word that `task` itself has changed, and that would end its wait if it had not."""
    for word in sorted(hang.words(task)):
        changes = hang.log.history(word)
        if not changes or changes[-1].task != task.number or _is_blind(changes[-1]):
            continue
        own, before = changes[-1], changes[-2].value if len(changes) > 1 else 0
        if before != own.value and _ends(subject, hang, task, replace(own, value=before)):
            why = f"{task.name} waits for {own.name} to change, which it has set to {own.value} itself, at {own.place}"
            return Diagnosis(BugClass.CIRCLE, task.rank, task.place, why)
    return None


def _ends(subject: Subject, hang: _Hang, task: TaskState, put: WordAccess) -> bool:
    """Whether the wait of `task` ends if the word gets the value back that `put` gave it."""
    restored = (*put.word, put.num_bytes, put.value)
    return _goes_on(subject, hang, task, replace(hang.trial, restored=restored))


# no such value


def _not_raised(subject: Subject, trial: Trial, hang: _Hang, roots: list[TaskState]) -> Diagnosis:
    waiting = roots or _stuck(hang.tasks)
    stuck = waiting[0]
    equal = next(
        (task for task in waiting if _waits_for_equality(task.place) and "(value 0)" not in task.waits_for), None
    )
    if equal is None and first_call_passes(subject, trial):
        why = "the first call ends; in a later one a signal is not what it was at the start"
        return Diagnosis(BugClass.STALE_SIGNAL, stuck.rank, stuck.place, why)
    equal = equal or next((task for task in waiting if _has_passed(task)), None)
    if equal is not None:
        why = f"the wait ends at one value only, and the word has another one: {equal.waits_for}"
        return Diagnosis(BugClass.EQUALITY, equal.rank, equal.place, why)
    late = [one for one in hang.passed.words if one.raises and one.number > hang.log.events]
    words = {word for task in waiting for word in hang.words(task)}
    if not roots:
        behind = next((one for one in late if one.word in words), None)
        if behind is not None:
            why = f"the word that {stuck.name} waits for would be raised at {behind.place}, behind a wait of its own"
            return Diagnosis(BugClass.CIRCLE, stuck.rank, stuck.place, why)
    names = {name for name, _, _ in words}
    astray = next((one for one in hang.passed.raised_unread() if one.name in names), None)
    if astray is not None:
        why = f"a word of {astray.name} is raised at {astray.place} that nobody waits for, and another one is awaited"
        return Diagnosis(BugClass.WRONG_PLACE, astray.rank, astray.place, why)
    why = f"nobody raises what {stuck.name} waits for: {stuck.waits_for}"
    return Diagnosis(BugClass.ORDERING, stuck.rank, stuck.place, why)


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
