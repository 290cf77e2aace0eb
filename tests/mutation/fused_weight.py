"""A weight of two matrices side by side, and numbers in the epilogue: for mutants of windows and of constants."""

from __future__ import annotations

from tilelink import Shard, Tensor, all_gather, dims, matmul, overlap, silu

M, K, N, F = dims("M K N F")


@overlap
def gated(x: Tensor(M, K, placement=Shard(0)), w: Tensor(K, 2 * F), scale: Tensor(M, 1)):
    gate, up = matmul(all_gather(x, dim=0), w).chunk(2, dim=-1)
    return silu(gate) * up * scale * 0.5


@overlap
def uneven(x: Tensor(M, K, placement=Shard(0)), w: Tensor(K, N)):
    y = matmul(all_gather(x, dim=0), w)
    return silu(y[:, :F]), y[:, F:]
