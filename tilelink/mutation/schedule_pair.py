"""A schedule, its mutant, and what they differ in: what rules of equivalence judge."""

from __future__ import annotations

from dataclasses import dataclass

from tilelink.ir.schedule import Schedule
from tilelink.mutation.differences import Difference, differences


@dataclass(frozen=True, slots=True)
class Pair:
    """Original and mutant, and what they differ in."""

    before: Schedule
    after: Schedule
    found: tuple[Difference, ...]

    @property
    def only(self) -> Difference | None:
        return self.found[0] if len(self.found) == 1 else None


def compared(before: Schedule, after: Schedule) -> Pair:
    return Pair(before, after, differences(before, after))
