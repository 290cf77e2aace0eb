"""Counts of finished work on one GPU; `program_barrier` is that of the target."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from lowering.device.barrier import program_barrier


@triton.jit
def count_up(count, tiles=1):
    """Publish this program's stores and add `tiles` (1, or 0 for no tile) to `count`, for programs and streams that wait
    for the count."""
    program_barrier()
    tl.atomic_add(count, tiles, sem="release", scope="sys")


@triton.jit
def count_arrival(count):
    """Publish this program's stores and add 1 to `count`; returns the count before.

    The program that completes the count has acquired the stores of all others, and may raise a signal on their behalf.
    """
    program_barrier()
    return tl.atomic_add(count, 1, sem="acq_rel", scope="sys")
