"""A spec as a problem: inputs of a rank, and its outputs in float64, for any spec that can be planned."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from lowering.entry import input_scales
from lowering.selfcheck.near import Near
from tilelink.ir.placement import Partial, Replicate, Shard
from tilelink.ir.spec import Attention, BoundNode, BoundSpec, BoundValue, DecodeAttention, GroupedMatmul, Matmul
from tilelink.measuring.contender import Inputs
from tilelink.measuring.measure import Problem
from tilelink.measuring.normal import normal, seed_of
from tilelink.runtime.bounds import TORCH_DTYPES, near_values
from tilelink.runtime.reference import not_normal


@dataclass(frozen=True, slots=True)
class SpecSetting:
    """A spec on one rank; `inputs` in the order of its parameters."""

    spec: BoundSpec
    inputs: Inputs

    @property
    def key(self) -> str:
        return f"{self.spec.name} {dict(self.spec.sizes)}"

    @property
    def flops(self) -> float:
        return flops_of(self.spec)


def spec_problem(spec: BoundSpec, rank: int, seed: int, device: torch.device) -> Problem:
    """Random inputs, other ones on every rank where ranks hold other parts, scaled so that products stay near 1. Whole tensors
    are computed on `device`, with the inputs of all ranks. Raises NoReference and ReferenceFailed for tile ops of the user's."""

    def inputs(change: int, of: int) -> Inputs:
        return make_inputs(spec, of, seed + change, device)

    def fresh() -> tuple[Inputs, tuple[Near, ...]]:
        return inputs(1, rank), wanted_of(spec, [inputs(1, of) for of in range(spec.num_ranks)], rank)

    ranks = [inputs(0, of) for of in range(spec.num_ranks)]
    return Problem(SpecSetting(spec, ranks[rank]), wanted_of(spec, ranks, rank), fresh)


def make_inputs(spec: BoundSpec, rank: int, seed: int, device: torch.device) -> Inputs:
    """The local inputs of a rank."""
    scales, found = input_scales(spec), []
    for number, value in enumerate(spec.inputs):
        special = not_normal(spec, value, rank, seed, str(device))
        if special is not None:
            found.append(special)
            continue
        own = 0 if isinstance(value.placement, Replicate) else rank
        drawn = seed_of(seed, own, number)
        found.append(normal(_local_shape(value, spec.num_ranks), scales[value.name], drawn, value.dtype, device))
    return tuple(found)


def local_inputs(spec: BoundSpec) -> list[tuple[tuple[int, ...], torch.dtype]]:
    """Shape and dtype of what a rank has of each input."""
    return [(_local_shape(value, spec.num_ranks), TORCH_DTYPES[value.dtype]) for value in spec.inputs]


def _local_shape(value: BoundValue, num_ranks: int) -> tuple[int, ...]:
    shape = list(value.shape)
    if isinstance(value.placement, Shard):
        shape[value.placement.dim] //= num_ranks
    return tuple(shape)


def wanted_of(spec: BoundSpec, ranks: list[Inputs], rank: int) -> tuple[Near, ...]:
    """The outputs of `rank`, which libraries may have computed, from the inputs of all ranks."""
    names = [value.name for value in spec.inputs]
    parts = [dict(zip(names, inputs, strict=True)) for inputs in ranks]
    found = near_values(spec, parts, [node.output.name for node in spec.nodes], spec.outputs)
    wanted = []
    for name in spec.outputs:
        placement, values = spec.value(name).placement, found[name]
        near = values[rank] if isinstance(placement, Partial) and len(values) > 1 else values[0]
        near = near.parts(spec.num_ranks, placement.dim)[rank] if isinstance(placement, Shard) else near
        error = near.error.clone() if isinstance(near.error, torch.Tensor) else near.error
        wanted.append(Near(near.value.clone(), error))  # lets go of what other ranks have
    return tuple(wanted)


def _in_attention(spec: BoundSpec, node: BoundNode) -> float:
    """Of scores and means over all tokens that a mask leaves; a window and lengths are not counted."""
    q, k = (spec.value(name) for name in node.inputs[:2])
    if isinstance(node.operation, DecodeAttention):
        pages = spec.value(node.inputs[-1]).shape[1] if node.operation.pages else 1
        return 4.0 * math.prod(q.shape) * k.shape[1] * pages / spec.num_ranks
    whole = 4.0 * math.prod(q.shape) * k.shape[1]
    shared = 1 if q.placement == Replicate() else spec.num_ranks
    return whole / shared / (2 if isinstance(node.operation, Attention) and node.operation.causal else 1)


def flops_of(spec: BoundSpec) -> float:
    """Of the matmuls of one rank in one call, those in attention too; of the mean rank where a routing or a mask decides."""
    total = 0.0
    for node in spec.nodes:
        if isinstance(node.operation, Attention | DecodeAttention):
            total += _in_attention(spec, node)
        if not isinstance(node.operation, Matmul | GroupedMatmul):
            continue
        operands = [spec.value(name) for name in node.inputs[:2]]
        k = operands[0].shape[-1]
        whole = 2.0 * math.prod(node.output.shape) * k
        placed = (*(one.placement for one in operands), node.output.placement)
        total += whole if all(isinstance(one, Replicate) for one in placed) else whole / spec.num_ranks
    return total
