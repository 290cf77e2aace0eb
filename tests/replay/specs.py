"""Operators that the replay has beside those of tilelink/bench, examples/ and tests/pipeline/torch_specs.py: what these do not
reach. They use the public interface only."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import triton
import triton.language as tl

import tilelink
from tilelink import Partial, Shard, Tensor, dims

M, N, K, B, C = dims("M N K B C")
Rows: TypeAlias = Annotated[Tensor, (M, K), Shard(0)]
Cols: TypeAlias = Annotated[Tensor, (M, K), Shard(1)]
Right: TypeAlias = Annotated[Tensor, (K, N), Shard(1)]
Below: TypeAlias = Annotated[Tensor, (K, N), Shard(0)]


@tilelink.overlap
def gated(x: Rows, a: Right, b: Right) -> Tensor:
    x_full = tilelink.all_gather(x, dim=0)
    return tilelink.mul(tilelink.silu(tilelink.matmul(x_full, a)), tilelink.matmul(x_full, b))


@tilelink.overlap
def three(x: Rows, a: Right, b: Right, c: Right) -> tuple[Tensor, ...]:
    """Matmuls of one left operand whose results stay apart."""
    x_full = tilelink.all_gather(x, dim=0)
    return tilelink.matmul(x_full, a), tilelink.matmul(x_full, b), tilelink.matmul(x_full, c)


@tilelink.overlap
def along_k(x: Cols, w: Right) -> Tensor:
    """Parts of what is gathered lie along the axis that is summed."""
    return tilelink.matmul(tilelink.all_gather(x, dim=1), w)


@tilelink.overlap
def scatter_columns(x: Cols, w: Below) -> Tensor:
    return tilelink.reduce_scatter(tilelink.matmul(x, w), dim=1)


@tilelink.overlap
def rows_and_columns(x: Cols, w: Below) -> tuple[Tensor, ...]:
    """Parts of one value are added twice."""
    y = tilelink.matmul(x, w)
    return tilelink.reduce_scatter(y, dim=0), tilelink.reduce_scatter(y, dim=1)


@tilelink.overlap
def reduce_scaled(x: Cols, w: Below, scale: Annotated[Tensor, (M, N)]) -> Tensor:
    """Elementwise operations before and behind an all_reduce."""
    return tilelink.relu(tilelink.all_reduce(tilelink.matmul(x, w) * scale))


@tilelink.overlap
def folded(x: Cols, w: Below) -> Tensor:
    """Elementwise operations on what is gathered."""
    z = tilelink.all_reduce(tilelink.matmul(x, w))
    return z * tilelink.relu(z)


@tilelink.overlap
def gathered_weights(x: Rows, w: Annotated[Tensor, (K, N), Shard(0)]) -> Tensor:
    return tilelink.matmul(x, tilelink.all_gather(w, dim=0))


@tilelink.overlap
def only_gather(x: Rows) -> Tensor:
    return tilelink.all_gather(x, dim=0)


@tilelink.overlap
def only_sum(x: Annotated[Tensor, (M, N), Partial()]) -> Tensor:
    return tilelink.all_reduce(x)


@tilelink.overlap
def to_next(x: Annotated[Tensor, (B, C), Partial()]) -> Tensor:
    """A queue of what a collective makes."""
    return tilelink.send_recv(tilelink.reduce_scatter(x, dim=0), by=1)


@tilelink.overlap
def from_previous(x: Annotated[Tensor, (B, C), Shard(0)], w: Annotated[Tensor, (C, N)]) -> Tensor:
    """A queue with elementwise operations behind it, and a matmul of those."""
    received = tilelink.send_recv(x, by=1)
    return tilelink.matmul(tilelink.relu(received), w)


m, n, k = tilelink.axes("m n k")


@tilelink.op(reads={"x": (k, m), "w": (k, n)}, writes=(m, n), reference=lambda x, w: x.t() @ w)
@triton.jit  # type: ignore[untyped-decorator]
def turned_product(x, w, m, n, num_m, num_n, num_k, TILE_M: tl.constexpr, TILE_N: tl.constexpr):  # type: ignore[no-untyped-def]
    rows, cols = m + tl.arange(0, TILE_M), n + tl.arange(0, TILE_N)
    total = tl.zeros((TILE_M, TILE_N), tl.float32)
    for start in range(0, num_k, 32):
        inner = start + tl.arange(0, 32)
        x_mask = (inner < num_k)[:, None] & (rows < num_m)[None, :]
        w_mask = (inner < num_k)[:, None] & (cols < num_n)[None, :]
        x_tile = tl.load(x + inner[:, None] * num_m + rows[None, :], mask=x_mask, other=0.0)
        w_tile = tl.load(w + inner[:, None] * num_n + cols[None, :], mask=w_mask, other=0.0)
        total = tl.dot(tl.trans(x_tile), w_tile, total)
    return total


@tilelink.overlap
def user_op_sums_what_is_gathered(x: Annotated[Tensor, (K, M)], w: Below) -> Tensor:
    """A user's tile op reads one plain tensor along the axis that is gathered."""
    return turned_product(x, tilelink.all_gather(w, dim=0))
