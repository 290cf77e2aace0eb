"""Mutate the steps of a schedule and the source emitted for it, and ask the verifier about each mutant."""

from __future__ import annotations

import json
from dataclasses import dataclass

import lowering
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.schedule import Schedule
from tilelink.mutation import nodes, sources
from tilelink.mutation.judges import SAME_MEANING, JudgeSteps
from tilelink.mutation.report import Report
from tilelink.mutation.runner import run
from tilelink.mutation.verifier import SAME_ACCESSES, JudgeSource
from tilelink.schedule.instance import instantiated

REASONS = {
    SAME_MEANING: "the proof holds for it as well, so that the order of programs makes no difference, and its steps compute "
    "what those of the original compute.",
    SAME_ACCESSES: "every task writes and raises the same in the same order as in the original's runs and waits for as much, "
    "so the changed expression, which each run evaluates for all ranks, programs and chunks, orders the same at this size; "
    "the results are right, and there is no race.",
}


@dataclass(frozen=True, slots=True)
class Campaign:
    """What became of the mutants of steps of schedules, and of those of emitted sources."""

    schedules: Report
    sources: Report

    @property
    def score(self) -> float:
        """Share killed of the mutants that are decided and not equivalent, of both kinds together."""
        return merged(self.schedules, self.sources).score

    def text(self) -> str:
        return f"Steps\n{self.schedules.text()}\nEmitted sources\n{self.sources.text()}"

    def markdown(self) -> str:
        """Two tables, and the reasons by which survivors are equivalent."""
        why = [f"- *{name}*: {reason}" for name, reason in REASONS.items()]
        parts = ["## Mutants of steps", self.schedules.markdown(), "## Mutants of emitted sources"]
        parts += [self.sources.markdown(), "## Why survivors are equivalent", "\n".join(why)]
        return "\n\n".join(parts) + "\n"

    def to_json(self) -> str:
        """`schedules` and `sources`, each as in `Report.to_json`."""
        parts = {"schedules": json.loads(self.schedules.to_json()), "sources": json.loads(self.sources.to_json())}
        return json.dumps(parts, indent=1) + "\n"


def merged(*reports: Report) -> Report:
    """All outcomes in one report."""
    outcomes = tuple(outcome for report in reports for outcome in report.outcomes)
    return Report(outcomes, sum(report.total for report in reports))


def campaign(schedule: Schedule, sample: int, seed: int = 0, workers: int = 2) -> Campaign:
    """Judge `sample` mutants (0: all) of the steps of `schedule`, and as many of its source. `schedule` should be a small
    form: a mutant of a source that survives costs a dozen runs."""
    source, steps = lowering.emit(schedule), instantiated(elaborated(schedule))
    of_steps = run(nodes.mutants(steps), JudgeSteps(steps), sample, seed, workers)
    of_sources = run(sources.mutants(source), JudgeSource(source, schedule), sample, seed, workers)
    return Campaign(of_steps, of_sources)
