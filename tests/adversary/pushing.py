"""An operator that resets a word, meets its peers, pushes and waits. Correct; tests plant bugs in it."""

# mypy: ignore-errors
from __future__ import annotations

import torch
import triton
import triton.language as tl

from tilelink.compat.dialects.symm_mem import symmetric_memory

N = 16


@triton.jit
def word_of(words, owner):
    return tl.load(words.to(tl.pointer_type(tl.uint64)) + owner).to(tl.pointer_type(tl.int32))


@triton.jit
def reset(word):
    tl.atomic_xchg(word, 0, sem="relaxed", scope="sys")


@triton.jit
def push(x, buffers, words, rank, NUM_RANKS: tl.constexpr, N: tl.constexpr):
    peer = (rank + 1) % NUM_RANKS
    theirs = tl.load(buffers.to(tl.pointer_type(tl.uint64)) + peer).to(tl.pointer_type(tl.float32))
    tl.store(theirs + tl.arange(0, N), tl.load(x + tl.arange(0, N)))
    tl.debug_barrier()
    tl.atomic_xchg(word_of(words, peer), 1, sem="release", scope="sys")


@triton.jit
def take(word, buffer, out, N: tl.constexpr):
    while tl.atomic_add(word, 0, sem="acquire", scope="sys") != 1:
        pass
    tl.store(out + tl.arange(0, N), tl.load(buffer + tl.arange(0, N)))


class Exchange:
    """`out = op(x)`: x of the rank before this one."""

    INPUTS = {"x": ((N,), torch.float32)}  # noqa: RUF012
    NUM_RANKS = 2
    NUM_SMS = 4

    def __init__(self, fabric):
        self.symm = symm = symmetric_memory(fabric)
        self.buffer = symm.empty(N, dtype=torch.float32)
        self.handle = symm.rendezvous(self.buffer)
        self.word = symm.empty(4, dtype=torch.int32)
        self.word.zero_()
        self.words = symm.rendezvous(self.word)
        self.zeros = torch.zeros(4, dtype=torch.int32)
        self.one = torch.ones(1, dtype=torch.int32)

    def __call__(self, x):
        symm, handle, out = self.symm, self.handle, torch.empty_like(x)
        rank, num_ranks = handle.rank, handle.world_size
        peer = (rank + 1) % num_ranks
        with symm.launches():
            symm.copy(self.word[:1], self.zeros[:1])
            handle.barrier(channel=0)
            push[(1,)](x, handle.buffer_ptrs_dev, self.words.buffer_ptrs_dev, rank, NUM_RANKS=num_ranks, N=N)
            take[(1,)](self.word, self.buffer, out, N=N)
            handle.barrier(channel=1)
        assert peer < num_ranks
        return out


def reference(ranks):
    """Outputs of all ranks."""
    return [ranks[rank - 1]["x"] for rank in range(len(ranks))]
