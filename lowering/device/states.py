"""States of a softmax: means of values by weight with the logarithms, of base 2, of the sums of the weights. By these, states of
other tokens are merged (Dao et al., Flash-Decoding, 2023)."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from lowering.device.attention import scores_of, with_scores
from lowering.device.packets import take_packets


@triton.jit
def take_keys_between(
    top, weight, total, queries, keys, values, scale: tl.constexpr, soft_cap: tl.constexpr, first, end
):
    """The state with those of a tile of keys that lie from `first` on, and before `end`."""
    scores = scores_of(queries, keys, scale, soft_cap)
    key = tl.arange(0, scores.shape[1])[None, :]
    seen = (key >= first) & (key < end)
    return with_scores(top, weight, total, tl.where(seen, scores, float("-inf")), values)


@triton.jit
def log_of_weights(top, weight):
    """The logarithm of the sum of weights, -inf where there are none."""
    return top + tl.log2(weight)


@triton.jit
def in_base_2(logs):
    """Natural logarithms as those of base 2."""
    return logs * 1.4426950408889634


@triton.jit
def in_base_e(logs):
    """Logarithms of base 2 as natural ones."""
    return logs * 0.6931471805599453


@triton.jit
def merge_state(top, weight, total, mean, log):
    """The state with one more, whose mean does not count where its logarithm is -inf."""
    higher = tl.maximum(top, log)
    before = tl.exp2(top - higher)
    more = tl.exp2(log - higher)
    counted = tl.where(more > 0, mean.to(tl.float32) * more, 0.0)
    return higher, weight * before + more, total * before + counted


@triton.jit
def merged_packets(
    means,
    logs,
    state_means,
    row_means,
    state_logs,
    row_logs,
    call,
    DTYPE: tl.constexpr,
    COUNT: tl.constexpr,
    NUMBERED: tl.constexpr,
    STATES: tl.constexpr,
    MOST: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """All states of a tile of ROWS x COLS packets at once, from packets, in the same order on every rank. The first packets of
    state 0 are `means` and `logs`, those of the next state or row so many packets on. MOST: a power of two from STATES on."""
    at = tl.arange(0, MOST * ROWS)
    state = at // ROWS
    row = at % ROWS
    columns = tl.arange(0, COLS)[None, :]
    words = means + (state * state_means + row * row_means)[:, None] + columns
    of_logs = logs + (state * state_logs + row * row_logs)[:, None]
    if MOST > STATES:
        there = (state < STATES)[:, None]
        mean = take_packets(words, call, DTYPE, COUNT, NUMBERED, there & (columns >= 0))
        log = tl.where(there, take_packets(of_logs, call, tl.float32, 1, True, there), float("-inf"))
    else:
        mean = take_packets(words, call, DTYPE, COUNT, NUMBERED)
        log = take_packets(of_logs, call, tl.float32, 1, True)
    log = tl.reshape(log, (MOST, ROWS, 1))
    top = tl.maximum(tl.max(log, axis=0), -1e30)
    weights = tl.exp2(log - top[None, :, :])
    mean = tl.reshape(mean.to(tl.float32), (MOST, ROWS, COLS * COUNT))
    total = tl.sum(tl.where(weights > 0, mean * weights, 0.0), axis=0)
    return top, tl.sum(weights, axis=0), total
