"""What the samples say: ours against the best baseline and the physical limit, row by row and as geometric means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tilelink.bench.record import RowResult
from tilelink.measuring.results import ContenderResult
from tilelink.measuring.samples import geomean

OURS = "planned"
SEQUENTIAL = "nccl_cublas"
ASYNC_TP = ("async_tp", "async_tp_graph")
GEMM = "gemm"
COLLECTIVE = "collective"


@dataclass(frozen=True, slots=True)
class RowSummary:
    """Times in us; None where nothing was measured or the result was wrong."""

    row: RowResult
    ours: ContenderResult | None  # the schedule that the planner picks unpinned
    reused: ContenderResult | None  # what it picks if the next call may overwrite outputs, where that is another one
    tuned: ContenderResult | None  # the fastest of it and its alternatives, if those were measured
    best: ContenderResult | None  # the fastest baseline

    def us(self, *names: str) -> float | None:
        """The fastest of the contenders with these names."""
        times = [c.median_us for c in self.row.contenders if c.name in names and c.median_us is not None]
        return min(times, default=None)

    @property
    def ours_us(self) -> float | None:
        return self.ours.median_us if self.ours is not None else None

    @property
    def best_us(self) -> float | None:
        return self.best.median_us if self.best is not None else None

    @property
    def tuned_us(self) -> float | None:
        return self.tuned.median_us if self.tuned is not None else None

    @property
    def reused_us(self) -> float | None:
        return self.reused.median_us if self.reused is not None else None

    @property
    def limit_us(self) -> float | None:
        """max(cuBLAS GEMM alone, bytes into a rank / link rate): no overlap can be faster."""
        gemm = self.us(GEMM)
        return max(gemm, self.row.bytes_in / self.row.link_gb_per_s * 1e-3) if gemm is not None else None

    @property
    def of_limit(self) -> float | None:
        """limit / ours; 1 is the physical limit."""
        return _ratio(self.limit_us, self.ours_us)

    @property
    def speedup(self) -> float | None:
        """best baseline / ours; above 1 ours is faster."""
        return _ratio(self.best_us, self.ours_us)

    @property
    def over_sequential(self) -> float | None:
        """NCCL + cuBLAS / ours."""
        return _ratio(self.us(SEQUENTIAL), self.ours_us)


@dataclass(frozen=True, slots=True)
class OperatorSummary:
    """Geometric means over the rows of an operator that have the ratio; `behind` counts rows slower than a baseline."""

    operator: str
    rows: int
    measured: int
    of_limit: float | None
    speedup: float | None
    over_sequential: float | None
    behind: int


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def summarize(row: RowResult) -> RowSummary:
    ours = [c for c in row.contenders if c.kind == "ours"]
    others = [c for c in ours if c.schedule is not None and c.schedule.origin == "tuned"]
    planned = [c for c in ours if c.name == OURS]
    reused = [c for c in ours if c.schedule is not None and c.schedule.origin == "reused"]
    return RowSummary(
        row=row,
        ours=planned[0] if planned else None,
        reused=reused[0] if reused else None,
        tuned=_fastest([*planned, *others]) if others else None,
        best=_fastest(c for c in row.contenders if c.kind == "baseline"),
    )


def _fastest(contenders: Iterable[ContenderResult]) -> ContenderResult | None:
    timed = [(c.median_us, c.name, c) for c in contenders if c.median_us is not None]
    return min(timed, key=lambda entry: entry[:2])[2] if timed else None


def by_operator(rows: Sequence[RowResult]) -> list[OperatorSummary]:
    """In order of first appearance; a second time with outputs reused, where that gives other schedules."""
    found = []
    for operator in dict.fromkeys(row.operator for row in rows):
        theirs = [summarize(row) for row in rows if row.operator == operator]
        found.append(_means(operator, theirs))
        if any(row.reused is not None for row in theirs):
            reusing = [replace(row, ours=row.reused or row.ours) for row in theirs]
            found.append(_means(f"{operator}, outputs reused", reusing))
    return found


def _means(operator: str, rows: Sequence[RowSummary]) -> OperatorSummary:
    speedups = [row.speedup for row in rows if row.speedup is not None]
    return OperatorSummary(
        operator=operator,
        rows=len(rows),
        measured=sum(row.ours_us is not None for row in rows),
        of_limit=geomean([row.of_limit for row in rows if row.of_limit is not None]),
        speedup=geomean(speedups),
        over_sequential=geomean([row.over_sequential for row in rows if row.over_sequential is not None]),
        behind=sum(speedup < 1 for speedup in speedups),
    )


def failures(row: RowResult) -> list[str]:
    """Why times of the row are missing, a line each."""
    whole = [row.failure] if row.failure else []
    return whole + [f"{c.name}: {c.failure}" for c in row.contenders if c.failure]


def wrong_or_missing(rows: Sequence[RowResult]) -> list[str]:
    """Keys of rows in which what the planner picks has no time: it failed or its result was wrong."""
    return [row.key for row in rows if summarize(row).ours_us is None]
