"""Predicted times of choices, without a schedule: each set of options is looked at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tilelink.planner.bounds import least_us
from tilelink.planner.decisions import Chosen, Option, Slot, choices_of, why_not_together
from tilelink.planner.layout import Illegal, Problem
from tilelink.planner.predicted import time_us
from tilelink.planner.structure import Structure


@dataclass(frozen=True, slots=True)
class Candidate:
    """Options of a structure. `us`: their predicted time; or, unless `exact`, what they take at least if they are legal."""

    us: float
    exact: bool
    structure: Structure
    options: Mapping[Slot, Option]

    @property
    def problem(self) -> Problem:
        return Problem(self.structure, choices_of(self.structure, self.options))


@dataclass(slots=True)
class Timing:
    """Times of options of one structure; `known`: of all that was asked for."""

    structure: Structure
    known: dict[tuple[Option, ...], Candidate | str] = field(default_factory=dict)

    def us(self, chosen: Chosen, limit: float = math.inf) -> float:
        """The predicted time, or any number that is no less than `limit` if that is not; infinite if they are illegal."""
        key = tuple(chosen.values())
        found = self.known.get(key)
        if found is None:
            found = why_not_together(self.structure, chosen)
            if not found:
                found = Candidate(least_us(self.structure, chosen), False, self.structure, chosen)
            self.known[key] = found
        if isinstance(found, str):
            return math.inf
        if not found.exact and found.us < limit:
            found = self.known[key] = self._timed(chosen, limit)
        return found.us if isinstance(found, Candidate) else math.inf

    def why_not(self, chosen: Chosen) -> str:
        """Why options that have been asked for are illegal, or nothing."""
        found = self.known[tuple(chosen.values())]
        return found if isinstance(found, str) else ""

    def _timed(self, chosen: Chosen, limit: float) -> Candidate | str:
        try:
            us, exact = time_us(Problem(self.structure, choices_of(self.structure, chosen)), limit)
        except Illegal as illegal:
            return str(illegal)
        return Candidate(us, exact, self.structure, chosen)

    def candidates(self) -> list[Candidate]:
        """All options that were asked for and may be legal, in the order of asking."""
        return [found for found in self.known.values() if isinstance(found, Candidate)]
