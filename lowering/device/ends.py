"""The end of a call: words that are made ready for the next one."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def clear_counts(counts, NUM_COUNTS: tl.constexpr, BLOCK: tl.constexpr):
    """Set the counts of this rank to 0 for the next call; every other program of the call has ended."""
    offsets = tl.arange(0, BLOCK)
    tl.store(counts + offsets, 0, mask=offsets < NUM_COUNTS)


@triton.jit
def take_off(words, each, WORDS: tl.constexpr, BLOCK: tl.constexpr):
    """Take off WORDS words what a call adds to each of them; nobody waits for them any more in this call."""
    offsets = tl.arange(0, BLOCK)
    tl.atomic_add(
        words + offsets, tl.zeros((BLOCK,), tl.int32) - each, mask=offsets < WORDS, sem="relaxed", scope="sys"
    )
