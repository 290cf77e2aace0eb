"""How far a right result may be from the meaning of a spec: a bound for every element of every value.

`lowering.selfcheck.near` has the arithmetic and its sources, `tilelink.runtime.meaning` says what operations mean. A bound
holds for every legal schedule: each value may be stored in its dtype or kept in fp32, and each summand of a sum over ranks
may be rounded before it is added. What only libraries do widens it only where a library is called: pieces of a sum that are
rounded before they are added (split-K), and partial sums that are rounded from rank to rank (NCCL).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from lowering.entry import states_of
from lowering.selfcheck.attention import attention_logs, attention_of
from lowering.selfcheck.near import Near
from lowering.selfcheck.routed import combined, dispatched, grouped, routing_of
from lowering.selfcheck.states import decoded, decoded_logs, merged_logs, merged_states
from tilelink.ir.dtype import DTYPES
from tilelink.ir.ops.user_fold import UserFold
from tilelink.ir.placement import ByExpert, Partial, Placement, Replicate, Shard
from tilelink.ir.spec import (
    AllGather,
    AllReduce,
    Attention,
    BoundNode,
    BoundSpec,
    Combine,
    DecodeAttention,
    Dispatch,
    Elementwise,
    Flatten,
    GroupedMatmul,
    LogWeights,
    Matmul,
    MergeStates,
    ReduceScatter,
    Route,
    SendRecv,
    Slice,
    Unflatten,
)
from tilelink.ir.user_op import UserOp
from tilelink.runtime.meaning import evaluate

TORCH_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, row.torch) for name, row in DTYPES.items()}

Parts = Sequence[Mapping[str, torch.Tensor]]  # local inputs by rank, then by name


def near_values(
    spec: BoundSpec, ranks: Parts, library: Collection[str], wanted: Collection[str] = ()
) -> dict[str, list[Near]]:
    """Values of `spec` on whole tensors, those that are `wanted`, or all: of a Partial value the summand of each rank, else
    a list of one. States are merged where they are made, a list of one, too. `library` names those that libraries compute.

    Raises NoReference and ReferenceFailed for tile ops of the user's.
    """
    found = {value.name: _input(value.placement, [parts[value.name] for parts in ranks]) for value in spec.inputs}
    left = list(spec.nodes)
    while left:
        node = left.pop(0)
        found[node.output.name] = _node(spec, node, [found[name] for name in node.inputs], library)
        needed = {name for later in left for name in later.inputs}.union(wanted or found)
        found = {name: near for name, near in found.items() if name in needed}  # of full size, few fit at once
    return found


def _input(placement: Placement, parts: list[torch.Tensor]) -> list[Near]:
    match placement:
        case Replicate():
            return [Near.input(parts, None)]
        case Shard(dim):
            return [Near.input(parts, dim)]
        case Partial():
            return [Near(part) for part in parts]
        case ByExpert():
            raise AssertionError("no input lies by experts")


def _node(spec: BoundSpec, node: BoundNode, operands: list[list[Near]], library: Collection[str]) -> list[Near]:
    if isinstance(node.operation, Route):
        assert isinstance(node.operation.num_experts, int), "bound"
        return [routing_of(operands[0][0], node.operation.num_experts)]
    dtype = TORCH_DTYPES[node.output.dtype]
    split = dtype if node.output.name in library else None
    match node.operation:
        case AllGather():
            return operands[0]  # the same tensor, placed otherwise
        case Flatten() | Unflatten():
            return [operands[0][0].viewed(node.output.shape)]
        case SendRecv(by):
            placement = node.output.placement
            assert isinstance(placement, Shard)  # only parts can move from rank to rank
            return [operands[0][0].shifted(spec.num_ranks, placement.dim, by)]
        case Slice(dim, start, stop):
            return [near.narrow(dim, start, stop - start) for near in operands[0]]
        case ReduceScatter() | AllReduce():
            split = None if node.inputs[0] in states_of(spec) else split
            return [Near.sum(operands[0], split).rounded(dtype)]
        case DecodeAttention() as how:
            return [_decoded(how, node, [near for (near,) in operands], dtype, spec.num_ranks).rounded(dtype)]
        case LogWeights(DecodeAttention() as how, base2):
            return [_logs(how, node, [near for (near,) in operands], spec.num_ranks, base2).rounded(dtype)]
        case LogWeights(MergeStates(), base2):
            return [merged_logs(operands[1], base2).rounded(dtype)]
        case MergeStates(base2):
            means, logs = operands
            return [merged_states(means, logs, base2).rounded(dtype)]
        case UserFold():
            near = Near.user(_meaning(spec, node), dtype, *(near for (near,) in operands))
            return [near.rounded(dtype)]
        case _:
            return [_local(spec, node, each, split).rounded(dtype) for each in _each(spec, node, operands)]


def _decoded(how: DecodeAttention, node: BoundNode, operands: list[Near], dtype: torch.dtype, ranks: int) -> Near:
    assert isinstance(how.scale, float), "bound"
    given = dict(zip(how.named(node.inputs), operands, strict=True))
    tensors = given["q"], given["k"], given["v"], given.get("lengths"), given.get("pages")
    return decoded(*tensors, dtype, window=how.window, soft_cap=how.soft_cap, scale=how.scale, ranks=ranks)


def _logs(how: DecodeAttention, node: BoundNode, operands: list[Near], ranks: int, base2: bool) -> Near:
    assert isinstance(how.scale, float), "bound"
    given = dict(zip(how.named(node.inputs), operands, strict=True))
    tensors = given["q"], given["k"], given.get("lengths"), given.get("pages")
    return decoded_logs(*tensors, window=how.window, soft_cap=how.soft_cap, scale=how.scale, ranks=ranks, base2=base2)


def _each(spec: BoundSpec, node: BoundNode, operands: list[list[Near]]) -> list[list[Near]]:
    """The operands of each summand of `node`; of whole tensors, if it makes no summands."""
    if node.output.placement != Partial():
        return [[operand[0] for operand in operands]]
    if all(len(operand) == 1 for operand in operands):  # an axis is contracted that is cut
        operands = [
            _cut(operand[0], spec.value(name).placement, spec.num_ranks)
            for name, operand in zip(node.inputs, operands, strict=True)
        ]
    return [[operand[rank % len(operand)] for operand in operands] for rank in range(spec.num_ranks)]


def _cut(near: Near, placement: Placement, num_ranks: int) -> list[Near]:
    return near.parts(num_ranks, placement.dim) if isinstance(placement, Shard) else [near]


def _local(spec: BoundSpec, node: BoundNode, operands: list[Near], split: torch.dtype | None) -> Near:
    match node.operation:
        case Matmul(transposed):
            return operands[0].times(operands[1].T if transposed else operands[1], split)
        case Elementwise():
            return Near.map(_meaning(spec, node), *operands)
        case Attention(causal, window, soft_cap, scale, zigzag):
            assert isinstance(scale, float), "bound"
            dtype = TORCH_DTYPES[node.output.dtype]
            q, k, v = operands
            ranks = spec.num_ranks if zigzag else 0
            more: dict[str, Any] = {"soft_cap": soft_cap, "scale": scale, "library": split}
            return attention_of(q, k, v, dtype, causal=causal, window=window, zigzag=ranks, **more)
        case LogWeights(Attention(causal, window, soft_cap, scale, zigzag), base2):
            assert isinstance(scale, float), "bound"
            q, k, _ = operands
            seen: dict[str, Any] = {"causal": causal, "window": window, "zigzag": spec.num_ranks if zigzag else 0}
            return attention_logs(q, k, soft_cap=soft_cap, scale=scale, base2=base2, **seen)
        case Dispatch():
            return dispatched(*operands)
        case GroupedMatmul():
            return grouped(*operands)
        case Combine():
            rows, weights, routing = operands
            return combined(rows, weights, routing, split, spec.num_ranks)
        case UserOp():
            return Near.user(_meaning(spec, node), TORCH_DTYPES[node.output.dtype], *operands)
        case _:
            raise AssertionError(f"{node.operation} moves tensors")


def _meaning(spec: BoundSpec, node: BoundNode) -> Callable[..., torch.Tensor]:
    """`node` as a function of tensors, which may be parts."""
    alone = replace(spec, inputs=tuple(map(spec.value, dict.fromkeys(node.inputs))), nodes=(node,))
    return lambda *tensors: evaluate(alone, dict(zip(node.inputs, tensors, strict=True)))[node.output.name]
