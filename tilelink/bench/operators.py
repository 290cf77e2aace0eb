"""The benchmarked operators as a user declares them. Parameters stand in the order of the inputs that rows have."""

from __future__ import annotations

from typing import Annotated

from tilelink.bench.rows import Operator
from tilelink.declaration import Overlap, overlap
from tilelink.ir.functions import (
    all_gather,
    all_reduce,
    combine,
    dispatch,
    grouped_matmul,
    matmul,
    mul,
    reduce_scatter,
    route,
    send_recv,
    silu,
)
from tilelink.ir.placement import Shard
from tilelink.ir.tensor import Tensor, dims

M, N, K, H, F = dims("M N K H F")
B, C = dims("B C")
T, E = dims("T E")  # tokens of all ranks, experts; H: hidden, F: width of an expert, K: experts of a token


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


@overlap
def ag_moe(
    x: Annotated[Tensor, (T, H), Shard(0)],
    ids: Annotated[Tensor, (T, K), "int32"],
    w: Annotated[Tensor, (E, H, F), Shard(2)],
) -> Tensor:
    routing = route(ids, num_experts=E)
    return grouped_matmul(all_gather(x, dim=0), w, routing)


@overlap
def moe_rs(
    h: Annotated[Tensor, (T * K, F), Shard(1)],
    ids: Annotated[Tensor, (T, K), "int32"],
    weights: Annotated[Tensor, (T, K), "fp32"],
    w: Annotated[Tensor, (E, F, H), Shard(1)],
) -> Tensor:
    routing = route(ids, num_experts=E)
    y = grouped_matmul(h, w, routing)
    return reduce_scatter(combine(y, routing, weights), dim=0)


@overlap
def ep_layer(
    x: Annotated[Tensor, (T, H), Shard(0)],
    ids: Annotated[Tensor, (T, K), Shard(0), "int32"],
    weights: Annotated[Tensor, (T, K), Shard(0), "fp32"],
    gate: Annotated[Tensor, (E, H, F), Shard(0)],
    up: Annotated[Tensor, (E, H, F), Shard(0)],
    down: Annotated[Tensor, (E, F, H), Shard(0)],
) -> Tensor:
    routing = route(ids, num_experts=E)
    rows = dispatch(x, routing)
    hidden = mul(silu(grouped_matmul(rows, gate, routing)), grouped_matmul(rows, up, routing))
    y = grouped_matmul(hidden, down, routing)
    return combine(y, routing, weights)


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
        case Operator.AG_MOE:
            return ag_moe
        case Operator.MOE_RS:
            return moe_rs
        case Operator.EP_LAYER:
            return ep_layer
