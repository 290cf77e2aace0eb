"""What a rank computes, by the library and with nothing to communicate: its matmuls and its attention, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from tilelink.ir.placement import Shard
from tilelink.ir.spec import (
    AllGather,
    AllReduce,
    Attention,
    BoundSpec,
    BoundValue,
    Elementwise,
    Flatten,
    Matmul,
    ReduceScatter,
    Slice,
    Unflatten,
)
from tilelink.measuring.library_attention import GatheredAttention
from tilelink.runtime.bounds import TORCH_DTYPES

_LIGHT = (AllGather, ReduceScatter, AllReduce, Elementwise, Slice, Flatten, Unflatten)  # take no time beside matmuls


def alone_calls(spec: BoundSpec, device: str = "cuda") -> list[Callable[[], torch.Tensor]]:
    """On random operands. All ranks call alike; none where something else takes long, or nothing does."""
    calls = list[Callable[[], torch.Tensor]]()
    for node in spec.nodes:
        operands = [spec.value(name) for name in node.inputs]
        match node.operation:
            case Matmul(transposed=transposed):
                left, right = (_random(one.local, one, device) for one in operands)
                calls.append(partial(torch.mm, left, right.t() if transposed else right))
            case Attention(causal=causal, scale=scale, window=0, soft_cap=0.0, zigzag=False):
                q, *whole = operands
                apart = q.placement == Shard(1)  # each rank has the queries of its tokens, and gathers keys and values
                k, v = (_random(_part(one, spec.num_ranks if apart else 1), one, device) for one in whole)
                attention = GatheredAttention(_random(q.local, q, device), k, v, causal, float(scale), not apart)
                attention.gather()
                calls.append(attention.attend)
            case operation if not isinstance(operation, _LIGHT):
                return []
    return calls


def _part(value: BoundValue, parts: int) -> tuple[int, ...]:
    """The shape of one of so many parts of its tokens."""
    sequences, tokens, *rest = value.local
    return sequences, tokens // parts, *rest


def _random(shape: tuple[int, ...], value: BoundValue, device: str) -> torch.Tensor:
    return torch.randn(shape, device=device, dtype=TORCH_DTYPES[value.dtype])
