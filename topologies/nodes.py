"""Several nodes, of which a descriptor describes one: for plans and emulated runs, where no file says what joins them."""

from __future__ import annotations

from dataclasses import replace

from topologies.errors import IllegalNodes
from topologies.topology import Fabric, Level, Topology

_SHARE = 45 / 360  # of what SMs of H200 push to peers of their node, a NIC of 400 Gb/s
_SIGNAL_US = 8.0  # of a put: half of a round trip over GIN (16.7 us on H100 and NDR, published); 6 to 12
_ORIGIN = "estimate: a NIC of 400 Gb/s for each GPU, beside the links of H200"


def alone(topology: Topology) -> Topology:
    """One rank of `topology`, which is a node by itself once `in_nodes` joins it to others."""
    kept = tuple(one for one in topology.provenance if not one[0].startswith("levels."))
    return replace(topology, num_ranks=1, levels=(), provenance=kept)


def in_nodes(topology: Topology, nodes: int) -> Topology:
    """`nodes` of the whole of `topology`, which is one node, joined by a NIC of 400 Gb/s for each rank. Raises IllegalNodes."""
    if topology.num_nodes > 1:
        raise IllegalNodes(nodes=nodes, topology=topology.name, reason=f"it has {topology.num_nodes} nodes already")
    if nodes < 2:
        raise IllegalNodes(nodes=nodes, topology=topology.name, reason="a network joins at least two")
    rate = _SHARE * topology.push_sms.points[-1][1]
    far = Level("infiniband", Fabric.NETWORK, nodes, round(rate, 3), _SIGNAL_US, multicast=False, peer_atomics=False)
    origins = tuple((f"levels.{far.name}.{name}", _ORIGIN) for name in ("size", "gb_per_s", "signal_us"))
    return replace(
        topology,
        name=f"{topology.name}@{nodes}",
        num_ranks=topology.num_ranks * nodes,
        levels=(*topology.levels, far),
        provenance=(*topology.provenance, *origins),
    )
