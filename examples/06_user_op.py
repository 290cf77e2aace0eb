"""AllGather feeding a tile op of your own: a matmul whose result is squared after a ReLU."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import lowering
import tilelink
from tilelink import Shard, Tensor, dims
from tilelink.runtime.run import run_emulated

M, N, K = dims("M N K")
m, n, k = tilelink.axes("m n k")


def squared_relu_matmul_reference(x, w):
    return torch.relu(x @ w) ** 2


@tilelink.op(reads={"x": (m, k), "w": (k, n)}, writes=(m, n), reference=squared_relu_matmul_reference)
@triton.jit
def squared_relu_matmul(x, w, m, n, num_m, num_n, num_k, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    """One tile [TILE_M, TILE_N]; x and w are row-major, `m` and `n` the first row and column."""
    STEP: tl.constexpr = 32
    rows = m + tl.arange(0, TILE_M)
    cols = n + tl.arange(0, TILE_N)
    total = tl.zeros((TILE_M, TILE_N), tl.float32)
    for start in range(0, num_k, STEP):
        inner = start + tl.arange(0, STEP)
        x_mask = (rows < num_m)[:, None] & (inner < num_k)[None, :]
        w_mask = (inner < num_k)[:, None] & (cols < num_n)[None, :]
        x_tile = tl.load(x + rows[:, None] * num_k + inner[None, :], mask=x_mask, other=0.0)
        w_tile = tl.load(w + inner[:, None] * num_n + cols[None, :], mask=w_mask, other=0.0)
        total = tl.dot(x_tile, w_tile, total)
    positive = tl.maximum(total, 0.0)
    return positive * positive


@tilelink.overlap
def ag_squared_relu(x: Tensor(M, K, placement=Shard(0)), w: Tensor(K, N, placement=Shard(1))):
    return squared_relu_matmul(tilelink.all_gather(x, dim=0), w)


def main() -> None:
    schedule = ag_squared_relu.plan(topology="h200-nvswitch", num_ranks=4, M=8192, K=4096, N=14336)
    print(schedule)

    small = ag_squared_relu.plan(topology="laptop-switch", num_ranks=4, M=260, K=72, N=96)
    result = run_emulated(small, lowering.emit(small))
    print("\n".join(result.lines()))


if __name__ == "__main__":
    main()
