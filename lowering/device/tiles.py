"""Places of tiles, halves of them, and runs of elements that programs copy."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def rows_from(first, ROWS: tl.constexpr):
    """Numbers of ROWS rows from `first` on, as a column."""
    return first + tl.arange(0, ROWS)[:, None]


@triton.jit
def cols_from(first, COLS: tl.constexpr):
    """Numbers of COLS columns from `first` on, as a row."""
    return first + tl.arange(0, COLS)[None, :]


@triton.jit
def floor_mod(a, n):
    """The remainder that is never negative; `%` of a kernel has the sign of `a`."""
    return (a % n + n) % n


@triton.jit
def floor_div(a, n):
    """The quotient rounded down; `//` of a kernel rounds towards zero."""
    return (a - (a % n + n) % n) // n


@triton.jit
def halves(tile):
    """The left and the right half of a tile's columns."""
    rows: tl.constexpr = tile.shape[0]
    cols: tl.constexpr = tile.shape[1] // 2
    return tl.split(tl.permute(tl.reshape(tile, (rows, 2, cols)), (0, 2, 1)))


@triton.jit
def copy_run(target, source, size, BLOCK: tl.constexpr):
    """Copy `size` consecutive elements, BLOCK of them at a time."""
    for start in range(0, size, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        inside = offsets < size
        tl.store(target + offsets, tl.load(source + offsets, mask=inside), mask=inside)


@triton.jit
def by_die(program, PROGRAMS: tl.constexpr, DIES: tl.constexpr):
    """Renumber programs, which the hardware deals to dies in turn: neighbours then share the L2 of one die."""
    even = PROGRAMS // DIES * DIES
    moved = program % DIES * (even // DIES) + program // DIES
    return tl.where(program < even, moved, program)
