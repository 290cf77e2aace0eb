"""The operators that planner tests plan."""

from __future__ import annotations

from typing import Annotated

import tilelink
from tilelink import Shard, Tensor, dims

M, N, K = dims("M N K")
H, F = dims("H F")


@tilelink.overlap
def ag_gemm(x: Annotated[Tensor, (M, K), Shard(0)], w: Annotated[Tensor, (K, N), Shard(1)]) -> Tensor:
    x_full = tilelink.all_gather(x, dim=0)
    return tilelink.matmul(x_full, w)


@tilelink.overlap
def gemm_rs(x: Annotated[Tensor, (M, K), Shard(1)], w: Annotated[Tensor, (K, N), Shard(0)]) -> Tensor:
    y = tilelink.matmul(x, w)
    return tilelink.reduce_scatter(y, dim=0)


@tilelink.overlap
def gemm_ar(x: Annotated[Tensor, (M, K), Shard(1)], w: Annotated[Tensor, (K, N), Shard(0)]) -> Tensor:
    y = tilelink.matmul(x, w)
    return tilelink.all_reduce(y)


@tilelink.overlap
def mlp(
    x: Annotated[Tensor, (M, H), Shard(0)],
    w_gate: Annotated[Tensor, (H, F), Shard(1)],
    w_up: Annotated[Tensor, (H, F), Shard(1)],
    w_down: Annotated[Tensor, (F, H), Shard(0)],
) -> Tensor:
    x_full = tilelink.all_gather(x, dim=0)
    gate = tilelink.matmul(x_full, w_gate)
    up = tilelink.matmul(x_full, w_up)
    hidden = tilelink.silu(gate) * up
    y = tilelink.matmul(hidden, w_down)
    return tilelink.reduce_scatter(y, dim=0)
