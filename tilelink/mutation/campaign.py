"""Mutate a schedule and the source emitted for it, and ask the whole verifier about each mutant."""

from __future__ import annotations

import json
from dataclasses import dataclass

import lowering
from tilelink.ir.schedule import Schedule
from tilelink.mutation import schedules, sources
from tilelink.mutation.equivalent import prove_schedule, reasons
from tilelink.mutation.report import Report
from tilelink.mutation.runner import run
from tilelink.mutation.verifier import SAME_ACCESSES, JudgeSchedule, JudgeSource, ProveSourceOrRuns

_SAME = (
    "every task makes the same accesses in the same order as in the original's runs under the same policies, so the "
    "changed expression, which each run evaluates for all ranks, programs and chunks, has the same values at this size."
)


@dataclass(frozen=True, slots=True)
class Campaign:
    """What became of the mutants of schedules, and of those of emitted sources."""

    schedules: Report
    sources: Report

    @property
    def score(self) -> float:
        """Share killed of the mutants that are decided and not equivalent, of both kinds together."""
        return merged(self.schedules, self.sources).score

    def text(self) -> str:
        return f"Schedules\n{self.schedules.text()}\nEmitted sources\n{self.sources.text()}"

    def markdown(self) -> str:
        """Two tables, and the reasons by which survivors are equivalent."""
        why = [f"- *{name}*: {reason}" for name, reason in reasons().items() if name in self._used()]
        if any(outcome.claimed == SAME_ACCESSES for outcome in self.sources.outcomes):
            why.append(f"- *source: {SAME_ACCESSES}*: {_SAME}")
        parts = ["## Mutants of schedules", self.schedules.markdown(), "## Mutants of emitted sources"]
        parts += [self.sources.markdown(), "## Why survivors are equivalent", "\n".join(why)]
        return "\n\n".join(parts) + "\n"

    def _used(self) -> set[str]:
        found = {outcome.claimed for outcome in self.schedules.outcomes}
        return found | {f"source: {outcome.claimed}" for outcome in self.sources.outcomes}

    def to_json(self) -> str:
        """`schedules` and `sources`, each as in `Report.to_json`."""
        parts = {"schedules": json.loads(self.schedules.to_json()), "sources": json.loads(self.sources.to_json())}
        return json.dumps(parts, indent=1) + "\n"


def merged(*reports: Report) -> Report:
    """All outcomes in one report."""
    outcomes = tuple(outcome for report in reports for outcome in report.outcomes)
    return Report(outcomes, sum(report.total for report in reports))


def campaign(schedule: Schedule, sample: int, seed: int = 0, workers: int = 2) -> Campaign:
    """Judge `sample` mutants (0: all) of `schedule`, and as many of its source. `schedule` should be a small form:
    a mutant that survives costs a dozen runs."""
    source = lowering.emit(schedule)
    of_schedules = run(
        schedules.mutants(schedule), JudgeSchedule(), sample, seed, workers, prove=prove_schedule(schedule)
    )
    of_sources = run(
        sources.mutants(source), JudgeSource(schedule), sample, seed, workers, prove=ProveSourceOrRuns(source, schedule)
    )
    return Campaign(of_schedules, of_sources)
