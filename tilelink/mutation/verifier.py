"""Judges of the whole verifier: the proof of a schedule, then adversarial runs of its source until one fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import lowering
from tilelink.adversary.host_code import HostCodeFailed
from tilelink.adversary.subject import Subject, of_module, of_schedule
from tilelink.adversary.trials import Scenario, Trial, WrongResult, run_trial
from tilelink.errors import NotAnOperatorFile
from tilelink.ir.schedule import Schedule
from tilelink.mutation.equivalent import ProveSource
from tilelink.mutation.fingerprint import fingerprint
from tilelink.mutation.judges import judge_schedule_by_proof
from tilelink.mutation.mutant import ScheduleMutant, SourceMutant, Verdict
from tilelink.runtime.load import load_source


def quick_trials(num_ranks: int) -> Iterator[Trial]:
    """A dozen trials in the order in which they most often refute."""
    yield Trial(Scenario.REFUSALS, "oldest")
    for policy in ("producers-last", "consumers-first", "random:1", "copies-late"):
        yield Trial(Scenario.CALLS, policy)
    yield Trial(Scenario.CALLS, f"starve-rank:{num_ranks - 1}", calls=5)
    yield Trial(Scenario.CALLS, "producers-last:1", any_residency=True)
    yield Trial(Scenario.REPLAYS, "producers-last")
    yield Trial(Scenario.STREAMS, "consumers-first")
    yield Trial(Scenario.OPERATORS, "random:2")
    yield Trial(Scenario.CALLS, "starve-rank:0", calls=5)
    for policy in ("newest", "pct:3:3"):
        yield Trial(Scenario.CALLS, policy, any_residency=policy == "pct:3:3")


@dataclass(frozen=True, slots=True)
class JudgeSchedule:
    """Killed by the class of bug of the proof's first finding, by `lowering`, or by what a run of the source shows."""

    def __call__(self, mutant: ScheduleMutant) -> Verdict:
        proof = judge_schedule_by_proof(mutant)
        if proof.killed:
            return Verdict(True, "proof", f"{proof.by}: {proof.detail}")
        try:
            source = lowering.emit(mutant.schedule)
            subject = of_schedule(mutant.schedule, source)
        except Exception as error:
            return Verdict(True, "lowering", f"{type(error).__name__}: {error}")
        return _run(subject)


@dataclass(frozen=True, slots=True)
class JudgeSource:
    """Killed by what a run of the mutated text of `schedule` shows; results are compared with those of its spec."""

    schedule: Schedule

    def __call__(self, mutant: SourceMutant) -> Verdict:
        try:
            module = load_source(mutant.source, self.schedule.name)
            host = of_module(module, self.schedule.name)
        except NotAnOperatorFile as error:
            return Verdict(True, "host", str(error))
        except Exception as error:
            return Verdict(True, "host", f"{type(error).__name__}: {error}")
        return _run(of_spec(host, self.schedule))


def of_spec(host: Subject, schedule: Schedule) -> Subject:
    """The host class of a file with the inputs, the reference and the machine of a schedule."""
    return of_schedule(schedule, "", build=host.build)


def _run(subject: Subject) -> Verdict:
    for trial in quick_trials(subject.num_ranks):
        error = run_trial(subject, trial).error
        if error is None:
            continue
        by = type(error).__name__
        if isinstance(error, WrongResult):
            by = "result"
        elif isinstance(error, HostCodeFailed):
            by = "host"
        return Verdict(True, by, f"{trial.text}: {(str(error).splitlines() or [''])[0]}")
    return Verdict(False, "", "")


@dataclass(frozen=True, slots=True)
class ProveSourceOrRuns:
    """The rules of `equivalent.ProveSource`, and one that looks at runs: the mutant makes the same accesses."""

    original: str
    schedule: Schedule

    def __call__(self, mutant: SourceMutant) -> str:
        rule = ProveSource(self.original, self.schedule)(mutant)
        if rule:
            return rule
        try:
            host = of_module(load_source(mutant.source, self.schedule.name), self.schedule.name)
        except Exception:
            return ""
        changed = fingerprint(of_spec(host, self.schedule))
        return SAME_ACCESSES if changed and changed == _original(self.original, self.schedule) else ""


SAME_ACCESSES = "same accesses"


@cache
def _original(source: str, schedule: Schedule) -> str:
    return fingerprint(of_schedule(schedule, source))
