"""What collectives take that one call each carries out, on the compute stream."""

from __future__ import annotations

import math

from tilelink.ir.counting import packets_sent
from tilelink.ir.dtype import DTYPE_BYTES
from tilelink.ir.graph import Relation, TileGraph
from tilelink.ir.nodes import Kind
from tilelink.planner.collective import FUNCTIONS
from tilelink.planner.links import library_us, packets_us
from tilelink.planner.memo import remembered
from tilelink.planner.states import state_merge, states_us
from tilelink.planner.structure import Structure
from topologies.topology import Topology


def call_us(graph: TileGraph, relation: Relation, topology: Topology) -> float:
    """What the call for `relation` takes."""
    if relation.by_packets:
        packets = packets_sent(relation, graph.values[relation.name].dtype)
        by = relation.how.protocol
        return packets_us(topology, packets, relation.how.shots, protocol=by, multicast=relation.how.multicast)
    elements = max(math.prod(graph.values[name].shape) for name in (relation.source, relation.name))
    return library_us(topology, FUNCTIONS[relation.kind], elements * DTYPE_BYTES[graph.values[relation.name].dtype])


@remembered
def calls_us(structure: Structure, maker: int | None = None) -> float:
    """What calls take at least, of which one follows the other; those behind group `maker` (-1: of inputs), or all. Gathers of
    packets may be one launch, if they are of one maker or of inputs."""
    calls = (relation for relation in structure.graph.relations() if relation.by_call)
    wanted = [one for one in calls if maker in (None, structure.maker(one.source))]
    gathers = [structure.maker(one.source) for one in wanted if one.by_packets and one.kind is Kind.GATHER]
    launched = packets_us(structure.topology, 0, 1) * (len(gathers) - len(set(gathers)))
    merged = _merges_us(structure) if maker is None else 0.0
    return sum(call_us(structure.graph, one, structure.topology) for one in wanted) - launched + merged


def _merges_us(structure: Structure) -> float:
    """What merges of states take."""
    ways, found = dict(structure.collectives), 0.0
    for one in structure.graph.merges:
        launch = state_merge(one, ways[one.name], structure.topology)
        found += states_us(launch, structure.graph.values[one.reads[0]].dtype, structure.topology)
    return found
