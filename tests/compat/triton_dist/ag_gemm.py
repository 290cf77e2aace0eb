"""All-gather and GEMM, written by hand in the dialect of Triton-distributed: copy engines push, the kernel waits per shard.

Emulated by tests, or on GPUs of one node:

    torchrun --nproc-per-node 2 -m tilelink.compat.triton_dist tests/compat/triton_dist/ag_gemm.py
"""

# mypy: ignore-errors
from __future__ import annotations

import torch
import triton.language as tl
import triton_dist
import triton_dist.language as dl
from triton_dist.kernels.nvidia.common_ops import (
    BarrierAllContext,
    _memcpy_async_cuda,
    _set_signal_cuda,
    barrier_all_on_stream,
)
from triton_dist.utils import (
    finalize_distributed,
    initialize_distributed,
    launch_cooperative_grid_options,
    nvshmem_create_tensors,
)

CALLS = 20


@triton_dist.jit(do_not_specialize=["rank"])
def consumer_gemm(
    gathered,
    w,
    out,
    signals,
    rank,
    M_PER_RANK: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    NUM_RANKS: tl.constexpr,
    BLOCK_M: tl.constexpr,
):
    """out = gathered @ w, a row of tiles per program, own rows first; a tile waits for the shard that its rows are of."""
    columns = tl.arange(0, N)
    depth = tl.arange(0, K)
    tiles_per_rank: tl.constexpr = M_PER_RANK // BLOCK_M
    for tile in range(tl.program_id(0), NUM_RANKS * tiles_per_rank, tl.num_programs(0)):
        row_tile = (tile + rank * tiles_per_rank) % (NUM_RANKS * tiles_per_rank)
        source = row_tile // tiles_per_rank
        token = dl.wait(signals + source, 1, "sys", "acquire", waitValue=1)
        a = dl.consume_token(gathered, token)
        rows = row_tile * BLOCK_M + tl.arange(0, BLOCK_M)
        x = tl.load(a + rows[:, None] * K + depth[None, :])
        y = tl.load(w + depth[:, None] * N + columns[None, :])
        tl.store(out + rows[:, None] * N + columns[None, :], tl.dot(x, y, input_precision="ieee"))


class AllGatherGemm:
    """x float32[m_per_rank, k] of each rank, w float32[k, n] -> (all x) @ w, float32[num_ranks * m_per_rank, n]."""

    def __init__(self, group, m_per_rank, n, k, num_programs=2):
        self.rank, self.num_ranks = group.rank(), group.size()
        self.m_per_rank, self.n, self.k, self.num_programs = m_per_rank, n, k, num_programs
        shape = (self.num_ranks * m_per_rank, k)
        self.gathered = nvshmem_create_tensors(shape, torch.float32, self.rank, self.num_ranks)
        self.signals = nvshmem_create_tensors((self.num_ranks,), torch.int64, self.rank, self.num_ranks)
        self.signals[self.rank].zero_()
        self.push = torch.cuda.Stream(priority=-1)
        self.meeting = BarrierAllContext(is_intra_node=True)

    def __call__(self, x, w):
        own = slice(self.rank * self.m_per_rank, (self.rank + 1) * self.m_per_rank)
        out = torch.empty(self.num_ranks * self.m_per_rank, self.n, device="cuda")
        main = torch.cuda.current_stream()
        for source in range(self.num_ranks):
            _set_signal_cuda(self.signals[self.rank][source : source + 1], int(source == self.rank), main)
        self.gathered[self.rank][own].copy_(x)
        barrier_all_on_stream(self.meeting, main)  # every rank is done with the last call, and its signals are down
        self.push.wait_stream(main)
        for step in range(1, self.num_ranks):
            peer = (self.rank + step) % self.num_ranks
            _memcpy_async_cuda(self.gathered[peer][own], x, x.nbytes, self.push)
            _set_signal_cuda(self.signals[peer][self.rank : self.rank + 1], 1, self.push)
        consumer_gemm[(self.num_programs,)](
            self.gathered[self.rank],
            w,
            out,
            self.signals[self.rank],
            self.rank,
            M_PER_RANK=self.m_per_rank,
            N=self.n,
            K=self.k,
            NUM_RANKS=self.num_ranks,
            BLOCK_M=16,
            **launch_cooperative_grid_options(),
        )
        main.wait_stream(self.push)
        return out


def main():
    """One rank on its GPU."""
    group = initialize_distributed(seed=0)
    operator = AllGatherGemm(group, 256, 64, 64, num_programs=16)
    for call in range(CALLS):
        generator = torch.Generator().manual_seed(call)
        xs = [torch.randn(256, 64, generator=generator) for _ in range(group.size())]
        w = torch.randn(64, 64, generator=generator)
        out = operator(xs[group.rank()].cuda(), w.cuda())
        torch.testing.assert_close(out.cpu(), torch.cat(xs) @ w, rtol=1e-4, atol=1e-4)
    print(f"rank {group.rank()}: {CALLS} calls equal (all x) @ w")
    finalize_distributed()


if __name__ == "__main__":
    main()
