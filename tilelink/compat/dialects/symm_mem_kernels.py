"""The signal-pad operations of torch symmetric memory as kernels of one program: what its own CUDA kernels do.

A word of a pad is raised from 0 to 1 by one rank and taken from 1 to 0 by the other, both at system scope, so the
words are 0 again afterwards. Word `channel * num_ranks + rank` of a rank's pad is raised by `rank`.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _word(pads, owner, channel, rank, num_ranks):
    table = pads.to(tl.pointer_type(tl.uint64))
    return tl.load(table + owner).to(tl.pointer_type(tl.uint32)) + channel * num_ranks + rank


@triton.jit
def symm_mem_put_signal(pads, rank, peer, channel, num_ranks):
    tl.debug_barrier()
    while tl.atomic_cas(_word(pads, peer, channel, rank, num_ranks), 0, 1, sem="release", scope="sys") != 0:
        pass


@triton.jit
def symm_mem_wait_signal(pads, rank, peer, channel, num_ranks):
    while tl.atomic_cas(_word(pads, rank, channel, peer, num_ranks), 1, 0, sem="acquire", scope="sys") != 1:
        pass


@triton.jit
def symm_mem_barrier(pads, rank, channel, num_ranks):
    for step in range(1, num_ranks):
        symm_mem_put_signal(pads, rank, (rank + step) % num_ranks, channel, num_ranks)
    for step in range(1, num_ranks):
        symm_mem_wait_signal(pads, rank, (rank + step) % num_ranks, channel, num_ranks)
