"""The judge of emitted text: adversarial runs until one of them fails. A survivor that orders the same is equivalent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tilelink.adversary.host_code import HostCodeFailed
from tilelink.adversary.subject import Subject, of_module, of_schedule
from tilelink.adversary.trials import Scenario, Trial, WrongResult, run_trial
from tilelink.ir.schedule import Schedule
from tilelink.mutation.fingerprint import Run, does_the_same, runs
from tilelink.mutation.mutant import SourceMutant, Verdict
from tilelink.runtime.load import load_source

SAME_ACCESSES = "writes and orders the same"


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
class JudgeSource:
    """Of mutants of `original`, the text of `schedule`; results are compared with those of its spec."""

    original: str
    schedule: Schedule

    def __call__(self, mutant: SourceMutant) -> Verdict:
        try:
            module = load_source(mutant.source, self.schedule.name)
            host = of_module(module, self.schedule.name)
        except Exception as error:  # whatever a mutated text does when it is loaded
            return Verdict(True, "host", f"{type(error).__name__}: {error}")
        subject = of_schedule(
            self.schedule, self.original, build=host.build
        )  # with the inputs and the reference of the spec
        killed = refuted(subject)
        if killed is None and does_the_same(_original(self.original, self.schedule), runs(subject)):
            return Verdict(False, SAME_ACCESSES, "")
        return killed or Verdict(False, "", "")


def refuted(subject: Subject) -> Verdict | None:
    """What the first run shows that fails."""
    for trial in quick_trials(subject.num_ranks):
        error = run_trial(subject, trial).error
        if error is None:
            continue
        names = {WrongResult: "result", HostCodeFailed: "host"}
        by = names.get(type(error), type(error).__name__)
        return Verdict(True, by, f"{trial.text}: {(str(error).splitlines() or [''])[0]}")
    return None


@cache
def _original(source: str, schedule: Schedule) -> tuple[Run, ...]:
    return runs(of_schedule(schedule, source))
