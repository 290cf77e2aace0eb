"""Operators of rows of the table of features: those of examples/, and what only tests need."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import tilelink
from tests.pipeline.workloads import load
from tilelink import Partial, Replicate, Shard, Tensor, dims

AG_GEMM, GEMM_RS = load("02_ag_gemm.py:ag_gemm"), load("03_gemm_rs.py:gemm_rs")
GEMM_AR, MLP = load("04_gemm_ar.py:gemm_ar"), load("05_mlp.py:mlp")
USER_OP = load("06_user_op.py:ag_squared_relu")

B, C, K, M, N = dims("B C K M N")
ROWS: TypeAlias = Annotated[Tensor, (M, K), Shard(0)]
COLUMNS: TypeAlias = Annotated[Tensor, (M, K), Shard(1)]
WEIGHT: TypeAlias = Annotated[Tensor, (K, N), Shard(1)]
WEIGHT_ROWS: TypeAlias = Annotated[Tensor, (K, N), Shard(0)]


@tilelink.overlap
def scatter_columns(x: COLUMNS, w: WEIGHT_ROWS) -> Tensor:
    return tilelink.reduce_scatter(tilelink.matmul(x, w), dim=1)


@tilelink.overlap
def reduce_scaled(x: COLUMNS, w: WEIGHT_ROWS, scale: Annotated[Tensor, (M, N)]) -> Tensor:
    return tilelink.relu(tilelink.all_reduce(tilelink.matmul(x, w) * scale))


@tilelink.overlap
def folded(x: COLUMNS, w: WEIGHT_ROWS) -> Tensor:
    """Elementwise operations that fold into the copy."""
    y = tilelink.matmul(x, w)
    z = tilelink.all_reduce(y)
    return z * tilelink.relu(z)


@tilelink.overlap
def behind_a_matmul(
    x: ROWS,
    w: WEIGHT,
    bias: Annotated[Tensor, (1, N), Shard(1)],
    scale: Annotated[Tensor, (M, 1), Replicate()],
    more: Annotated[Tensor, (M, N), Shard(1)],
) -> Tensor:
    """A row, a column and a matrix, each of which tiles load behind their product."""
    y = tilelink.matmul(tilelink.all_gather(x, dim=0), w)
    return (tilelink.silu(y + bias) * scale + more) * 0.5


@tilelink.overlap
def gated(x: ROWS, a: WEIGHT, b: WEIGHT) -> Tensor:
    x_full = tilelink.all_gather(x, dim=0)
    one = tilelink.silu(tilelink.matmul(x_full, a))
    two = tilelink.matmul(x_full, b)
    return tilelink.mul(one, two)


@tilelink.overlap
def three(x: ROWS, a: WEIGHT, b: WEIGHT, c: WEIGHT) -> Tensor:
    x_full = tilelink.all_gather(x, dim=0)
    one, two, third = tilelink.matmul(x_full, a), tilelink.matmul(x_full, b), tilelink.matmul(x_full, c)
    return tilelink.silu(one) * two + third


@tilelink.overlap
def along_k(x: COLUMNS, a: WEIGHT, b: WEIGHT) -> Tensor:
    x_full = tilelink.all_gather(x, dim=1)
    one, two = tilelink.matmul(x_full, a), tilelink.matmul(x_full, b)
    return tilelink.silu(one) * two


@tilelink.overlap
def in_a_pipeline(
    x: Annotated[Tensor, (B, C), Shard(0)],
    w: Annotated[Tensor, (C, N), Replicate()],
    b: Annotated[Tensor, (N,), Replicate()],
) -> Tensor:
    """Made by tiles, sent two ranks back, folded into an epilogue, sent on and gathered."""
    y = tilelink.matmul(x, w)
    before = tilelink.relu(tilelink.send_recv(y, by=-2) + b)
    return tilelink.all_gather(tilelink.send_recv(before, by=1), dim=0)


@tilelink.overlap
def columns_and_rows(x: Annotated[Tensor, (B, C), Shard(1)], b: Annotated[Tensor, (C,), Shard(0)]) -> Tensor:
    """Parts that lie side by side, and parts of one dimension."""
    return tilelink.send_recv(x, by=1) + tilelink.send_recv(b, by=1)


@tilelink.overlap
def summed(x: Annotated[Tensor, (B, C), Partial()]) -> Tensor:
    """A value that a library call makes."""
    return tilelink.send_recv(tilelink.reduce_scatter(x, dim=0), by=1)


Q, V = dims("Q V")


@tilelink.overlap
def qkv(
    x: ROWS,
    wq: Annotated[Tensor, (K, Q), Shard(1)],
    wk: Annotated[Tensor, (K, V), Shard(1)],
    wv: Annotated[Tensor, (K, V), Shard(1)],
) -> tuple[Tensor, Tensor, Tensor]:
    """Three matmuls of one gathered operand, whose results stay apart."""
    x_full = tilelink.all_gather(x, dim=0)
    return tilelink.matmul(x_full, wq), tilelink.matmul(x_full, wk), tilelink.matmul(x_full, wv)


@tilelink.overlap
def side_by_side(
    x: Annotated[Tensor, (M, K)], a: WEIGHT, y: Annotated[Tensor, (V, K)], b: WEIGHT
) -> tuple[Tensor, Tensor]:
    """Two matmuls that have nothing in common."""
    return tilelink.relu(tilelink.matmul(x, a)), tilelink.matmul(y, b)
