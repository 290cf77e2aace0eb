"""From times to numbers: the slowest rank, the median of rounds, rates, and ramps that do not fall."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tilelink.measuring.device import Call, Device
from tilelink.measuring.samples import max_over_ranks, spread

ROUNDS, BATCHES = 5, 4


def slowest_us(
    device: Device, batch: Call, *, here: bool = True, rounds: int = ROUNDS, batches: int = BATCHES, lead_in: int = 1
) -> float:
    """us of a batch: of each sample the slowest rank, the median of rounds. All ranks call it; those not `here` only wait.

    `lead_in` batches are not timed: they come first in each round and absorb the skew of ranks.
    """
    found = []
    for _ in range(rounds):
        device.meet()
        found.append(device.time(batch, lead_in, batches) if here else [0.0] * batches)
    ranks = [json.loads(text) for text in device.exchange(json.dumps(found))]
    return spread(max_over_ranks(ranks)).median_us


def gb_per_s(num_bytes: float, us: float) -> float:
    """1e9 bytes a second."""
    return num_bytes / us / 1e3


def tflops(flops: float, us: float) -> float:
    """1e12 operations a second."""
    return flops / us / 1e6


def rounded(value: float) -> float:
    """To three significant digits: more would differ between two runs."""
    return float(f"{value:.3g}")


def rising(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Points of a ramp, rounded, none below the one before: a mover with more SMs, or more bytes, may use fewer at a time."""
    found = list[tuple[float, float]]()
    for x, rate in points:
        found.append((x, max(rounded(rate), found[-1][1] if found else 0.0)))
    return tuple(found)
