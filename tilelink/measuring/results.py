"""What was measured of one contender."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

NOT_FINITE = 1e9  # an error that is not finite


@dataclass(frozen=True, slots=True)
class ScheduleFacts:
    """The schedule behind a contender of ours; a file has none."""

    origin: str  # "planned" (no pins), "reused" (planned, outputs may be overwritten), "tuned" or "pinned"
    hash: str
    predicted_us: float
    choices: Mapping[str, str]
    inwards: bool = False  # whether last tiles of rows are shifted inwards, as none were that older files have


@dataclass(frozen=True, slots=True)
class ContenderResult:
    """What one contender did in one row."""

    name: str  # stable: "planned", "nccl_cublas", ... : see tilelink/bench/baselines.py, expert_baselines.py
    kind: str  # "ours", "baseline" (the whole operation), "part" (one side of it, for the physical limit)
    mode: str  # "graph": replays of a CUDA graph; "eager"
    calls_per_sample: int  # calls between two events, back to back
    rounds_us: tuple[tuple[float, ...], ...]  # [round][sample], us per call, the slowest rank of each sample
    median_us: float | None  # median of the rounds' medians; null if it failed
    p10_us: float | None  # over all samples
    p90_us: float | None
    host_us: float | None  # time of the host to enqueue one eager call, median; where it was asked for
    error_before: float | None  # of an eager call before timing
    error_after: float | None  # of the last timed form with fresh activations
    tolerance: float  # the largest error that is right
    failure: str  # empty, or why its time does not count
    note: str  # empty, or what else is worth knowing: why no graph was captured
    schedule: ScheduleFacts | None
