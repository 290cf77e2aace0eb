"""The benchmarked operators as a user declares them. Parameters stand in the order of the inputs that rows have."""

from __future__ import annotations

from typing import Annotated

from tilelink.bench.rows import Operator
from tilelink.ir.ops import all_gather, all_reduce, matmul, mul, reduce_scatter, send_recv, silu
from tilelink.ir.placement import Shard
from tilelink.ir.tensor import Tensor, dims
from tilelink.overlap import Overlap, overlap

M, N, K, H, F = dims("M N K H F")
B, C = dims("B C")


@overlap
def ag_gemm(x: Annotated[Tensor, (M, K), Shard(0)], w: Annotated[Tensor, (K, N), Shard(1)]) -> Tensor:
    return matmul(all_gather(x, dim=0), w)


@overlap
def gemm_rs(x: Annotated[Tensor, (M, K), Shard(1)], w: Annotated[Tensor, (K, N), Shard(0)]) -> Tensor:
    y = matmul(x, w)
    return reduce_scatter(y, dim=0)


@overlap
def gemm_ar(x: Annotated[Tensor, (M, K), Shard(1)], w: Annotated[Tensor, (K, N), Shard(0)]) -> Tensor:
    y = matmul(x, w)
    return all_reduce(y)


@overlap
def mlp(
    x: Annotated[Tensor, (M, H), Shard(0)],
    w_gate: Annotated[Tensor, (H, F), Shard(1)],
    w_up: Annotated[Tensor, (H, F), Shard(1)],
    w_down: Annotated[Tensor, (F, H), Shard(0)],
) -> Tensor:
    x_full = all_gather(x, dim=0)
    gate = matmul(x_full, w_gate)
    up = matmul(x_full, w_up)
    hidden = mul(silu(gate), up)
    y = matmul(hidden, w_down)
    return reduce_scatter(y, dim=0)


@overlap
def queue(x: Annotated[Tensor, (B, C), Shard(0)]) -> Tensor:
    return send_recv(x, by=1)


def declaration(operator: Operator) -> Overlap:
    match operator:
        case Operator.AG_GEMM:
            return ag_gemm
        case Operator.GEMM_RS:
            return gemm_rs
        case Operator.GEMM_AR:
            return gemm_ar
        case Operator.MLP:
            return mlp
