"""Rows that go to the ranks of their experts, by gathering: each rank has all rows, and takes those of its own experts.

    rows = dispatch(x, routing)              ->  rows = all_gather(x);  ids and weights are gathered, too
    h = grouped_matmul(rows, w, routing)     ->  the same with the experts of this rank; rows of others are zeros
    h = f(rows)                              ->  h = f(spread(rows, routing)): rows by assignment
    y = combine(h, routing, weights)         ->  y = reduce_scatter(the same with the experts of this rank)

A token goes to almost every rank where it has many experts, so that this moves hardly more than what is needed. Of what comes
back, rows may travel instead of sums:

    y = reduce_scatter(combine(h, weights))  ->  y = combine(h_returned, weights): of own tokens, with rows from all ranks
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from tilelink.ir.placement import ByExpert, Partial, Replicate, Shard, share
from tilelink.ir.spec import (
    AllGather,
    BoundNode,
    BoundSpec,
    BoundValue,
    Combine,
    Dispatch,
    GroupedMatmul,
    ReduceTokens,
    Return,
    Route,
    Spread,
)


def by_gathering(spec: BoundSpec) -> BoundSpec:
    """`spec` without a dispatch; the spec itself if it has none."""
    if not any(isinstance(node.operation, Dispatch) for node in spec.nodes):
        return spec
    spread = {
        node.output.name: f"{node.output.name}_spread"
        for node in spec.nodes
        if isinstance(node.operation, Dispatch) and not _read_by_matmuls(spec, node.output.name)
    }
    found = list[BoundNode]()
    for node in spec.nodes:
        if not isinstance(node.operation, GroupedMatmul):
            node = replace(node, inputs=tuple(spread.get(name, name) for name in node.inputs))
        found += _gathered(spec, node)
        if node.output.name in spread:
            rows = replace(node.output, name=spread[node.output.name], local=node.output.shape, placement=Partial())
            found.append(BoundNode(Spread(), (node.output.name, node.inputs[1]), rows, node.line))
    return replace(spec, nodes=tuple(found))


def _read_by_matmuls(spec: BoundSpec, name: str) -> bool:
    """And by nothing else."""
    readers = (node.operation for node in spec.nodes if name in node.inputs)
    return all(isinstance(operation, GroupedMatmul) for operation in readers)


def _gathered(spec: BoundSpec, node: BoundNode) -> Iterator[BoundNode]:
    out = node.output
    match node.operation:
        case Route(num_experts) if out.placement == Shard(0):
            assert isinstance(num_experts, int), "bound"
            ids = _whole(spec.value(node.inputs[0]))
            yield BoundNode(AllGather(0), node.inputs, ids, node.line)
            here = Route(num_experts, parts=spec.num_ranks)
            yield BoundNode(here, (ids.name,), replace(out, local=out.shape, placement=Replicate()), node.line)
        case Dispatch():
            rows = spec.value(node.inputs[0])
            yield BoundNode(AllGather(0), node.inputs[:1], _whole(rows, out.name), node.line)
        case GroupedMatmul(num_experts) if out.placement == ByExpert():
            assert isinstance(num_experts, int), "bound"
            own = GroupedMatmul(len(share(num_experts, spec.num_ranks, 0)))
            yield BoundNode(own, node.inputs, replace(out, placement=Partial()), node.line)
        case Combine() if node.output.placement == Shard(0):
            h, weights, routing = node.inputs
            gathered = _whole(spec.value(weights))
            yield BoundNode(AllGather(0), (weights,), gathered, node.line)
            summand = BoundValue(f"{out.name}_summand", out.shape, out.shape, Partial(), out.dtype)
            yield BoundNode(Combine(), (h, gathered.name, routing), summand, node.line)
            yield BoundNode(ReduceTokens(0), (summand.name,), out, node.line)
        case _ if out.placement == ByExpert():
            yield replace(node, output=replace(out, placement=Partial()))
        case _:
            yield node


def returned(spec: BoundSpec, sums: AbstractSet[str]) -> BoundSpec:
    """`spec`, as `by_gathering` makes it, with rows that travel to the ranks of their tokens, where those of `sums` are added."""
    if not sums:
        return spec
    made = {node.output.name: node for node in spec.nodes}
    return replace(spec, nodes=tuple(one for node in spec.nodes for one in _returned(spec, made, sums, node)))


def _returned(
    spec: BoundSpec, made: Mapping[str, BoundNode], sums: AbstractSet[str], node: BoundNode
) -> Iterator[BoundNode]:
    out = node.output
    if out.name not in sums:
        yield node
        return
    rows, weights, table = (made[name] for name in made[node.inputs[0]].inputs)
    (ids,), route = made[table.inputs[0]].inputs, table.operation
    assert isinstance(route, Route), "a routing"
    tokens, choices = table.output.shape
    own = BoundValue(f"{table.output.name}_own", (tokens, choices), spec.value(ids).local, Shard(0), table.output.dtype)
    yield BoundNode(Route(route.num_experts), (ids,), own, node.line)
    there = tokens * choices // spec.num_ranks, rows.output.local[1]
    back = BoundValue(f"{out.name}_rows", rows.output.shape, there, Shard(0), rows.output.dtype)
    yield BoundNode(Return(), (rows.output.name, table.output.name), back, node.line)
    yield BoundNode(Combine(), (back.name, weights.inputs[0], own.name), out, node.line)


def _whole(value: BoundValue, name: str = "") -> BoundValue:
    return BoundValue(name or f"{value.name}_full", value.shape, value.shape, Replicate(), value.dtype)
