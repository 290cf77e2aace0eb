"""Attention on whole tensors, and the error that rounding explains of it."""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import math

import torch

from lowering.selfcheck.near import Near, spread_of

ROWS = 512  # of queries at a time


def attention_of(
    q: Near,
    k: Near,
    v: Near,
    dtype: torch.dtype,
    *,
    causal: bool,
    window: int,
    soft_cap: float,
    scale: float,
    zigzag: int = 0,
    library: torch.dtype | None = None,
) -> Near:
    """Queries [B, S, Q, D] over keys and values [B, T, G, D]. Weights are rounded to `dtype` before they are multiplied with
    values; scores and sums are in fp32. `zigzag`: ranks, of which each has a block of the first tokens and one of the last ones.
    A `library` attends piece by piece of the keys, rounds the mean of each to such a dtype, and merges them."""
    value = torch.zeros(q.value.shape, dtype=torch.float64, device=q.value.device)
    error = torch.zeros(q.value.shape, dtype=torch.float32, device=q.value.device)
    token = tokens_in_order(q.value.shape[1], zigzag, q.value.device)
    shared = q.value.shape[2] // k.value.shape[2]
    for b in range(q.value.shape[0]):
        for head in range(q.value.shape[2]):
            some = [_head(one, b, at) for one, at in ((q, head), (k, head // shared), (v, head // shared))]
            for first in range(0, q.value.shape[1], ROWS):
                last = min(first + ROWS, q.value.shape[1])
                rows = some[0].rows(first, last, some[0].value.shape)
                seen_at = token if causal else torch.arange(k.value.shape[1], device=token.device)
                hidden = _hidden(token[first:last], seen_at, causal=causal, window=window)
                found = _of_rows(rows, some[1], some[2], hidden, dtype, soft_cap, scale, library)
                value[b, first:last, head], error[b, first:last, head] = found.value, torch.as_tensor(found.error)
    return Near(value, error)


def attention_logs(
    q: Near, k: Near, *, causal: bool, window: int, soft_cap: float, scale: float, base2: bool, zigzag: int = 0
) -> Near:
    """Logarithms [B, S, Q], of base e or 2, of the sums of the weights of queries [B, S, Q, D] over keys [B, T, G, D]. One moves
    as much as the mean of the scores by weight, and by rounding of its own size."""
    value = torch.zeros(q.value.shape[:3], dtype=torch.float64, device=q.value.device)
    error = torch.zeros(q.value.shape[:3], dtype=torch.float32, device=q.value.device)
    token, shared = tokens_in_order(q.value.shape[1], zigzag, q.value.device), q.value.shape[2] // k.value.shape[2]
    seen_at = token if causal else torch.arange(k.value.shape[1], device=token.device)
    for b in range(q.value.shape[0]):
        for head in range(q.value.shape[2]):
            some, keys = _head(q, b, head), _head(k, b, head // shared)
            for first in range(0, q.value.shape[1], ROWS):
                last = min(first + ROWS, q.value.shape[1])
                hidden = _hidden(token[first:last], seen_at, causal=causal, window=window)
                found = logs_of_rows(some.rows(first, last, some.value.shape), keys, hidden, soft_cap, scale, base2)
                value[b, first:last, head], error[b, first:last, head] = found.value, torch.as_tensor(found.error)
    return Near(value, error)


def logs_of_rows(q: Near, k: Near, hidden: torch.Tensor, soft_cap: float, scale: float, base2: bool) -> Near:
    scores, off = scores_of_rows(q, k, soft_cap, scale)
    scores = scores.masked_fill(hidden, -torch.inf)
    value = scores.logsumexp(1)
    size = 1 + scores.masked_fill(hidden, 0.0).abs().amax(1) + value.abs()
    moved = (torch.softmax(scores, 1) * off).sum(1) + 2**-20 * size
    by = math.log2(math.e) if base2 else 1.0
    return Near(value * by, (moved * by).float())


def _head(x: Near, b: int, head: int) -> Near:
    return Near(x.value[b, :, head].double(), x.error if isinstance(x.error, float) else x.error[b, :, head])


def tokens_in_order(tokens: int, zigzag: int, device: torch.device) -> torch.Tensor:
    """Which token lies at each place."""
    if not zigzag:
        return torch.arange(tokens, device=device)
    each = torch.arange(tokens, device=device).chunk(2 * int(zigzag))
    return torch.cat([each[block] for rank in range(zigzag) for block in (rank, 2 * zigzag - 1 - rank)])


def _hidden(rows: torch.Tensor, keys: torch.Tensor, *, causal: bool, window: int) -> torch.Tensor:
    """Which keys each row of queries does not see, by their tokens."""
    behind = rows[:, None] - keys
    return (causal & (behind < 0)) | ((window > 0) & (behind >= window))


def scores_of_rows(q: Near, k: Near, soft_cap: float, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores of each query and key, and how far they are off."""
    products = q.times(k.T)
    scores, off = products.value * scale, products.error * scale
    if soft_cap > 0:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    return scores, off + 2**-21 * (scores.abs().float() + soft_cap)


def _of_rows(
    q: Near,
    k: Near,
    v: Near,
    hidden: torch.Tensor,
    dtype: torch.dtype,
    soft_cap: float,
    scale: float,
    library: torch.dtype | None = None,
) -> Near:
    """How far the result moves: each weight by the error of its score, its rounding, and that of exponentials; the sums by their
    additions; each value by its own error."""
    scores, off = scores_of_rows(q, k, soft_cap, scale)
    weights = torch.softmax(scores.masked_fill(hidden, -torch.inf), 1).nan_to_num(0.0)
    result = Near(weights).times(v)
    spread = spread_of(weights, v.value)
    moved = weights.float() * off
    error = torch.as_tensor(result.error) + 4 * torch.finfo(dtype).eps / 2 * spread
    error = error + 5 * (spread_of(moved, v.value) + moved.square().sum(1, keepdim=True).sqrt() * result.value.abs())
    rounded = 2**-20 if library is None else torch.finfo(library).eps / 2
    return Near(result.value, error.float() + rounded * (weights.float() @ v.value.abs().float()))
