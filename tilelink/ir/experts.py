"""Rows that go to the ranks of their experts, by gathering: each rank has all rows, and takes those of its own experts.

    rows = dispatch(x, routing)              ->  rows = all_gather(x);  ids and weights are gathered, too
    h = grouped_matmul(rows, w, routing)     ->  the same with the experts of this rank; rows of others are zeros
    y = combine(h, routing, weights)         ->  y = reduce_scatter(the same with the experts of this rank)

A token goes to almost every rank where it has many experts, so that this moves hardly more than what is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilelink.ir.placement import ByExpert, Partial, Replicate, Shard
from tilelink.ir.spec import (
    AllGather,
    BoundNode,
    BoundSpec,
    BoundValue,
    Combine,
    Dispatch,
    GroupedMatmul,
    ReduceScatter,
    Route,
)


def by_gathering(spec: BoundSpec) -> BoundSpec:
    """`spec` without a dispatch; the spec itself if it has none."""
    if not any(isinstance(node.operation, Dispatch) for node in spec.nodes):
        return spec
    return replace(spec, nodes=tuple(one for node in spec.nodes for one in _gathered(spec, node)))


def _gathered(spec: BoundSpec, node: BoundNode) -> Iterator[BoundNode]:
    out = node.output
    match node.operation:
        case Route(num_experts) if out.placement == Shard(0):
            assert isinstance(num_experts, int), "bound"
            ids = _whole(spec.value(node.inputs[0]))
            yield BoundNode(AllGather(0), node.inputs, ids, node.line)
            here = Route(num_experts // spec.num_ranks, parts=spec.num_ranks)
            yield BoundNode(here, (ids.name,), replace(out, local=out.shape, placement=Replicate()), node.line)
        case Dispatch():
            rows = spec.value(node.inputs[0])
            yield BoundNode(AllGather(0), node.inputs[:1], _whole(rows, out.name), node.line)
        case GroupedMatmul(num_experts) if out.placement == ByExpert():
            assert isinstance(num_experts, int), "bound"
            own = GroupedMatmul(num_experts // spec.num_ranks)
            yield BoundNode(own, node.inputs, replace(out, placement=Partial()), node.line)
        case Combine() if spec.value(node.inputs[0]).placement == ByExpert():
            h, weights, routing = node.inputs
            gathered = _whole(spec.value(weights))
            yield BoundNode(AllGather(0), (weights,), gathered, node.line)
            summand = BoundValue(f"{out.name}_summand", out.shape, out.shape, Partial(), out.dtype)
            yield BoundNode(Combine(), (h, gathered.name, routing), summand, node.line)
            yield BoundNode(ReduceScatter(0), (summand.name,), out, node.line)
        case _ if out.placement == ByExpert():
            yield replace(node, output=replace(out, placement=Partial()))
        case _:
            yield node


def _whole(value: BoundValue, name: str = "") -> BoundValue:
    return BoundValue(name or f"{value.name}_full", value.shape, value.shape, Replicate(), value.dtype)
