"""One-shot all-reduce in stock Triton over torch symmetric memory: each rank reads the copies of all ranks and sums.

Nothing in the kernel knows of tilelink. The host class takes a fabric of an emulated world, or a process group:

    torchrun --nproc-per-node=4 examples/stock/one_shot_all_reduce.py

Program p of a rank meets program p of the other ranks twice: before it reads their copies, and after it has read
them, so that the next call may overwrite them. A word of a signal pad is raised from 0 to 1 by the peer and taken
back to 0 by its owner, which leaves the pad as it was.
"""

# mypy: ignore-errors
from __future__ import annotations

import os

import torch
import torch.distributed as dist
import triton
import triton.language as tl

from tilelink.compat.dialects.symm_mem import symmetric_memory

COUNT = 5000
BLOCK = 1024
NUM_PROGRAMS = 4  # all resident, since each waits for its peers

INPUTS = {"x": ((COUNT,), torch.bfloat16)}


@triton.jit
def meet_peers(signal_pads, rank, NUM_RANKS: tl.constexpr):
    """This program of all ranks meets: what each stored or loaded before happens before what follows."""
    first = tl.program_id(0) * NUM_RANKS
    tl.debug_barrier()
    for step in range(1, NUM_RANKS):
        theirs = tl.load(signal_pads + (rank + step) % NUM_RANKS).to(tl.pointer_type(tl.uint32))
        while tl.atomic_cas(theirs + first + rank, 0, 1, sem="release", scope="sys") != 0:
            pass
    ours = tl.load(signal_pads + rank).to(tl.pointer_type(tl.uint32))
    for step in range(1, NUM_RANKS):
        peer = (rank + step) % NUM_RANKS
        while tl.atomic_cas(ours + first + peer, 1, 0, sem="acquire", scope="sys") != 1:
            pass


@triton.jit
def one_shot_all_reduce(
    buffer_ptrs, signal_pad_ptrs, out, count, rank, NUM_RANKS: tl.constexpr, BLOCK_SIZE: tl.constexpr
):
    """out[count] = the sum over ranks, in fp32 and in the order of ranks, so that all ranks get the same bits."""
    buffers = buffer_ptrs.to(tl.pointer_type(tl.uint64))
    signal_pads = signal_pad_ptrs.to(tl.pointer_type(tl.uint64))
    meet_peers(signal_pads, rank, NUM_RANKS)
    for start in range(tl.program_id(0) * BLOCK_SIZE, count, tl.num_programs(0) * BLOCK_SIZE):
        offsets = start + tl.arange(0, BLOCK_SIZE)
        total = tl.zeros((BLOCK_SIZE,), tl.float32)
        for peer in range(NUM_RANKS):
            copy = tl.load(buffers + peer).to(tl.pointer_type(tl.bfloat16))
            total += tl.load(copy + offsets, mask=offsets < count, other=0.0).to(tl.float32)
        tl.store(out + offsets, total.to(tl.bfloat16), mask=offsets < count)
    meet_peers(signal_pads, rank, NUM_RANKS)


class OneShotAllReduce:
    """x bfloat16[COUNT] of each rank -> their sum bfloat16[COUNT] on each rank."""

    INPUTS = INPUTS

    def __init__(self, fabric):
        self.symm = symmetric_memory(fabric)
        self.buffer = self.symm.empty(COUNT, dtype=torch.bfloat16)
        self.handle = self.symm.rendezvous(self.buffer)

    def __call__(self, x):
        out = torch.empty_like(x)
        handle = self.handle
        with self.symm.launches():
            self.symm.copy(self.buffer, x)
            tables = handle.buffer_ptrs_dev, handle.signal_pad_ptrs_dev
            one_shot_all_reduce[(NUM_PROGRAMS,)](
                *tables, out, COUNT, handle.rank, NUM_RANKS=handle.world_size, BLOCK_SIZE=BLOCK, num_warps=8
            )
        return out


def reference(rank_inputs):
    """Inputs of all ranks -> outputs of all ranks."""
    total = torch.zeros(COUNT)
    for inputs in rank_inputs:
        total += inputs["x"].float().cpu()
    return [(total.to(torch.bfloat16),) for _ in rank_inputs]


def main():
    """One rank on its GPU, started by torchrun: compares 20 calls with the reference."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    operator = OneShotAllReduce(dist.group.WORLD)
    num_ranks = dist.get_world_size()
    for call in range(20):
        generator = torch.Generator().manual_seed(call)
        xs = [torch.randn(COUNT, generator=generator).bfloat16() for _ in range(num_ranks)]
        out = operator(xs[dist.get_rank()].cuda())
        (wanted,) = reference([{"x": x} for x in xs])[0]
        torch.testing.assert_close(out.cpu(), wanted, rtol=0, atol=0)
    print(f"rank {dist.get_rank()}: 20 calls equal the sum of {num_ranks} ranks")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
