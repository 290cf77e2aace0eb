"""Puts in the dialect of Triton-distributed, whose device library is that of NVSHMEM: what a program of a network role calls in
the place of stores at peers. Every address is one of this rank's own symmetric memory.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton.language as tl
import triton_dist
from triton_dist.language.extra import libshmem_device
from triton_dist.language.extra.language_extra import __syncthreads


@triton_dist.jit
def published():
    """What all threads of this program have stored or acquired comes before what any of them puts."""
    __syncthreads()
    libshmem_device.fence()


@triton_dist.jit
def put(target, source, size, word, value, rank):
    """Put `size` elements to `rank`, and then set `word` there to `value`."""
    published()
    num_bytes = tl.cast(size, tl.int64) * (source.dtype.element_ty.primitive_bitwidth // 8)
    libshmem_device.putmem_signal_nbi_block(
        target, source, num_bytes, word, value, libshmem_device.NVSHMEM_SIGNAL_SET, rank
    )
    __syncthreads()


@triton_dist.jit
def put_alone(target, source, size, rank):
    """Put `size` words to `rank`, each of which tells by itself that it has come."""
    published()
    num_bytes = tl.cast(size, tl.int64) * (source.dtype.element_ty.primitive_bitwidth // 8)
    libshmem_device.putmem_nbi_block(target, source, num_bytes, rank)
    __syncthreads()


@triton_dist.jit
def put_rows(target, source, listed, number, cols, rank):
    """Put rows of `cols` elements to `rank`: the first `number` that are `listed`, in ascending order. Rows that follow each
    other are one message."""
    published()
    num_bytes = tl.cast(cols, tl.int64) * (source.dtype.element_ty.primitive_bitwidth // 8)
    entry = 0
    while entry < number:
        row = tl.load(listed + entry)
        rows = 1
        while (entry + rows < number) & (tl.load(listed + tl.minimum(entry + rows, number - 1)) == row + rows):
            rows += 1
        first = tl.cast(row, tl.int64) * cols
        libshmem_device.putmem_nbi_block(target + first, source + first, rows * num_bytes, rank)
        entry += rows
    __syncthreads()


@triton_dist.jit
def put_word(word, value, rank):
    """Set `word` of `rank` to `value`, behind all that this program has stored or acquired."""
    published()
    libshmem_device.signal_op(word, value, libshmem_device.NVSHMEM_SIGNAL_SET, rank)
    __syncthreads()


@triton_dist.jit
def quiet():
    """The sources of all puts so far may be stored to again."""
    libshmem_device.quiet()
    __syncthreads()
