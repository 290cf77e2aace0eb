"""What became of mutants: counts by operator and by what killed them, as a table, as Markdown and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from enum import Enum


class Fate(Enum):
    """The order is that of the columns of a report."""

    KILLED = "killed"
    SURVIVED = "survived"
    EQUIVALENT = "equivalent"  # survived, and shown to do what the original does
    UNDECIDED = "undecided"  # the judge failed, crashed or took too long


@dataclass(frozen=True, slots=True)
class Outcome:
    """`by`: what killed it, or why it is equivalent, or why it is undecided; empty for a survivor."""

    operator: str
    site: str
    fate: Fate
    by: str
    detail: str


@dataclass(frozen=True, slots=True)
class Report:
    """`outcomes` in the order of the mutants; `total` is how many there were before a sample was drawn."""

    outcomes: tuple[Outcome, ...]
    total: int

    def count(self, fate: Fate) -> int:
        return sum(outcome.fate is fate for outcome in self.outcomes)

    @property
    def score(self) -> float:
        """Share of the mutants killed, of those decided and not equivalent; 1 if there are none."""
        killed, survived = self.count(Fate.KILLED), self.count(Fate.SURVIVED)
        return killed / (killed + survived) if killed + survived else 1.0

    def of(self, fate: Fate) -> tuple[Outcome, ...]:
        return tuple(outcome for outcome in self.outcomes if outcome.fate is fate)

    def by_operator(self) -> dict[str, dict[Fate, int]]:
        """Counts of each operator, in the order in which operators appear."""
        counts: dict[str, dict[Fate, int]] = {}
        for outcome in self.outcomes:
            counts.setdefault(outcome.operator, dict.fromkeys(Fate, 0))[outcome.fate] += 1
        return counts

    def by_reason(self, fate: Fate) -> dict[str, int]:
        """How many of `fate` by what, most first."""
        return dict(Counter(outcome.by for outcome in self.of(fate)).most_common())

    def summary(self) -> str:
        """One line."""
        counts = ", ".join(f"{self.count(fate)} {fate.value}" for fate in Fate)
        drawn = "" if len(self.outcomes) == self.total else f" of {self.total}"
        return f"{len(self.outcomes)}{drawn} mutants: {counts}; {100 * self.score:.1f} % of those that matter killed"

    def text(self) -> str:
        """Tables, then the survivors and the undecided one by one."""
        lines = [
            f"{fate.value}: {outcome.operator}: {outcome.site}{f' ({outcome.by})' if outcome.by else ''}"
            for fate in (Fate.SURVIVED, Fate.UNDECIDED)
            for outcome in self.of(fate)
        ]
        return "\n".join([*self._tables(), *lines, self.summary()]) + "\n"

    def markdown(self) -> str:
        """The same tables for a page of docs/."""
        survivors = [f"- {outcome.operator}: `{outcome.site}`" for outcome in self.of(Fate.SURVIVED)]
        parts = [f"{self.summary()}.", *self._tables(), *(["Survivors:", "\n".join(survivors)] if survivors else [])]
        return "\n\n".join(parts) + "\n"

    def _tables(self) -> tuple[str, str]:
        operators = [[name, *(str(row[fate]) for fate in Fate)] for name, row in self.by_operator().items()]
        operators.append(["all", *(str(self.count(fate)) for fate in Fate)])
        reasons = [
            [reason, fate.value, str(count)]
            for fate in Fate
            for reason, count in self.by_reason(fate).items()
            if fate is not Fate.SURVIVED
        ]
        return _table(["operator", *(fate.value for fate in Fate)], operators), _table(
            ["by", "fate", "mutants"], reasons
        )

    def to_json(self) -> str:
        """Everything: counts, and every outcome."""
        outcomes = [{**asdict(outcome), "fate": outcome.fate.value} for outcome in self.outcomes]
        counts = {fate.value: self.count(fate) for fate in Fate}
        return json.dumps({"total": self.total, "counts": counts, "outcomes": outcomes}, indent=1) + "\n"


def _table(head: list[str], rows: list[list[str]]) -> str:
    """In Markdown, which columns of one width make readable in a terminal."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = [
        [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        for row in (head, rule, *rows)
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
