"""Kernels and device functions in which ranks, or the programs of a grid, meet; most of them written in the dialect."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from tilelink.compat.dialects import openshmem
from tilelink.compat.triton_dist.device import transfers
from tilelink.compat.triton_dist.device.extra import __syncthreads, membar
from tilelink.compat.triton_dist.device.language import symm_at
from tilelink.compat.triton_dist.kernels import device, jit

_ALL_BUT_SIGN = tl.constexpr(0x7FFFFFFF)


@device(openshmem.barrier_all)
def _meet_for_host():
    transfers.meet_ranks(transfers.HOST_SLOT)


@jit
def meet_on_stream():
    """One program: its stream goes on when all ranks' streams have come here."""
    _meet_for_host()


@triton.jit
def barrier_on_this_grid(ptr, use_cooperative: tl.constexpr):
    """All programs of the launch meet; they must be resident at once. `ptr`: an int32 that starts at 0 and is never reset.

    Each meeting adds 2**31 in all, so that the sign tells one from the next. `use_cooperative` asks for nothing more.
    """
    __syncthreads()
    count = tl.num_programs(0) * tl.num_programs(1) * tl.num_programs(2)
    first = (tl.program_id(0) + tl.program_id(1) + tl.program_id(2)) == 0
    arrival = tl.where(first, _ALL_BUT_SIGN - count + 2, 1)
    before = tl.atomic_add(ptr, arrival, sem="acq_rel", scope="gpu")
    while ((tl.atomic_add(ptr, 0, sem="acquire", scope="gpu") ^ before) & ~_ALL_BUT_SIGN) == 0:
        pass
    __syncthreads()


@triton.jit
def barrier_all_intra_node_atomic_cas_block(local_rank, rank, local_world_size, symm_flag_ptr):
    """One program of each rank meets those of the others. `symm_flag_ptr`: int32[num_ranks], symmetric, zero between meetings.

    Each rank raises its word at every peer from 0 to 1, and takes each peer's word here from 1 to 0.
    """
    __syncthreads()
    for step in range(1, local_world_size):
        peer = (local_rank + step) % local_world_size
        word = symm_at(symm_flag_ptr, rank - local_rank + peer) + local_rank
        while tl.atomic_cas(word, 0, 1, sem="release", scope="sys") != 0:
            pass
    for step in range(1, local_world_size):
        peer = (local_rank + step) % local_world_size
        while tl.atomic_cas(symm_flag_ptr + peer, 1, 0, sem="acquire", scope="sys") != 1:
            pass
    __syncthreads()


@triton.jit
def barrier_all_intra_node_non_atomic_block(local_rank, rank, num_ranks, symm_flags, target_value):
    """The same without atomics: `target_value` grows from meeting to meeting. `symm_flags`: int32[num_ranks] or more."""
    __syncthreads()
    membar("sys")
    for step in range(1, num_ranks):
        peer = (local_rank + step) % num_ranks
        tl.atomic_xchg(
            symm_at(symm_flags, rank - local_rank + peer) + local_rank, target_value, sem="release", scope="sys"
        )
    for step in range(1, num_ranks):
        peer = (local_rank + step) % num_ranks
        while tl.atomic_add(symm_flags + peer, 0, sem="acquire", scope="sys") < target_value:
            pass
    __syncthreads()


@triton.jit
def barrier_all_intra_node_non_atomic(
    local_rank, rank, num_ranks, symm_flags, target_value, use_cooperative: tl.constexpr
):
    """All programs of all ranks meet; the grid's own word is symm_flags[2 * num_ranks]."""
    barrier_on_this_grid(symm_flags + 2 * num_ranks, use_cooperative)
    if (tl.program_id(0) + tl.program_id(1) + tl.program_id(2)) == 0:
        barrier_all_intra_node_non_atomic_block(local_rank, rank, num_ranks, symm_flags, target_value)
    barrier_on_this_grid(symm_flags + 2 * num_ranks, use_cooperative)
