"""Survivors that are no gap: mutants that provably do what the original does, by a table of rules with their reasons.

    prove = prove_schedule(schedule)
    prove(mutant)      # "order of tiles", or empty: nothing is known

Both kinds of prover are picklable, for `tilelink.mutation.runner.run`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tilelink.ir.schedule import Schedule
from tilelink.mutation import schedule_rules, source_rules
from tilelink.mutation.mutant import ScheduleMutant, SourceMutant
from tilelink.mutation.schedule_pair import compared
from tilelink.mutation.source_pair import SourcePair
from tilelink.mutation.text import SourceText


@dataclass(frozen=True, slots=True)
class ProveSchedule:
    """Name of the first rule by which a mutant of `original` is equivalent to it, or empty; `same schedule` if it is one."""

    original: Schedule

    def __call__(self, mutant: ScheduleMutant) -> str:
        if mutant.schedule == self.original:
            return "same schedule"
        pair = compared(self.original, mutant.schedule)
        return next((_name(holds.__name__) for holds, _ in schedule_rules.RULES if holds(pair)), "")


@dataclass(frozen=True, slots=True)
class ProveSource:
    """Name of the first rule by which a mutant of `original`, emitted from `schedule`, is equivalent to it, or empty."""

    original: str
    schedule: Schedule

    def __call__(self, mutant: SourceMutant) -> str:
        pair = SourcePair(_parsed(self.original), self.schedule, mutant)
        return next((_name(holds.__name__) for holds, _ in source_rules.RULES if holds(pair)), "")


def prove_schedule(original: Schedule) -> ProveSchedule:
    return ProveSchedule(original)


def prove_source(original: str, schedule: Schedule) -> ProveSource:
    """Raises NoHostClass at the first mutant if `original` cannot be mutated."""
    return ProveSource(original, schedule)


def reasons() -> dict[str, str]:
    """Why each rule holds, one sentence each; those of sources are called `source: ...`."""
    found = {_name(holds.__name__): reason for holds, reason in schedule_rules.RULES}
    return found | {f"source: {_name(holds.__name__)}": reason for holds, reason in source_rules.RULES}


@lru_cache(maxsize=2)
def _parsed(source: str) -> SourceText:
    return SourceText(source)


def _name(function: str) -> str:
    return function.replace("_", " ")
