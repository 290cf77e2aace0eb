"""What became of mutants: counts by operator and by what killed them, as a table, as Markdown and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from enum import Enum
from io import StringIO

from rich.console import Console
from rich.table import Table

_WIDTH = 110  # columns of the text table


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
        return self._counts(self.outcomes, lambda outcome: outcome.operator)

    def by_reason(self, fate: Fate) -> dict[str, int]:
        """How many of `fate` by what, most first."""
        return dict(Counter(outcome.by for outcome in self.of(fate)).most_common())

    def _counts(self, outcomes: Iterable[Outcome], key: Callable[[Outcome], str]) -> dict[str, dict[Fate, int]]:
        counts: dict[str, dict[Fate, int]] = {}
        for outcome in outcomes:
            row = counts.setdefault(key(outcome), dict.fromkeys(Fate, 0))
            row[outcome.fate] += 1
        return counts

    def summary(self) -> str:
        """One line."""
        counts = ", ".join(f"{self.count(fate)} {fate.value}" for fate in Fate)
        drawn = "" if len(self.outcomes) == self.total else f" of {self.total}"
        return f"{len(self.outcomes)}{drawn} mutants: {counts}; {100 * self.score:.1f} % of those that matter killed"

    def text(self) -> str:
        """Tables for a terminal of 110 columns, then the survivors and the undecided one by one."""
        out = StringIO()
        console = Console(file=out, width=_WIDTH, highlight=False)
        console.print(_table("operator", self._operator_rows(), [fate.value for fate in Fate]))
        console.print(_table("by", self._reason_rows(), ["fate", "mutants"]))
        for fate in (Fate.SURVIVED, Fate.UNDECIDED):
            for outcome in self.of(fate):
                note = f" ({outcome.by})" if outcome.by else ""
                console.print(f"{fate.value}: {outcome.operator}: {outcome.site}{note}", markup=False)
        console.print(self.summary(), markup=False)
        return out.getvalue()

    def markdown(self) -> str:
        """The same tables for a page of docs/."""
        operators = _markdown("operator", self._operator_rows(), [fate.value for fate in Fate])
        reasons = _markdown("by", self._reason_rows(), ["fate", "mutants"])
        survivors = [f"- {outcome.operator}: `{outcome.site}`" for outcome in self.of(Fate.SURVIVED)]
        parts = [f"{self.summary()}.", operators, reasons]
        return "\n\n".join([*parts, *(["Survivors:", "\n".join(survivors)] if survivors else [])]) + "\n"

    def to_json(self) -> str:
        """Everything: counts, and every outcome."""
        outcomes = [{**asdict(outcome), "fate": outcome.fate.value} for outcome in self.outcomes]
        counts = {fate.value: self.count(fate) for fate in Fate}
        return json.dumps({"total": self.total, "counts": counts, "outcomes": outcomes}, indent=1) + "\n"

    def _operator_rows(self) -> list[list[str]]:
        rows = [[name, *(str(row[fate]) for fate in Fate)] for name, row in self.by_operator().items()]
        return [*rows, ["all", *(str(self.count(fate)) for fate in Fate)]]

    def _reason_rows(self) -> list[list[str]]:
        return [
            [reason, fate.value, str(count)]
            for fate in Fate
            for reason, count in self.by_reason(fate).items()
            if fate is not Fate.SURVIVED
        ]


def _table(first: str, rows: list[list[str]], columns: list[str]) -> Table:
    table = Table(box=None)
    table.add_column(first)
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def _markdown(first: str, rows: list[list[str]], columns: list[str]) -> str:
    lines = [[first, *columns], ["---", *["---:"] * len(columns)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
