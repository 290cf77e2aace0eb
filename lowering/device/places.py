"""Places of outputs in pools, as words tell them; what raises and awaits the words is that of the target."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def told(place, call):
    """What a rank tells in this call, if its output lies in `place` of its pool: fewer than 4 places."""
    return call * 4 + place


@triton.jit
def told_place(word):
    """The place that has been told in `word`, which has been waited for."""
    return tl.load(word) & 3
