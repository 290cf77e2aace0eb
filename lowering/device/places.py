"""The word in which a rank publishes the place of its output in a pool."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def told(place, call):
    """The word for an output in place `place` (0 to 3) of this rank's pool, in call `call`."""
    return call * 4 + place


@triton.jit
def told_place(word):
    """The place in `word`, a published word that has been awaited."""
    return tl.load(word) & 3
