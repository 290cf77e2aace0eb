"""The proof of a planned schedule, as steps."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tilelink.elaborate.schedule import elaborated
from tilelink.ir.schedule import Schedule
from tilelink.proof.findings import Finding
from tilelink.proof.happens_before.check import Outcome, checked


@dataclass(frozen=True, slots=True)
class OrderProof:
    """What was found of the steps of a schedule, in `seconds`."""

    outcome: Outcome
    seconds: float

    @property
    def proved(self) -> bool:
        return self.outcome.proved

    @property
    def finding(self) -> Finding | None:
        return self.outcome.refutation.finding if self.outcome.refutation is not None else None

    def lines(self) -> list[str]:
        if self.finding is not None:
            return ["refuted, as steps:", *str(self.finding).splitlines()]
        return [f"as steps {self.outcome}; {self.seconds * 1e3:.0f} ms"]

    def to_json(self) -> dict[str, object]:
        """`events`, `calls` and `ranks` that stand for all, and what `call_period` and `rank_period` say of them; `finding`."""
        found = self.finding
        return {
            "ranks": self.outcome.ranks,
            "rank_period": self.outcome.rank_period,
            "calls": self.outcome.calls,
            "call_period": self.outcome.call_period,
            "events": self.outcome.events,
            "seconds": self.seconds,
            "finding": found
            and {"class": found.bug.number, "bug": found.bug.title, "where": found.where, "fact": found.fact},
        }


def prove_order(schedule: Schedule) -> OrderProof:
    """Whether happens-before orders all that must be ordered, in any interleaving of any ranks, in any number of calls."""
    begin = time.perf_counter()
    outcome = checked(elaborated(schedule))
    return OrderProof(outcome, time.perf_counter() - begin)
