"""Attention, tile by tile: the softmax of what came so far is carried on (Milakov and Gimelshein, Online Normalizer Calculation
for Softmax, 2018; Dao et al., FlashAttention, 2022)."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def scores_of(queries, keys, scale: tl.constexpr, soft_cap: tl.constexpr):
    """Of each query and key, as exponents of 2."""
    precision: tl.constexpr = "ieee" if queries.dtype == tl.float32 else None
    scores = tl.dot(queries, tl.trans(keys), input_precision=precision)
    if soft_cap > 0:
        bent = scores * (scale / soft_cap)
        # tanh by one exponential, of which no argument is too large
        scores = soft_cap - 2 * soft_cap / (tl.exp(2 * bent) + 1)
        return scores * 1.4426950408889634
    return scores * (scale * 1.4426950408889634)


@triton.jit
def with_scores(top, weight, total, scores, values):
    """The state with more scores, and their values."""
    precision: tl.constexpr = "ieee" if values.dtype == tl.float32 else None
    higher = tl.maximum(top, tl.max(scores, axis=1)[:, None])
    weights = tl.exp2(scores - higher)
    before = tl.exp2(top - higher)
    total = tl.dot(weights.to(values.dtype), values, total * before, input_precision=precision)
    return higher, weight * before + tl.sum(weights, axis=1)[:, None], total


@triton.jit
def take_keys(top, weight, total, queries, keys, values, scale: tl.constexpr, soft_cap: tl.constexpr):
    """The state with a tile of keys that all queries see."""
    return with_scores(top, weight, total, scores_of(queries, keys, scale, soft_cap), values)


@triton.jit
def take_seen_keys(
    top,
    weight,
    total,
    queries,
    keys,
    values,
    scale: tl.constexpr,
    soft_cap: tl.constexpr,
    ahead,
    here,
    window: tl.constexpr,
):
    """The state with those of a tile of keys that queries see: `here` keys exist, the first query stands `ahead` tokens behind
    the first one, and sees up to itself, of a `window` at most."""
    scores = scores_of(queries, keys, scale, soft_cap)
    behind = ahead + tl.arange(0, scores.shape[0])[:, None] - tl.arange(0, scores.shape[1])[None, :]
    seen = (behind >= 0) & (tl.arange(0, scores.shape[1])[None, :] < here)
    if window > 0:
        seen = seen & (behind < window)
    return with_scores(top, weight, total, tl.where(seen, scores, float("-inf")), values)


@triton.jit
def mean_of_values(total, weight):
    """Values by weight; zeros where there are none."""
    return total / tl.where(weight > 0, weight, 1.0)
