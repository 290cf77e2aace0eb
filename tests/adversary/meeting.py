"""An operator of torch symmetric memory whose ranks meet at the start and at the end of a kernel, by compare-and-swap."""

# mypy: ignore-errors
from __future__ import annotations

import torch
import triton
import triton.language as tl

from tilelink.compat.dialects.symm_mem import symmetric_memory

N = 64


@triton.jit
def meet(pads, rank, NUM_RANKS: tl.constexpr, RAISE: tl.constexpr, TAKE: tl.constexpr):
    """A word for each pair of ranks: from 0 to 1 by who comes, back to 0 by who is met."""
    table = pads.to(tl.pointer_type(tl.uint64))
    for peer in range(NUM_RANKS):
        theirs = tl.load(table + peer).to(tl.pointer_type(tl.uint32))
        while tl.atomic_cas(theirs + rank, 0, 1, sem=RAISE, scope="sys") != 0:
            pass
    ours = tl.load(table + rank).to(tl.pointer_type(tl.uint32))
    for peer in range(NUM_RANKS):
        while tl.atomic_cas(ours + peer, 1, 0, sem=TAKE, scope="sys") != 1:
            pass


@triton.jit
def read_next(x, buffers, pads, out, rank, N: tl.constexpr, NUM_RANKS: tl.constexpr):
    """The buffer of the next rank, filled by the copy before this kernel, and free for the copy behind it."""
    table = buffers.to(tl.pointer_type(tl.uint64))
    meet(pads, rank, NUM_RANKS, "relaxed", "acquire")
    tl.debug_barrier()
    peers = tl.load(table + (rank + 1) % NUM_RANKS).to(tl.pointer_type(tl.float32))
    tl.store(out + tl.arange(0, N), tl.load(peers + tl.arange(0, N)))
    tl.debug_barrier()
    meet(pads, rank, NUM_RANKS, "release", "relaxed")


class ReadNext:
    """`out = op(x)`: x float32[64] of the next rank."""

    INPUTS = {"x": ((N,), torch.float32)}  # noqa: RUF012
    NUM_RANKS = 2
    NUM_SMS = 2

    def __init__(self, fabric):
        self.symm = symmetric_memory(fabric)
        self.buffer = self.symm.empty(N, dtype=torch.float32)
        self.handle = self.symm.rendezvous(self.buffer)

    def __call__(self, x):
        symm, handle, out = self.symm, self.handle, torch.empty_like(x)
        with symm.launches():
            symm.copy(self.buffer, x)
            tables = handle.buffer_ptrs_dev, handle.signal_pad_ptrs_dev
            read_next[(1,)](x, *tables, out, handle.rank, N=N, NUM_RANKS=handle.world_size)
        return out


def reference(rank_inputs):
    """What each rank returns."""
    return [(rank_inputs[(rank + 1) % len(rank_inputs)]["x"],) for rank in range(len(rank_inputs))]
