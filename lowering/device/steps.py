"""What kernels of steps use beside signals: places of tiles, remainders, packets of elements, the end of a call."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from lowering.device.words import get_words, put_words


@triton.jit
def wait_until(word, value):
    """Block until `word` of this rank is at least `value`; acquires all that was published with it.

    The comparison uses the signed difference, so that words may wrap around. A barrier of all threads follows the acquire.
    """
    while tl.atomic_add(word, 0, sem="acquire", scope="sys") - value < 0:
        pass


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
def flush_stores():
    """Block until what descriptors of this program have stored has arrived; a barrier has to follow."""
    tl.inline_asm_elementwise(
        "cp.async.bulk.wait_group 0; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def put_packets(words, data, call):
    """Store a tile of 32-bit elements, each in one 64-bit word with the number of the call."""
    bits = data.to(tl.int32, bitcast=True).to(tl.int64)
    put_words(words, (tl.full(words.shape, 0, tl.int64) + call) << 32 | bits & 0xFFFFFFFF)


@triton.jit
def take_packets(words, call, DTYPE: tl.constexpr):
    """The tile of elements in `words`, after a wait until all have arrived with the number of this call."""
    found = get_words(words)
    while tl.max(tl.max(((found >> 32).to(tl.int32) != call).to(tl.int32), axis=1), axis=0) > 0:
        found = get_words(words)
    return found.to(tl.int32).to(DTYPE, bitcast=True)


@triton.jit
def clear_counts(counts, NUM_COUNTS: tl.constexpr, BLOCK: tl.constexpr):
    """Set the counts of this rank to 0 for the next call; every other program of the call has ended."""
    offsets = tl.arange(0, BLOCK)
    tl.store(counts + offsets, 0, mask=offsets < NUM_COUNTS)
