"""All-gather by copy engines with a stock Triton kernel that works on each shard when it has arrived.

A side stream pulls one shard after the other from the peers and raises one word of `progress` behind each copy;
the kernel scales the rows of a shard as soon as its word is up. Emulated, or on GPUs:

    torchrun --nproc-per-node=4 examples/stock/copy_engine_all_gather.py
"""

# mypy: ignore-errors
from __future__ import annotations

import os

import torch
import torch.distributed as dist
import triton
import triton.language as tl

from tilelink.compat.dialects.symm_mem import symmetric_memory

ROWS, COLUMNS = 6, 64  # of one rank's shard
NUM_PROGRAMS = 2
BEFORE_PULL, AFTER_PULL = 0, 1  # channels of the two barriers of a call

INPUTS = {"x": ((ROWS, COLUMNS), torch.float32)}


@triton.jit
def scale_as_they_arrive(
    gathered, out, progress, rank, NUM_RANKS: tl.constexpr, ROWS_PER_RANK: tl.constexpr, WIDTH: tl.constexpr
):
    """out = 2 * gathered, both [NUM_RANKS * ROWS_PER_RANK, WIDTH], own shard first."""
    columns = tl.arange(0, WIDTH)
    for step in range(NUM_RANKS):
        peer = (rank + step) % NUM_RANKS
        if step > 0:
            while tl.atomic_add(progress + peer, 0, sem="acquire", scope="sys") == 0:
                pass
        for row in range(tl.program_id(0), ROWS_PER_RANK, tl.num_programs(0)):
            offsets = (peer * ROWS_PER_RANK + row) * WIDTH + columns
            tl.store(out + offsets, 2.0 * tl.load(gathered + offsets))


class CopyEngineAllGather:
    """x float32[ROWS, COLUMNS] of each rank -> 2 * all of them, float32[num_ranks * ROWS, COLUMNS]."""

    INPUTS = INPUTS

    def __init__(self, fabric):
        self.symm = symmetric_memory(fabric)
        self.shard = self.symm.empty(ROWS, COLUMNS, dtype=torch.float32)
        self.handle = self.symm.rendezvous(self.shard)
        device, num_ranks = self.symm.device, self.handle.world_size
        self.gathered = torch.empty(num_ranks, ROWS, COLUMNS, device=device)
        self.progress = torch.zeros(num_ranks, dtype=torch.uint32, device=device)

    def __call__(self, x):
        symm, handle = self.symm, self.handle
        rank, num_ranks = handle.rank, handle.world_size
        out = torch.empty(num_ranks * ROWS, COLUMNS, device=x.device)
        with symm.launches():
            symm.copy(self.shard, x)
            symm.copy(self.gathered[rank], x)
            symm.memset32(self.progress, 0, 0, num_ranks)
            handle.barrier(channel=BEFORE_PULL)
        symm.wait_stream("pull", "main")
        with symm.launches("pull"):  # enqueued before the kernel that waits for it
            for step in range(1, num_ranks):
                peer = (rank + step) % num_ranks
                symm.copy(self.gathered[peer], handle.get_remote_tensor(peer, (ROWS, COLUMNS), torch.float32))
                symm.stream_write_value32(self.progress, peer, 1)
        with symm.launches():
            sizes = {"NUM_RANKS": num_ranks, "ROWS_PER_RANK": ROWS, "WIDTH": COLUMNS}
            scale_as_they_arrive[(NUM_PROGRAMS,)](self.gathered, out, self.progress, rank, **sizes)
            symm.wait_stream("main", "pull")
            handle.barrier(channel=AFTER_PULL)  # no rank overwrites its shard while another one pulls it
        return out


def reference(rank_inputs):
    """Inputs of all ranks -> outputs of all ranks."""
    gathered = torch.cat([inputs["x"].cpu() for inputs in rank_inputs])
    return [(2 * gathered,) for _ in rank_inputs]


def main():
    """One rank on its GPU, started by torchrun: compares 20 calls with the reference."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    operator = CopyEngineAllGather(dist.group.WORLD)
    num_ranks = dist.get_world_size()
    for call in range(20):
        generator = torch.Generator().manual_seed(call)
        xs = [torch.randn(ROWS, COLUMNS, generator=generator) for _ in range(num_ranks)]
        out = operator(xs[dist.get_rank()].cuda())
        (wanted,) = reference([{"x": x} for x in xs])[0]
        torch.testing.assert_close(out.cpu(), wanted, rtol=0, atol=0)
    print(f"rank {dist.get_rank()}: 20 calls equal all {num_ranks} shards")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
