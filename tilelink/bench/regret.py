"""What it costs to believe the model: of schedules that were measured side by side, the one with the least predicted time next to
the one that was the fastest.

The regret of a row is `picked / fastest - 1`. With a top of n the n schedules with the least predicted times are measured, and
the fastest of these is picked. wMAPE is the sum of all errors of prediction by the sum of all measured times (both in us), so
that large rows count as much as their times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import mean

from tilelink.bench.record import Record, RowResult
from tilelink.bench.summary import SEQUENTIAL, summarize
from tilelink.measuring.samples import geomean, percentile

TOPS = (1, 3, 5)
SIZES = ((64, "to 64 rows"), (1024, "to 1,024 rows"), (1 << 30, "more rows"))
WORTH = 3  # schedules of a row, at least: with fewer there is no choice

Predict = Callable[[Record, RowResult], dict[str, float]]  # us of each contender of ours, by its name


@dataclass(frozen=True, slots=True)
class Measured:
    """A schedule that took part in a row."""

    name: str
    predicted_us: float
    us: float


@dataclass(frozen=True, slots=True)
class RowRegret:
    """Of the baselines: the fastest, and NCCL + cuBLAS; `limit_us`: no overlap can be faster. None where it was not measured."""

    key: str
    operator: str
    rows: int
    schedules: tuple[Measured, ...]
    best_us: float | None
    sequential_us: float | None
    limit_us: float | None

    def over(self, us: float | None) -> float | None:
        """A time by that of the pick."""
        return us / self.picked(1).us if us is not None else None

    @property
    def fastest(self) -> Measured:
        return min(self.schedules, key=lambda one: one.us)

    def picked(self, top: int) -> Measured:
        """The fastest of the `top` schedules with the least predicted times."""
        ranked = sorted(self.schedules, key=lambda one: one.predicted_us)
        return min(ranked[:top], key=lambda one: one.us)

    def regret(self, top: int = 1) -> float:
        return self.picked(top).us / self.fastest.us - 1.0


@dataclass(frozen=True, slots=True)
class Report:
    """Of some rows. Ratios, not percent; geometric means where ratios of times are averaged."""

    what: str
    rows: int
    schedules: int
    wmape: float
    mean: tuple[float, ...]  # regret with each of TOPS
    p95: float  # of the first
    worst: float
    worst_row: str
    ahead: float | None  # geometric mean of best baseline / pick
    behind: int  # rows in which a baseline was faster than the pick
    over_sequential: float | None
    of_limit: float | None


def as_recorded(_: Record, row: RowResult) -> dict[str, float]:
    """The predictions of the commit that measured."""
    return {one.name: one.schedule.predicted_us for one in row.contenders if one.schedule is not None}


def regrets(record: Record, predict: Predict) -> list[RowRegret]:
    """Of the rows in which at least three schedules were measured. A schedule that took part twice counts once."""
    found = []
    for row in record.rows:
        times: dict[str, tuple[str, list[float]]] = {}
        for one in row.contenders:
            if one.schedule is not None and one.median_us is not None:
                times.setdefault(one.schedule.hash, (one.name, []))[1].append(one.median_us)
        if len(times) < WORTH:
            continue
        predicted = predict(record, row)
        measured = [Measured(name, predicted[name], mean(us)) for name, us in times.values() if name in predicted]
        about = summarize(row)
        times_us = about.best_us, about.us(SEQUENTIAL), about.limit_us
        if len(measured) >= WORTH:
            found.append(RowRegret(row.key, row.operator, row.m, tuple(measured), *times_us))
    return found


def report(what: str, rows: Sequence[RowRegret]) -> Report:
    """Raises ValueError for no rows."""
    every = [one for row in rows for one in row.schedules]
    first = [row.regret() for row in rows]
    worst = max(rows, key=RowRegret.regret)
    ahead = _known(row.over(row.best_us) for row in rows)
    return Report(
        what=what,
        rows=len(rows),
        schedules=len(every),
        wmape=sum(abs(one.predicted_us - one.us) for one in every) / sum(one.us for one in every),
        mean=tuple(mean(row.regret(top) for row in rows) for top in TOPS),
        p95=percentile(first, 95),
        worst=worst.regret(),
        worst_row=worst.key,
        ahead=geomean(ahead),
        behind=sum(ratio < 1 for ratio in ahead),
        over_sequential=geomean(_known(row.over(row.sequential_us) for row in rows)),
        of_limit=geomean(_known(row.over(row.limit_us) for row in rows)),
    )


def _known(ratios: Iterable[float | None]) -> list[float]:
    return [ratio for ratio in ratios if ratio is not None]


def reports(rows: Sequence[RowRegret]) -> list[Report]:
    """Of each operator, of each of these by number of rows, and of all."""
    found = []
    for operator in dict.fromkeys(row.operator for row in rows):
        theirs = [row for row in rows if row.operator == operator]
        found.append(report(operator, theirs))
        below = 0
        for most, what in SIZES:
            some = [row for row in theirs if below < row.rows <= most]
            below = most
            if some:
                found.append(report(f"{operator}, {what}", some))
    return [*found, report("all", rows)] if rows else []


def as_json(found: Sequence[Report], rows: Sequence[RowRegret]) -> dict[str, object]:
    listed = [{**asdict(row), "regret": row.regret(), "picked": row.picked(1).name} for row in rows]
    return {"reports": [asdict(one) for one in found], "rows": listed}
