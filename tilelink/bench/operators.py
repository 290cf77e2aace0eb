"""The benchmarked operators as a user declares them. Parameters stand in the order of the inputs that rows have."""

from __future__ import annotations

from typing import Annotated

from tilelink.bench.rows import Operator
from tilelink.declaration import Overlap, overlap
from tilelink.ir.functions import all_gather, all_reduce, matmul, mul, reduce_scatter, send_recv, silu
from tilelink.ir.placement import Shard
from tilelink.ir.tensor import Tensor, dims

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


@overlap
def ag_linear(x: Annotated[Tensor, (M, K), Shard(0)], w: Annotated[Tensor, (N, K), Shard(0)]) -> Tensor:
    return matmul(all_gather(x, dim=0), w.T)


@overlap
def linear_rs(x: Annotated[Tensor, (M, K), Shard(1)], w: Annotated[Tensor, (N, K), Shard(1)]) -> Tensor:
    y = matmul(x, w.T)
    return reduce_scatter(y, dim=0)


@overlap
def linear_ar(x: Annotated[Tensor, (M, K), Shard(1)], w: Annotated[Tensor, (N, K), Shard(1)]) -> Tensor:
    y = matmul(x, w.T)
    return all_reduce(y)


@overlap
def linear_mlp(
    x: Annotated[Tensor, (M, H), Shard(0)],
    w_gate: Annotated[Tensor, (F, H), Shard(0)],
    w_up: Annotated[Tensor, (F, H), Shard(0)],
    w_down: Annotated[Tensor, (H, F), Shard(1)],
) -> Tensor:
    x_full = all_gather(x, dim=0)
    gate = matmul(x_full, w_gate.T)
    up = matmul(x_full, w_up.T)
    hidden = mul(silu(gate), up)
    y = matmul(hidden, w_down.T)
    return reduce_scatter(y, dim=0)


def declaration(operator: Operator, k_major: bool = False) -> Overlap:
    """The operator; with `k_major`, of weights that lie as [N, K]."""
    match operator:
        case Operator.AG_GEMM:
            return ag_linear if k_major else ag_gemm
        case Operator.GEMM_RS:
            return linear_rs if k_major else gemm_rs
        case Operator.GEMM_AR:
            return linear_ar if k_major else gemm_ar
        case Operator.MLP:
            return linear_mlp if k_major else mlp
