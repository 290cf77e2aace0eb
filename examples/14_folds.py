"""Folds of your own over an axis that ranks share: the loss over a sharded vocabulary, and the norm of sharded rows.

Each rank makes a state of its own part, and one kernel exchanges and merges states: nothing as large as the logits travels.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import lowering
import tilelink
from tilelink import Shard, Tensor, dims
from tilelink.runtime.run import run_emulated

T, V, H = dims("T V H")
m, n = tilelink.axes("m n")
EPS = 1e-6


# ---- cross-entropy: of each row the highest logit, the sum of weights below it, and the logit of the label -----------------


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


def cross_entropy_reference(logits, labels):
    lse = torch.logsumexp(logits, 1)
    return lse - logits.gather(1, labels[:, None])[:, 0], lse


@tilelink.fold(
    reads={"logits": (m, n), "labels": (m,)},
    over=n,
    state={"top": float("-inf"), "weight": 0.0, "picked": 0.0},
    merge=merge_weights,
    finish={"loss": loss_of, "lse": lse_of},
    reference=cross_entropy_reference,
)
@triton.jit
def cross_entropy(logits, labels, m, n, num_m, num_n, first_n, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    """The state of logits[m : m + TILE_M, n : n + TILE_N]; `first_n` logits of a row are on lower ranks."""
    row, col = m + tl.arange(0, TILE_M), n + tl.arange(0, TILE_N)
    start = logits + row.to(tl.int64) * num_n
    there = (row < num_m)[:, None] & (col < num_n)[None, :]
    tile = tl.load(start[:, None] + col[None, :], mask=there, other=float("-inf")).to(tl.float32)
    top = tl.max(tile, axis=1)
    safe = tl.where(top == float("-inf"), 0.0, top)
    weight = tl.sum(tl.exp(tile - safe[:, None]), axis=1)
    label = tl.load(labels + row, mask=row < num_m, other=-1) - first_n
    here = (row < num_m) & (label >= n) & (label < tl.minimum(n + TILE_N, num_n))
    return top, weight, tl.load(start + label, mask=here, other=0.0).to(tl.float32)


@tilelink.overlap
def vocabulary_loss(logits: Tensor(T, V, placement=Shard(1)), labels: Tensor(T, dtype="int32")):
    loss, lse = cross_entropy(logits, labels)
    return tilelink.all_reduce(loss), tilelink.all_reduce(lse)


# ---- RMSNorm of rows of which each rank has some columns -------------------------------------------------------------------


@triton.jit
def plus(total, more):
    return total + more


@triton.jit
def rsqrt_of_mean(total, all_n):
    return tl.rsqrt(total / all_n + EPS)


@tilelink.fold(
    reads={"x": (m, n)},
    over=n,
    state={"total": 0.0},
    merge=plus,
    finish=rsqrt_of_mean,
    reference=lambda x: torch.rsqrt(x.square().mean(1) + EPS),
)
@triton.jit
def scale_of_rows(x, m, n, num_m, num_n, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    row, col = m + tl.arange(0, TILE_M), n + tl.arange(0, TILE_N)
    there = (row < num_m)[:, None] & (col < num_n)[None, :]
    tile = tl.load(x + row[:, None].to(tl.int64) * num_n + col[None, :], mask=there, other=0.0).to(tl.float32)
    return tl.sum(tile * tile, axis=1)


@tilelink.op(
    reads={"x": (m, n), "scale": (m,), "weight": (n,)},
    writes=(m, n),
    reference=lambda x, scale, weight: x * scale[:, None] * weight,
)
@triton.jit
def scaled(x, scale, weight, m, n, num_m, num_n, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    row, col = m + tl.arange(0, TILE_M), n + tl.arange(0, TILE_N)
    there = (row < num_m)[:, None] & (col < num_n)[None, :]
    tile = tl.load(x + row[:, None].to(tl.int64) * num_n + col[None, :], mask=there, other=0.0).to(tl.float32)
    by = tl.load(scale + row, mask=row < num_m, other=0.0)
    gain = tl.load(weight + col, mask=col < num_n, other=0.0).to(tl.float32)
    return tile * by[:, None] * gain[None, :]


@tilelink.overlap
def sharded_norm(x: Tensor(T, H, placement=Shard(1)), weight: Tensor(H, placement=Shard(0))):
    return scaled(x, tilelink.all_reduce(scale_of_rows(x)), weight)


def main() -> None:
    print(vocabulary_loss.plan(topology="h200-nvswitch", num_ranks=4, T=4096, V=128256))
    print(sharded_norm.plan(topology="h200-nvswitch", num_ranks=4, T=4096, H=16384))

    for small in (
        vocabulary_loss.plan(topology="laptop-switch", num_ranks=4, T=13, V=4 * 150),
        sharded_norm.plan(topology="laptop-switch", num_ranks=4, T=13, H=4 * 24),
    ):
        result = run_emulated(small, lowering.emit(small))
        print("\n".join(result.lines()))


if __name__ == "__main__":
    main()
