"""Folds of users, specs of them, and what they are by definition: a loop over elements of whole tensors in float64."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

import tilelink
from tilelink import Replicate, Shard, Tensor, dims
from tilelink.declaration import Overlap
from tilelink.ir.placement import Placement
from tilelink.ir.spec import BoundSpec, bind

M, N = dims("M N")
m, n = tilelink.axes("m n")
EPS = 1e-6


@triton.jit
def plus(total, more):
    return total + more


@triton.jit
def rsqrt_of_mean(total, all_n):
    return tl.rsqrt(total / all_n + EPS)


@tilelink.fold(reads={"x": (m, n)}, over=n, state={"total": 0.0}, merge=plus, reference=lambda x: x.sum(1))
@triton.jit
def row_sum(x, m, n, num_m, num_n, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    row, col = m + tl.arange(0, TILE_M), n + tl.arange(0, TILE_N)
    there = (row < num_m)[:, None] & (col < num_n)[None, :]
    tile = tl.load(x + row[:, None].to(tl.int64) * num_n + col[None, :], mask=there, other=0.0)
    return tl.sum(tile.to(tl.float32), axis=1)


@tilelink.fold(reads={"x": (n, m)}, over=n, state={"total": 0.0}, merge=plus, reference=lambda x: x.sum(0))
@triton.jit
def column_sum(x, m, n, num_m, num_n, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    row, col = m + tl.arange(0, TILE_M), n + tl.arange(0, TILE_N)
    there = (row < num_m)[:, None] & (col < num_n)[None, :]
    tile = tl.load(x + row[:, None] + col[None, :].to(tl.int64) * num_m, mask=there, other=0.0)
    return tl.sum(tile.to(tl.float32), axis=1)


@tilelink.fold(
    reads={"x": (m, n)},
    over=n,
    state={"total": 0.0},
    merge=plus,
    finish=rsqrt_of_mean,
    reference=lambda x: torch.rsqrt(x.square().mean(1) + EPS),
)
@triton.jit
def rms(x, m, n, num_m, num_n, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    row, col = m + tl.arange(0, TILE_M), n + tl.arange(0, TILE_N)
    there = (row < num_m)[:, None] & (col < num_n)[None, :]
    tile = tl.load(x + row[:, None].to(tl.int64) * num_n + col[None, :], mask=there, other=0.0).to(tl.float32)
    return tl.sum(tile * tile, axis=1)


@tilelink.fold(
    reads={"x": (m, n), "y": (m, n), "bias": (m,), "gain": (n,)},
    over=n,
    state={"total": 0.0},
    merge=plus,
    reference=lambda x, y, bias, gain: ((x + bias[:, None]) * y * gain).sum(1),
)
@triton.jit
def weighted(x, y, bias, gain, m, n, num_m, num_n, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    row, col = m + tl.arange(0, TILE_M), n + tl.arange(0, TILE_N)
    there = (row < num_m)[:, None] & (col < num_n)[None, :]
    at = row[:, None].to(tl.int64) * num_n + col[None, :]
    left = tl.load(x + at, mask=there, other=0.0).to(tl.float32)
    right = tl.load(y + at, mask=there, other=0.0).to(tl.float32)
    more = tl.load(bias + row, mask=row < num_m, other=0.0).to(tl.float32)
    by = tl.load(gain + col, mask=col < num_n, other=0.0).to(tl.float32)
    return tl.sum((left + more[:, None]) * right * by[None, :], axis=1)


# ---- a vocabulary that ranks share -------------------------------------------------------------------------------------


@triton.jit
def merge_weights(top, weight, picked, more_top, more_weight, more_picked):
    higher = tl.maximum(top, more_top)
    safe = tl.where(higher == float("-inf"), 0.0, higher)
    return higher, weight * tl.exp(top - safe) + more_weight * tl.exp(more_top - safe), picked + more_picked


@triton.jit
def loss_of(top, weight, picked):
    return top + tl.log(weight) - picked


@triton.jit
def lse_of(top, weight):
    return top + tl.log(weight)


def cross_entropy_reference(x, labels):
    lse = torch.logsumexp(x, 1)
    return lse - x.gather(1, labels[:, None])[:, 0], lse


@tilelink.fold(
    reads={"x": (m, n), "labels": (m,)},
    over=n,
    state={"top": float("-inf"), "weight": 0.0, "picked": 0.0},
    merge=merge_weights,
    finish={"loss": loss_of, "lse": lse_of},
    reference=cross_entropy_reference,
)
@triton.jit
def cross_entropy(x, labels, m, n, num_m, num_n, first_n, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    row, col = m + tl.arange(0, TILE_M), n + tl.arange(0, TILE_N)
    there = (row < num_m)[:, None] & (col < num_n)[None, :]
    at = x + row[:, None].to(tl.int64) * num_n + col[None, :]
    logits = tl.load(at, mask=there, other=float("-inf")).to(tl.float32)
    top = tl.max(logits, axis=1)
    safe = tl.where(top == float("-inf"), 0.0, top)
    weight = tl.sum(tl.exp(logits - safe[:, None]), axis=1)
    label = tl.load(labels + row, mask=row < num_m, other=-1) - first_n
    here = (row < num_m) & (label >= n) & (label < tl.minimum(n + TILE_N, num_n))
    picked = tl.load(x + row.to(tl.int64) * num_n + label, mask=here, other=0.0).to(tl.float32)
    return top, weight, picked


# ---- a merge that does not commute -------------------------------------------------------------------------------------


@triton.jit
def compose(scale, shift, more_scale, more_shift):
    """x -> scale * x + shift, then the other one."""
    return scale * more_scale, shift * more_scale + more_shift


@triton.jit
def at_one(scale, shift):
    return scale + shift


def recurrence_reference(x, y):
    found = torch.ones_like(x[:, 0])
    for step in range(x.shape[1]):
        found = found * (1 - x[:, step].abs() / 8) + y[:, step]
    return found


@tilelink.fold(
    reads={"x": (m, n), "y": (m, n)},
    over=n,
    state={"scale": 1.0, "shift": 0.0},
    merge=compose,
    finish=at_one,
    reference=recurrence_reference,
)
@triton.jit
def recurrence(x, y, m, n, num_m, num_n, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    """h = (1 - |x| / 8) * h + y, element by element."""
    row, col = m + tl.arange(0, TILE_M), n + tl.arange(0, TILE_N)
    there = (row < num_m)[:, None] & (col < num_n)[None, :]
    at = row[:, None].to(tl.int64) * num_n + col[None, :]
    scales = 1.0 - tl.abs(tl.load(x + at, mask=there, other=0.0).to(tl.float32)) / 8
    shifts = tl.load(y + at, mask=there, other=0.0).to(tl.float32)
    scale, shift = tl.full((TILE_M,), 1.0, tl.float32), tl.zeros((TILE_M,), tl.float32)
    for step in range(TILE_N):
        here = (tl.arange(0, TILE_N) == step)[None, :]
        by = tl.sum(tl.where(here, scales, 0.0), axis=1)
        scale, shift = scale * by, shift * by + tl.sum(tl.where(here, shifts, 0.0), axis=1)
    return scale, shift


# ---- specs -------------------------------------------------------------------------------------------------------------


def spec_of(kind: str, how: str) -> Overlap:
    """The fold `kind`, its states merged by `how`: "all", "scattered"; "alone": ranks have rows each, "whole": all of them."""
    long, row = {"alone": (Shard(0), Shard(0)), "whole": (Replicate(), Replicate())}.get(how, (Shard(1), Replicate()))
    along: Placement = Shard(0) if long == Shard(1) else Replicate()

    def reduced(result: Tensor) -> Tensor:
        if how == "all":
            return tilelink.all_reduce(result)
        return tilelink.reduce_scatter(result, dim=0) if how == "scattered" else result

    @tilelink.overlap
    def sums(x: Tensor(M, N, placement=long)):
        return reduced(row_sum(x))

    turned = Shard(1 - long.dim) if isinstance(long, Shard) else long

    @tilelink.overlap
    def columns(x: Tensor(N, M, placement=turned)):
        return reduced(column_sum(x))

    @tilelink.overlap
    def norms(x: Tensor(M, N, placement=long)):
        return reduced(rms(x))

    @tilelink.overlap
    def products(
        x: Tensor(M, N, placement=long),
        y: Tensor(M, N, placement=long),
        bias: Tensor(M, placement=row),
        gain: Tensor(N, placement=along),
    ):
        return reduced(weighted(x, y, bias, gain))

    @tilelink.overlap
    def losses(x: Tensor(M, N, placement=long), labels: Tensor(M, dtype="int32", placement=row)):
        loss, lse = cross_entropy(x, labels)
        return reduced(loss), reduced(lse)

    @tilelink.overlap
    def recurrences(x: Tensor(M, N, placement=long), y: Tensor(M, N, placement=long)):
        return reduced(recurrence(x, y))

    every = {one.spec.name: one for one in (sums, columns, norms, products, losses, recurrences)}
    return every[kind]


KINDS = ("sums", "columns", "norms", "products", "losses", "recurrences")
HOWS = ("all", "scattered", "alone", "whole")


def by_definition(kind: str, whole: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Results on whole tensors in float64, element after element."""
    x = whole["x"].double()
    count = x.shape[0] if kind != "columns" else x.shape[1]
    found = torch.zeros(2, count, dtype=torch.float64)
    for row in range(count):
        line = (x[:, row] if kind == "columns" else x[row]).tolist()
        other = whole["y"][row].double().tolist() if "y" in whole else line
        total = 1.0 if kind == "recurrences" else 0.0
        for place, one in enumerate(line):
            match kind:
                case "sums" | "columns":
                    total += one
                case "norms":
                    total += one * one / len(line)
                case "products":
                    total += (one + float(whole["bias"][row])) * other[place] * float(whole["gain"][place])
                case "losses":
                    total += float(torch.tensor(one, dtype=torch.float64).exp())
                case "recurrences":
                    total = total * (1 - abs(one) / 8) + other[place]
        found[0, row] = total
        if kind == "norms":
            found[0, row] = (total + EPS) ** -0.5
        if kind == "losses":
            lse = torch.tensor(total, dtype=torch.float64).log()
            found[0, row], found[1, row] = lse - line[int(whole["labels"][row])], lse
    return tuple(found) if kind == "losses" else (found[0],)


@dataclass(frozen=True)
class Drawn:
    kind: str
    how: str
    spec: BoundSpec


def drawn(rng: random.Random, ranks: int, kind: str = "", how: str = "") -> Drawn:
    """Any number of rows and elements, few, one, or some."""
    kind, how = kind or rng.choice(KINDS), how or rng.choice(HOWS)
    rows = rng.choice([1, 2, rng.randint(1, 40)]) * (ranks if how in ("scattered", "alone") else 1)
    elements = rng.choice([1, rng.randint(1, 40), rng.randint(1, 300)]) * (ranks if how in ("all", "scattered") else 1)
    return Drawn(
        kind, how, bind(spec_of(kind, how).spec, {"M": rows, "N": elements}, ranks, rng.choice(["bf16", "fp32"]))
    )
