"""Specs whose loops wait in places of their own."""

import torch
import triton
import triton.language as tl

import tilelink
from tilelink import Shard, Tensor, all_gather, dims, matmul, overlap

M, N, K = dims("M N K")
m, n, k = tilelink.axes("m n k")


@overlap
def gathered_columns(x: Tensor(M, K, placement=Shard(1)), w: Tensor(K, N)):
    return matmul(all_gather(x, dim=1), w)


@overlap
def gathered_weights(x: Tensor(M, K), w: Tensor(K, N, placement=Shard(0))):
    return matmul(x, all_gather(w, dim=0))


@overlap
def gathered_twice(x: Tensor(M, K, placement=Shard(0)), w: Tensor(K, N, placement=Shard(1))):
    return all_gather(matmul(all_gather(x, dim=0), w), dim=1)


@tilelink.op(reads={"x": (m, k), "w": (k, n)}, writes=(m, n), reference=lambda x, w: torch.relu(x @ w) ** 2)
@triton.jit
def squared(x, w, m, n, num_m, num_n, num_k, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    rows, cols, depth = m + tl.arange(0, TILE_M), n + tl.arange(0, TILE_N), tl.arange(0, 64)
    total = tl.zeros((TILE_M, TILE_N), tl.float32)
    for start in range(0, num_k, 64):
        left = tl.load(x + rows[:, None] * num_k + (start + depth)[None, :])
        right = tl.load(w + (start + depth)[:, None] * num_n + cols[None, :])
        total = tl.dot(left, right, total)
    total = tl.maximum(total, 0.0)
    return total * total


@overlap
def user_matmul(x: Tensor(M, K, placement=Shard(0)), w: Tensor(K, N, placement=Shard(1))):
    return squared(all_gather(x, dim=0), w)
