"""Tile ops as users write them, of every kind that a declaration knows, and what they mean in torch."""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl

import tilelink
from tilelink import axes

m, n, k = axes("m n k")


@tilelink.op(reads={"x": (m, n)}, writes=(m, n), reference=lambda x: torch.relu(x) ** 2)
@triton.jit  # type: ignore[untyped-decorator]
def squared_relu(x, m, n, num_m, num_n, TILE_M: tl.constexpr, TILE_N: tl.constexpr):  # type: ignore[no-untyped-def]
    rows, cols = m + tl.arange(0, TILE_M), n + tl.arange(0, TILE_N)
    inside = (rows < num_m)[:, None] & (cols < num_n)[None, :]
    tile = tl.maximum(tl.load(x + rows[:, None] * num_n + cols[None, :], mask=inside, other=0.0).to(tl.float32), 0.0)
    return tile * tile


@triton.jit  # type: ignore[untyped-decorator]
def dot_tile(x, w, m, n, num_m, num_n, num_k, TILE_M: tl.constexpr, TILE_N: tl.constexpr):  # type: ignore[no-untyped-def]
    STEP: tl.constexpr = 16
    rows, cols = m + tl.arange(0, TILE_M), n + tl.arange(0, TILE_N)
    total = tl.zeros((TILE_M, TILE_N), tl.float32)
    for start in range(0, num_k, STEP):
        inner = start + tl.arange(0, STEP)
        x_mask = (rows < num_m)[:, None] & (inner < num_k)[None, :]
        w_mask = (inner < num_k)[:, None] & (cols < num_n)[None, :]
        x_tile = tl.load(x + rows[:, None] * num_k + inner[None, :], mask=x_mask, other=0.0)
        w_tile = tl.load(w + inner[:, None] * num_n + cols[None, :], mask=w_mask, other=0.0)
        total = tl.dot(x_tile, w_tile, total, input_precision="ieee")
    return total


@tilelink.op(reads={"x": (m, k), "w": (k, n)}, writes=(m, n), reference=lambda x, w: torch.relu(x @ w) ** 2)
@triton.jit  # type: ignore[untyped-decorator]
def squared_relu_matmul(x, w, m, n, num_m, num_n, num_k, TILE_M: tl.constexpr, TILE_N: tl.constexpr):  # type: ignore[no-untyped-def]
    positive = tl.maximum(dot_tile(x, w, m, n, num_m, num_n, num_k, TILE_M, TILE_N), 0.0)
    return positive * positive


@tilelink.op(
    reads={"x": (m, k), "w": (k, n)},
    writes=(m, n),
    reference=lambda x, w: x @ w,
    sums=k,
    linear=("x", "w"),
)
@triton.jit  # type: ignore[untyped-decorator]
def product(x, w, m, n, num_m, num_n, num_k, TILE_M: tl.constexpr, TILE_N: tl.constexpr):  # type: ignore[no-untyped-def]
    return dot_tile(x, w, m, n, num_m, num_n, num_k, TILE_M, TILE_N)


@tilelink.op(reads={"x": (m, n)}, writes=(m, n), reference=lambda x: torch.softmax(x.float(), 1))
@triton.jit  # type: ignore[untyped-decorator]
def softmax(x, m, n, num_m, num_n, TILE_M: tl.constexpr, TILE_N: tl.constexpr):  # type: ignore[no-untyped-def]
    STEP: tl.constexpr = 16
    rows, cols = m + tl.arange(0, TILE_M), n + tl.arange(0, TILE_N)
    largest = tl.full((TILE_M,), -3e38, tl.float32)
    for start in range(0, num_n, STEP):
        inner = start + tl.arange(0, STEP)
        mask = (rows < num_m)[:, None] & (inner < num_n)[None, :]
        part = tl.load(x + rows[:, None] * num_n + inner[None, :], mask=mask, other=-3e38).to(tl.float32)
        largest = tl.maximum(largest, tl.max(part, 1))
    total = tl.zeros((TILE_M,), tl.float32)
    for start in range(0, num_n, STEP):
        inner = start + tl.arange(0, STEP)
        mask = (rows < num_m)[:, None] & (inner < num_n)[None, :]
        part = tl.load(x + rows[:, None] * num_n + inner[None, :], mask=mask, other=-3e38).to(tl.float32)
        total += tl.sum(tl.exp(part - largest[:, None]), 1)
    inside = (rows < num_m)[:, None] & (cols < num_n)[None, :]
    tile = tl.load(x + rows[:, None] * num_n + cols[None, :], mask=inside, other=0.0).to(tl.float32)
    return tl.exp(tile - largest[:, None]) / total[:, None]


@tilelink.op(
    reads={"x": (m, n), "s": m},
    writes=(m, n),
    reference=lambda x, s: x * s[:, None],
    tiled=(m, n),
    linear=("x", "s"),
)
@triton.jit  # type: ignore[untyped-decorator]
def scale_rows(x, s, m, n, num_m, num_n, TILE_M: tl.constexpr, TILE_N: tl.constexpr):  # type: ignore[no-untyped-def]
    rows, cols = m + tl.arange(0, TILE_M), n + tl.arange(0, TILE_N)
    inside = (rows < num_m)[:, None] & (cols < num_n)[None, :]
    tile = tl.load(x + rows[:, None] * num_n + cols[None, :], mask=inside, other=0.0).to(tl.float32)
    return tile * tl.load(s + rows, mask=rows < num_m, other=0.0).to(tl.float32)[:, None]


@tilelink.op(reads={"x": (m, k)}, writes=m, reference=lambda x: x.sum(1), sums=k, linear="x")
@triton.jit  # type: ignore[untyped-decorator]
def row_sums(x, m, num_m, num_k, TILE_M: tl.constexpr):  # type: ignore[no-untyped-def]
    STEP: tl.constexpr = 16
    rows = m + tl.arange(0, TILE_M)
    total = tl.zeros((TILE_M,), tl.float32)
    for start in range(0, num_k, STEP):
        inner = start + tl.arange(0, STEP)
        mask = (rows < num_m)[:, None] & (inner < num_k)[None, :]
        total += tl.sum(tl.load(x + rows[:, None] * num_k + inner[None, :], mask=mask, other=0.0).to(tl.float32), 1)
    return total


@tilelink.op(
    reads={"x": (m, n)},
    writes=(m, n),
    reference=lambda x: x * (1 + torch.arange(x.shape[0], device=x.device) % 3)[:, None],
    linear="x",
)
@triton.jit  # type: ignore[untyped-decorator]
def by_position(x, m, n, num_m, num_n, TILE_M: tl.constexpr, TILE_N: tl.constexpr):  # type: ignore[no-untyped-def]
    rows, cols = m + tl.arange(0, TILE_M), n + tl.arange(0, TILE_N)
    inside = (rows < num_m)[:, None] & (cols < num_n)[None, :]
    tile = tl.load(x + rows[:, None] * num_n + cols[None, :], mask=inside, other=0.0).to(tl.float32)
    return tile * (1 + rows % 3)[:, None]


@tilelink.op(reads={"x": (n, m)}, writes=(m, n), reference=lambda x: x.T, linear="x")
@triton.jit  # type: ignore[untyped-decorator]
def turned(x, m, n, num_m, num_n, TILE_M: tl.constexpr, TILE_N: tl.constexpr):  # type: ignore[no-untyped-def]
    rows, cols = m + tl.arange(0, TILE_M), n + tl.arange(0, TILE_N)
    inside = (rows < num_m)[:, None] & (cols < num_n)[None, :]
    return tl.load(x + cols[None, :] * num_m + rows[:, None], mask=inside, other=0.0).to(tl.float32)


OPS = {
    "squared_relu": squared_relu,
    "squared_relu_matmul": squared_relu_matmul,
    "product": product,
    "softmax": softmax,
    "scale_rows": scale_rows,
    "row_sums": row_sums,
    "by_position": by_position,
    "turned": turned,
}


def _by_position(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([row * (1 + place % 3) for place, row in enumerate(x)])


DEFINITIONS: dict[str, Callable[..., torch.Tensor]] = {  # in other words than the references
    "squared_relu": lambda x: x.clamp_min(0).square(),
    "squared_relu_matmul": lambda x, w: torch.mm(x, w).clamp_min(0).square(),
    "product": torch.mm,
    "softmax": lambda x: x.exp() / x.exp().sum(-1, keepdim=True),
    "scale_rows": lambda x, s: torch.diag(s) @ x,
    "row_sums": lambda x: x @ torch.ones(x.shape[1], dtype=x.dtype),
    "by_position": _by_position,
    "turned": lambda x: x.transpose(0, 1),
}
