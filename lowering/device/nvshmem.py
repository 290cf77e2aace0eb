"""Puts of NVSHMEM: what a program of a network role calls in the place of stores at peers.

Every address is one of this rank's own symmetric memory: NVSHMEM finds that of the other rank. A put is carried out by all
threads of the program together, and its word is set behind it; words are of 64 bits. Written for NVSHMEM 3.4.5.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from lowering.device.nvidia import program_barrier


@tl.core.extern
def nvshmem_put(target, source, num_bytes, word, value, how, rank, _semantic=None):
    """`nvshmemx_putmem_signal_nbi_block`: returns before `source` has been read."""
    i32, i64, u64 = tl.core.dtype("int32"), tl.core.dtype("int64"), tl.core.dtype("uint64")
    known = {(i64, i64, i64, i64, u64, i32, i32): ("nvshmemx_putmem_signal_nbi_block", i32)}
    given = [target, source, num_bytes, word, value, how, rank]
    return tl.core.extern_elementwise("", "", given, known, is_pure=False, _semantic=_semantic)


@tl.core.extern
def nvshmem_put_alone(target, source, num_bytes, rank, _semantic=None):
    """`nvshmemx_putmem_nbi_block`: returns before `source` has been read."""
    i32, i64 = tl.core.dtype("int32"), tl.core.dtype("int64")
    known = {(i64, i64, i64, i32): ("nvshmemx_putmem_nbi_block", i32)}
    return tl.core.extern_elementwise(
        "", "", [target, source, num_bytes, rank], known, is_pure=False, _semantic=_semantic
    )


@tl.core.extern
def nvshmem_set(word, value, how, rank, _semantic=None):
    """`nvshmemx_signal_op`: each thread sets the word, to the same value."""
    i32, i64, u64 = tl.core.dtype("int32"), tl.core.dtype("int64"), tl.core.dtype("uint64")
    known = {(i64, u64, i32, i32): ("nvshmemx_signal_op", i32)}
    return tl.core.extern_elementwise("", "", [word, value, how, rank], known, is_pure=False, _semantic=_semantic)


@tl.core.extern
def nvshmem_quiet(_semantic=None):
    """`nvshmem_quiet`: all puts of this rank so far are there, and their sources are free."""
    known = {(): ("nvshmem_quiet", tl.core.dtype("int32"))}
    return tl.core.extern_elementwise("", "", [], known, is_pure=False, _semantic=_semantic)


@triton.jit
def published():
    """What all threads of this program have stored or acquired comes before what any of them puts."""
    program_barrier()
    tl.inline_asm_elementwise("fence.acq_rel.sys; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def put(target, source, size, word, value, rank):
    """Put `size` elements to `rank`, and then set `word` there to `value`: NVSHMEM_SIGNAL_SET is 9."""
    published()
    num_bytes = tl.cast(size, tl.int64) * (source.dtype.element_ty.primitive_bitwidth // 8)
    nvshmem_put(
        target.to(tl.int64), source.to(tl.int64), num_bytes, word.to(tl.int64), tl.cast(value, tl.uint64), 9, rank
    )
    program_barrier()


@triton.jit
def put_alone(target, source, size, rank):
    """Put `size` words to `rank`, each of which tells by itself that it has come."""
    published()
    num_bytes = tl.cast(size, tl.int64) * (source.dtype.element_ty.primitive_bitwidth // 8)
    nvshmem_put_alone(target.to(tl.int64), source.to(tl.int64), num_bytes, rank)
    program_barrier()


@triton.jit
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
        first = row * num_bytes
        nvshmem_put_alone(target.to(tl.int64) + first, source.to(tl.int64) + first, rows * num_bytes, rank)
        entry += rows
    program_barrier()


@triton.jit
def put_word(word, value, rank):
    """Set `word` of `rank` to `value`, behind all that this program has stored or acquired."""
    published()
    nvshmem_set(word.to(tl.int64), tl.cast(value, tl.uint64), 9, rank)
    program_barrier()


@triton.jit
def quiet():
    """The sources of all puts so far may be stored to again."""
    nvshmem_quiet()
    program_barrier()


@triton.jit
def take_off(words, each, WORDS: tl.constexpr, BLOCK: tl.constexpr):
    """Take off WORDS words what a call adds to each of them; nobody waits for them any more in this call."""
    offsets = tl.arange(0, BLOCK)
    tl.atomic_add(
        words + offsets, tl.zeros((BLOCK,), tl.int64) - each, mask=offsets < WORDS, sem="relaxed", scope="sys"
    )
