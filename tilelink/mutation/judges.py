"""Judges: the static proof, or a run of the emitted text that fails or computes something else.

A run finds what shows in one interleaving of one seed. All judges are picklable.
"""

from __future__ import annotations

from dataclasses import dataclass

import lowering
from tilelink.emulator.errors import EmulationError
from tilelink.ir.schedule import Schedule
from tilelink.mutation.mutant import ScheduleMutant, SourceMutant, Verdict
from tilelink.proof.verify import verify
from tilelink.runtime.run import run_emulated


def judge_schedule_by_proof(mutant: ScheduleMutant) -> Verdict:
    """Verify the mutated schedule; killed by the class of bug of the first finding."""
    proof = verify(mutant.schedule)
    if proof.proved:
        return Verdict(False, "", "")
    first = proof.findings[0]
    return Verdict(True, str(first.bug), f"{first.where}: {first.fact}")


def judge_schedule_by_run(mutant: ScheduleMutant) -> Verdict:
    """Emit the mutated schedule and run that for three calls."""
    try:
        source = lowering.emit(mutant.schedule)
    except Exception as error:
        return Verdict(True, "lowering", _first_line(error))
    return _run(mutant.schedule, source)


@dataclass(frozen=True, slots=True)
class JudgeSourceByRun:
    """Run the mutated source of `schedule` for three calls."""

    schedule: Schedule

    def __call__(self, mutant: SourceMutant) -> Verdict:
        return _run(self.schedule, mutant.source)


def judge_source_by_run(schedule: Schedule) -> JudgeSourceByRun:
    """The judge of sources that were emitted from `schedule`, which has the inputs and the reference."""
    return JudgeSourceByRun(schedule)


def _run(schedule: Schedule, source: str) -> Verdict:
    """Killed by the class of error that the emulator raises, by `host` if the host code itself fails, or by `result`."""
    try:
        result = run_emulated(schedule, source, calls=3, locate=False)
    except EmulationError as error:
        return Verdict(True, type(error).__name__, _first_line(error))
    except Exception as error:
        return Verdict(True, "host", f"{type(error).__name__}: {_first_line(error)}")
    if result.equal:
        return Verdict(False, "", "")
    return Verdict(True, "result", result.differences[0].line())


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]
