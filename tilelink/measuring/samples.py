"""Statistics of time samples: medians of rounds, percentiles, geometric means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Rounds = Sequence[Sequence[float]]  # [round][sample] in us


@dataclass(frozen=True, slots=True)
class Spread:
    """Of all rounds: the median of their medians, and percentiles over every sample, in us."""

    median_us: float
    p10_us: float
    p90_us: float


def percentile(samples: Sequence[float], percent: float) -> float:
    """Linear interpolation between the two nearest order statistics. Raises ValueError for no samples."""
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    place = (len(ordered) - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def spread(rounds: Rounds) -> Spread:
    """Rounds count alike however many samples they hold. Raises ValueError if there is none."""
    medians = [percentile(samples, 50) for samples in rounds]
    every = [sample for samples in rounds for sample in samples]
    return Spread(percentile(medians, 50), percentile(every, 10), percentile(every, 90))


def max_over_ranks(ranks: Sequence[Rounds]) -> list[list[float]]:
    """The slowest rank of each sample; `ranks[r]` are the rounds of rank r. Raises ValueError if their shapes differ."""
    return [
        [max(sample) for sample in zip(*samples, strict=True)]  # the same sample on every rank
        for samples in zip(*ranks, strict=True)  # the same round on every rank
    ]


def geomean(values: Sequence[float]) -> float | None:
    """Geometric mean; None for no values."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None
