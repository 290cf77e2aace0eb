"""Why two accesses are a race: the rules of the memory model that are broken, or what of a signal is missing.

A rule is named only if the race is gone without it. Where several are broken at once, no rule alone explains the race: then
it is the fewest rules that do together, each of which is needed. What no rule explains is told by what words did in the
run; what that does not show is left without a class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilelink.adversary.call_counts import CallCounts
from tilelink.adversary.diagnosis import Diagnosis, by_scenario
from tilelink.adversary.subject import Subject
from tilelink.adversary.sync_log import SyncLog, WordAccess
from tilelink.adversary.trials import Outcome, Scenario, Trial, run_trial, with_rules_lifted
from tilelink.emulator.errors import NarrowScope, Race
from tilelink.emulator.events import Kind
from tilelink.emulator.races import Touch
from tilelink.proof.bug_class import BugClass

_RULES = {  # in the order in which they are tried: the class, and what is broken
    "scopes": (BugClass.SCOPE, "a scope does not reach the other rank or program"),
    "cta_barriers": (
        BugClass.CTA_BARRIER,
        "no CTA barrier orders the threads of a program with the one that signals or waits",
    ),
    "async_completion": (BugClass.ASYNC_STORE, "a store is told of before it has completed"),
    "proxy_fences": (BugClass.ASYNC_STORE, "no proxy fence stands before an access through a descriptor"),
    "semantics": (BugClass.ORDERING, "a signal is not raised by a release, or not waited for by an acquire"),
}
_SEMANTICS = "semantics"


def narrow_scope(error: NarrowScope) -> Diagnosis:
    """Atomics that are none to each other."""
    narrow = error.narrow
    why = f"the atomics are not indivisible to each other: {narrow.scope.value} scope ends before {narrow.beyond}"
    return Diagnosis(BugClass.SCOPE, narrow.rank, narrow.place, why)


def race_cause(subject: Subject, outcome: Outcome, race: Race) -> Diagnosis:
    """The cause of `race`, which ended `outcome`. Runs the trial again, changed, up to twenty times."""
    trial, first, second = outcome.trial, race.first, race.second
    scenario = by_scenario(subject, trial)
    if scenario is not None:
        return Diagnosis(scenario[0], second.rank, second.place, scenario[1])
    # a stream may be a call ahead of the kernels by which the hint tells calls apart
    later = not race.same_call_hint or _belongs_later(subject, trial, first, second)
    unchecked = later and not _has_waited(subject, trial, second)
    # where nothing is waited for at all, stronger semantics order calls by chance only
    rules = [rule for rule in _RULES if rule != _SEMANTICS or not unchecked]
    lost = _reset_beside_a_raise(subject, trial, race)
    if lost is not None:
        return lost
    broken = _broken_rules(subject, trial, race, rules)
    if broken:
        return _of_rules(broken, second)
    if trial.calls > 1 and (unchecked or not race.same_call_hint):
        alone = run_trial(subject, replace(trial, calls=1))
        if isinstance(alone.error, Race):
            return race_cause(subject, alone, alone.error)
        if _told_in_an_earlier_call(subject, trial, first, second):
            why = (
                "what is waited for before the second access was told in an earlier call than that of the first access"
            )
            return Diagnosis(BugClass.STALE_SIGNAL, second.rank, second.place, why)
        why = "the second access belongs to a later call than the first"
        return Diagnosis(BugClass.REUSE, second.rank, second.place, why)
    writers = [touch for touch in (first, second) if touch.changed]
    if len(writers) == 2:
        return _two_writes(first, second)
    if trial.calls > 1:
        alone = run_trial(subject, replace(trial, calls=1))
        if isinstance(alone.error, Race):
            return race_cause(subject, alone, alone.error)
        if alone.error is None:
            why = "the first call is right; in a later one a wait passes by the signal of an earlier one"
            return Diagnosis(BugClass.STALE_SIGNAL, second.rank, second.place, why)
    reader = second if first.changed else first
    return _missing_edge(subject, trial, writers[0], reader)


# rules


def _broken_rules(subject: Subject, trial: Trial, race: Race, rules: Sequence[str]) -> tuple[str, ...]:
    """One of `rules` without which there is no race; else the fewest that must all be lifted; empty if even all are too few."""

    def is_gone(lifted: Sequence[str]) -> bool:
        again = run_trial(subject, with_rules_lifted(trial, lifted)).error
        return not (isinstance(again, Race) and _pair(race) == _pair(again))

    for rule in rules:
        if is_gone((rule,)):
            return (rule,)
    if not is_gone(rules):
        return ()
    needed = list(rules)
    for rule in rules:
        fewer = [one for one in needed if one != rule]
        if len(fewer) > 1 and is_gone(fewer):
            needed = fewer
    return tuple(needed)


def _of_rules(broken: Sequence[str], second: Touch) -> Diagnosis:
    """The last rule is that of the signal itself, which comes first among several."""
    ordered = sorted(broken, key=lambda rule: rule != _SEMANTICS)
    classes = tuple(dict.fromkeys(_RULES[rule][0] for rule in ordered))
    facts = [_RULES[rule][1] for rule in ordered]
    if len(facts) == 1:
        why = f"{facts[0]}; the signals would order the two accesses"
    else:
        why = f"{len(facts)} things are wrong at once, and to mend some of them is not enough: {'; '.join(facts)}"
    return Diagnosis(classes[0], second.rank, second.place, why, also=classes[1:])


def _pair(race: Race) -> list[tuple[object, ...]]:
    return [(touch.rank, touch.task, touch.place, touch.kind) for touch in (race.first, race.second)]


# calls


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
    log = _log(subject, trial)
    awaited = {one.word for one in log.awaited_before(touch.task_number, touch.number + 1)}
    return any(one.word in awaited and one.raises and one.rank != touch.rank for one in log.words)


# signals


def _reset_beside_a_raise(subject: Subject, trial: Trial, race: Race) -> Diagnosis | None:
    """A plain store and an atomic change a word that is waited for, and no strength of the signals would order them."""
    first, second = race.first, race.second
    if not (first.changed and second.changed):
        return None
    log = _log(subject, trial)
    word = next((one.word for one in log.words if one.number in (first.number, second.number)), None)
    if word is None or not any(one.word == word and one.reads and not one.raises for one in log.words):
        return None
    ordered = with_rules_lifted(trial, (*_RULES, "plain_signals"))
    again = run_trial(subject, ordered).error
    if not (isinstance(again, Race) and _pair(again) == _pair(race)):
        return None
    reset = second if first.kind is Kind.ATOMIC else first
    why = "a word that is waited for is raised, and is set elsewhere; nothing orders the two, so a signal may be lost"
    return Diagnosis(BugClass.STALE_SIGNAL, reset.rank, reset.place, why)


def _two_writes(first: Touch, second: Touch) -> Diagnosis:
    """Of one call. One line that writes twice has a wrong place; two lines lack an order."""
    if first.place.line == second.place.line:
        why = "two tasks write to one place in the same call"
        return Diagnosis(BugClass.WRONG_PLACE, second.rank, second.place, why)
    why = f"nothing orders two writes to one place in the same call, at {first.place} and at {second.place}"
    return Diagnosis(BugClass.ORDERING, second.rank, second.place, why)


def _missing_edge(subject: Subject, trial: Trial, writer: Touch, reader: Touch) -> Diagnosis:
    """Nothing orders a write and a read of one call: which half of the signal is missing."""
    log = _log(subject, trial)
    waited = _last_polls(log, reader)
    told = log.told_of(writer.task_number, writer.number)
    where = (reader.rank, reader.place)
    if not told:
        return Diagnosis(BugClass.ORDERING, writer.rank, writer.place, "no signal is raised after the write")
    if not waited:
        return Diagnosis(BugClass.ORDERING, *where, "no signal is waited for before the read")
    for access in reversed(waited):
        if access.word in told and told[access.word].number > access.number:
            return _passed_early(log, access, told[access.word])
    for raiser in [raiser for raiser in map(log.raiser, waited) if raiser is not None]:
        early = [told[word] for word in log.had_read(raiser) if word in told]
        if early:
            why = f"it is raised at {raiser.place} on the strength of {early[0].name}, to which the writer adds later"
            return Diagnosis(BugClass.SIGNAL_TOO_EARLY, raiser.rank, raiser.place, why)
    if any(access.word in told for access in waited):
        why = "the reader waits for a signal that tells of the write, and yet nothing orders the two"
        return Diagnosis(None, *where, why)
    signal = next(iter(told.values()))
    why = (
        f"the write is told of by {signal.name}, raised at {signal.place}, in a word that the reader does not wait for"
    )
    return Diagnosis(BugClass.WAIT_TOO_LITTLE, *where, why)


def _passed_early(log: SyncLog, wait: WordAccess, told: WordAccess) -> Diagnosis:
    """`wait` was over before the word was raised by `told`, which knows of the write."""
    raiser = log.last_raise(wait)
    if raiser is None:
        why = f"the wait for {wait.name} at {wait.place} passes by a value that nobody raised in this run"
        return Diagnosis(BugClass.STALE_SIGNAL, wait.rank, wait.place, why)
    why = f"{wait.name} is awaited at {wait.place}, and is raised before the write as well as after it"
    return Diagnosis(BugClass.SIGNAL_TOO_EARLY, told.rank, told.place, why)


def _last_polls(log: SyncLog, reader: Touch) -> list[WordAccess]:
    """How the waits of the reader's task ended before it read: the last look at each word, without what host code had set."""
    polls = [one for one in log.awaited_before(reader.task_number, reader.number) if not log.filled(one)]
    last = {one.word: one for one in polls}
    return sorted(last.values(), key=lambda access: access.number)


def _log(subject: Subject, trial: Trial) -> SyncLog:
    log = SyncLog()
    run_trial(subject, replace(trial, detect_races=False), observers=[log])
    return log
