"""Counts of what programs of one GPU have done; `program_barrier` is that of the target."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from lowering.device.barrier import program_barrier


@triton.jit
def count_up(count, tiles=1):
    """Count this program's stores as done, for those who wait for the count: those of one tile, or of none."""
    program_barrier()
    tl.atomic_add(count, tiles, sem="release", scope="sys")


@triton.jit
def count_arrival(count):
    """Count this program's stores as done; returns how many were counted before.

    The one that completes the count has acquired the stores of all the others, and may raise a signal for them.
    """
    program_barrier()
    return tl.atomic_add(count, 1, sem="acq_rel", scope="sys")
