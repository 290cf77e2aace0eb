"""Inputs for a run of all ranks, what each rank should return, and how far its results are from that."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Protocol

import torch

from lowering.entry import elements_of, experts_of, input_scales, lengths_of, logs_of, pages_of
from lowering.selfcheck.routed import random_ids
from lowering.selfcheck.states import random_elements, random_lengths, random_logs, random_pages
from tilelink.ir.placement import Partial, Replicate, Shard
from tilelink.ir.spec import BoundSpec, BoundValue
from tilelink.runtime.bounds import TORCH_DTYPES
from tilelink.runtime.meaning import cut, evaluate, whole_inputs
from tilelink.threads import one_thread


class Stream(Protocol):
    """What of a fabric's stream is needed here."""

    def copy(self, dst: torch.Tensor, src: torch.Tensor) -> None:
        """Enqueue a copy."""


def make_inputs(spec: BoundSpec, seed: int) -> list[dict[str, torch.Tensor]]:
    """Random inputs, one dict of local tensors a rank, scaled so that the values of products stay near 1."""
    generator = torch.Generator().manual_seed(seed)
    ranks: list[dict[str, torch.Tensor]] = [{} for _ in range(spec.num_ranks)]
    scales = input_scales(spec)
    for value in spec.inputs:
        for rank, parts in enumerate(ranks):
            if (found := not_normal(spec, value, rank, seed, "cpu")) is not None:
                parts[value.name] = found
        if value.name in ranks[0]:
            continue
        scale = scales[value.name]
        dtype = TORCH_DTYPES[value.dtype]
        whole = (torch.randn(value.shape, generator=generator) * scale).to(dtype)
        for rank, parts in enumerate(ranks):
            match value.placement:
                case Replicate():
                    parts[value.name] = whole.clone()
                case Shard():
                    held = cut(whole, value.placement, rank, spec.num_ranks)
                    parts[value.name] = held.clone(memory_format=torch.contiguous_format)
                case Partial():
                    parts[value.name] = (torch.randn(value.shape, generator=generator) * scale).to(dtype)
    return ranks


def not_normal(spec: BoundSpec, value: BoundValue, rank: int, seed: int, device: str) -> torch.Tensor | None:
    """What a rank has of an input that is not made of normal numbers: experts, elements, lengths, pages, logarithms; None for the
    rest."""
    name = value.name
    if name in (experts := experts_of(spec)):
        ids = random_ids(value.shape, experts[name], seed, device)
        return cut(ids, value.placement, rank, spec.num_ranks).clone()
    if name in (elements := elements_of(spec)):
        return cut(
            random_elements(value.shape, elements[name], seed, device), value.placement, rank, spec.num_ranks
        ).clone()
    if name in (lengths := lengths_of(spec)):
        return random_lengths(value.shape, lengths[name], seed, device)
    if name in (pages := pages_of(spec)):
        return random_pages(value.local, pages[name], seed + 5 * rank, device)
    return random_logs(value.shape, seed + 5 * rank, device) if name in logs_of(spec) else None


def expected(spec: BoundSpec, ranks: list[dict[str, torch.Tensor]]) -> list[tuple[torch.Tensor, ...]]:
    """Outputs of every rank in float64, from the local inputs of all ranks. Raises NoReference, ReferenceFailed."""
    with one_thread():
        values = evaluate(spec, whole_inputs(spec, ranks))
    return [
        tuple(cut(values[name], spec.value(name).placement, rank, spec.num_ranks) for name in spec.outputs)
        for rank in range(spec.num_ranks)
    ]


def poison(tensors: Iterable[torch.Tensor]) -> None:
    """Fill floating-point tensors with nan: what no program writes must not look like a result."""
    for tensor in tensors:
        if tensor.is_floating_point():
            tensor.fill_(math.nan)


def kept(stream: Stream, outputs: Iterable[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Copies of `outputs` made on `stream`, behind the call: as their reader does, before the next call may reuse them."""
    copies = []
    for tensor in outputs:
        copies.append(torch.full_like(tensor, math.nan) if tensor.is_floating_point() else torch.empty_like(tensor))
        stream.copy(copies[-1], tensor)
    return tuple(copies)
