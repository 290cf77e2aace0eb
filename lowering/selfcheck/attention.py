"""Attention on whole tensors, and the error that rounding explains of it."""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import torch

from lowering.selfcheck.near import Near, spread_of

ROWS = 512  # of queries at a time


def attention_of(
    q: Near, k: Near, v: Near, dtype: torch.dtype, *, causal: bool, window: int, soft_cap: float, scale: float
) -> Near:
    """Queries [B, S, Q, D] over keys and values [B, T, G, D]. Weights are rounded to `dtype` before they are multiplied with
    values; scores and sums are in fp32."""
    value = torch.zeros(q.value.shape, dtype=torch.float64, device=q.value.device)
    error = torch.zeros(q.value.shape, dtype=torch.float32, device=q.value.device)
    shared = q.value.shape[2] // k.value.shape[2]
    for b in range(q.value.shape[0]):
        for head in range(q.value.shape[2]):
            some = [_head(one, b, at) for one, at in ((q, head), (k, head // shared), (v, head // shared))]
            for first in range(0, q.value.shape[1], ROWS):
                last = min(first + ROWS, q.value.shape[1])
                rows = some[0].rows(first, last, some[0].value.shape)
                hidden = _hidden(first, last, k.value.shape[1], q.value.device, causal=causal, window=window)
                found = _of_rows(rows, some[1], some[2], hidden, dtype, soft_cap, scale)
                value[b, first:last, head], error[b, first:last, head] = found.value, torch.as_tensor(found.error)
    return Near(value, error)


def _head(x: Near, b: int, head: int) -> Near:
    return Near(x.value[b, :, head].double(), x.error if isinstance(x.error, float) else x.error[b, :, head])


def _hidden(first: int, last: int, keys: int, device: torch.device, *, causal: bool, window: int) -> torch.Tensor:
    """Which keys each row of queries does not see."""
    behind = torch.arange(first, last, device=device)[:, None] - torch.arange(keys, device=device)
    return (causal & (behind < 0)) | ((window > 0) & (behind >= window))


def _of_rows(
    q: Near, k: Near, v: Near, hidden: torch.Tensor, dtype: torch.dtype, soft_cap: float, scale: float
) -> Near:
    """How far the result moves: each weight by the error of its score, its rounding, and that of exponentials; the sums by their
    additions; each value by its own error."""
    products = q.times(k.T)
    scores, off = products.value * scale, products.error * scale
    if soft_cap > 0:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    off = off + 2**-21 * (scores.abs().float() + soft_cap)
    weights = torch.softmax(scores.masked_fill(hidden, -torch.inf), 1).nan_to_num(0.0)
    result = Near(weights).times(v)
    spread = spread_of(weights, v.value)
    moved = weights.float() * off
    error = torch.as_tensor(result.error) + 4 * torch.finfo(dtype).eps / 2 * spread
    error = error + 5 * (spread_of(moved, v.value) + moved.square().sum(1, keepdim=True).sqrt() * result.value.abs())
    return Near(result.value, error.float() + 2**-20 * (weights.float() @ v.value.abs().float()))
