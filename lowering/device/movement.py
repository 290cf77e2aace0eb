"""Copies by SMs, and halves of tiles."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def halves(tile):
    """The left and the right half of a tile's columns."""
    rows: tl.constexpr = tile.shape[0]
    cols: tl.constexpr = tile.shape[1] // 2
    return tl.split(tl.permute(tl.reshape(tile, (rows, 2, cols)), (0, 2, 1)))
