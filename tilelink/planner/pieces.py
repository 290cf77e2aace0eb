"""Pieces of a spec that share no decision: each is searched by itself, and what each piece takes adds up.

h = gather, matmul, silu; y = matmul(h), scatter   ->   gather, matmul, silu  |  matmul, scatter

A tensor that one kernel stores and a later one loads is all that two pieces have in common. Decisions are shared along any
other edge: a collective is carried out beside the tiles that make what it sends and those that read what it brings, and an
elementwise operation runs inside the loop of an operand.
"""

from __future__ import annotations

from dataclasses import replace

import networkx as nx

from tilelink.ir.slices import as_computed
from tilelink.ir.spec import (
    AllGather,
    AllReduce,
    BoundNode,
    BoundSpec,
    BoundValue,
    Matmul,
    ReduceScatter,
    SendRecv,
    Slice,
)
from tilelink.ir.user_op import UserOp

_COLLECTIVES = (AllGather, AllReduce, ReduceScatter, SendRecv)


def pieces(spec: BoundSpec) -> tuple[BoundSpec, ...]:
    """The pieces in program order, each a spec: it reads values of other pieces as inputs, and gives out what others read."""
    computed = as_computed(spec)
    made = {node.output.name: node for node in computed.nodes}
    if any(isinstance(node.operation, Slice) for node in computed.nodes):
        return (spec,)  # readers of a slice read what it is a slice of, wherever that is made
    edges: nx.Graph[str] = nx.Graph()
    edges.add_nodes_from(made)
    for node in computed.nodes:
        edges.add_edges_from(
            (name, node.output.name) for name in node.inputs if name in made and not _apart(made[name], node)
        )
    together = list(nx.connected_components(edges))
    if len(together) < 2:
        return (spec,)
    found = [[node for node in computed.nodes if node.output.name in names] for names in together]
    return tuple(_piece(computed, nodes) for nodes in sorted(found, key=lambda nodes: computed.nodes.index(nodes[0])))


def _apart(maker: BoundNode, reader: BoundNode) -> bool:
    """Whether the reader loads what the maker has stored, and nothing else joins the two."""
    reads_whole = isinstance(reader.operation, Matmul | UserOp)
    return reads_whole and not isinstance(maker.operation, _COLLECTIVES)


def _piece(spec: BoundSpec, nodes: list[BoundNode]) -> BoundSpec:
    here = {node.output.name for node in nodes}
    values: dict[str, BoundValue] = {value.name: value for value in spec.inputs}
    values |= {node.output.name: node.output for node in spec.nodes}
    read = dict.fromkeys(name for node in nodes for name in node.inputs if name not in here)
    outside = {name for node in spec.nodes if node.output.name not in here for name in node.inputs}
    inputs = (name for name in values if name in read)
    outputs = (name for name in values if name in here and (name in spec.outputs or name in outside))
    return replace(spec, inputs=tuple(values[name] for name in inputs), nodes=tuple(nodes), outputs=tuple(outputs))
