"""What the samples say: ours against the best baseline and the physical limit, row by row and as geometric means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilelink.bench.record import ContenderResult, RowResult
from tilelink.bench.samples import geomean

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
    tuned: ContenderResult | None  # the fastest of it and its next structures, if those were measured
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
    return RowSummary(
        row=row,
        ours=planned[0] if planned else None,
        tuned=_fastest([*planned, *others]) if others else None,
        best=_fastest(c for c in row.contenders if c.kind == "baseline"),
    )


def _fastest(contenders: Iterable[ContenderResult]) -> ContenderResult | None:
    timed = [(c.median_us, c.name, c) for c in contenders if c.median_us is not None]
    return min(timed, key=lambda entry: entry[:2])[2] if timed else None


def by_operator(rows: Sequence[RowResult]) -> list[OperatorSummary]:
    """In order of first appearance."""
    found = []
    for operator in dict.fromkeys(row.operator for row in rows):
        theirs = [summarize(row) for row in rows if row.operator == operator]
        speedups = [s.speedup for s in theirs if s.speedup is not None]
        found.append(
            OperatorSummary(
                operator=operator,
                rows=len(theirs),
                measured=sum(s.ours_us is not None for s in theirs),
                of_limit=geomean([s.of_limit for s in theirs if s.of_limit is not None]),
                speedup=geomean(speedups),
                over_sequential=geomean([s.over_sequential for s in theirs if s.over_sequential is not None]),
                behind=sum(speedup < 1 for speedup in speedups),
            )
        )
    return found


def failures(row: RowResult) -> list[str]:
    """Why times of the row are missing, a line each."""
    whole = [row.failure] if row.failure else []
    return whole + [f"{c.name}: {c.failure}" for c in row.contenders if c.failure]


def wrong_or_missing(rows: Sequence[RowResult]) -> list[str]:
    """Keys of rows in which what the planner picks has no time: it failed or its result was wrong."""
    return [row.key for row in rows if summarize(row).ours_us is None]
