"""Several nodes, of which a descriptor describes one: for plans and emulated runs, where no file says what joins them."""

from __future__ import annotations

from dataclasses import replace

from topologies.errors import IllegalNodes
from topologies.topology import Fabric, Level, Topology

_NIC_GB_PER_S = 45.0  # of 400 Gb/s (`h800-2-nodes.toml`)
_SHARE = 45 / 360  # of what SMs push to peers of their node, on machines that are slower than such a NIC: as on H200
_SIGNAL_US = 8.0  # of a put: half of a round trip over GIN (16.7 us on H100 and NDR, published); 6 to 12
_ORIGIN = "estimate: a NIC of 400 Gb/s for each GPU"


def alone(topology: Topology) -> Topology:
    """One rank of `topology`, which is a node by itself once `in_nodes` joins it to others."""
    kept = tuple(one for one in topology.provenance if not one[0].startswith("levels."))
    return replace(topology, num_ranks=1, levels=(), provenance=kept)


def in_nodes(topology: Topology, nodes: int, levels: tuple[Level, ...]) -> Topology:
    """`nodes` of the whole of `topology`, which is one node, joined by a NIC of 400 Gb/s for each rank. `levels`: those of the
    descriptor, of which few ranks may have none. Raises IllegalNodes."""
    if topology.num_nodes > 1:
        raise IllegalNodes(nodes=nodes, topology=topology.name, reason=f"it has {topology.num_nodes} nodes already")
    if nodes < 2:
        raise IllegalNodes(nodes=nodes, topology=topology.name, reason="a network joins at least two")
    rate = round(_nic_gb_per_s(topology, levels[0]), 3)
    far = Level("infiniband", Fabric.NETWORK, nodes, rate, _SIGNAL_US, multicast=False, peer_atomics=False)
    origins = tuple((f"levels.{far.name}.{name}", _ORIGIN) for name in ("size", "gb_per_s", "signal_us"))
    return replace(
        topology,
        name=f"{topology.name}@{nodes}",
        num_ranks=topology.num_ranks * nodes,
        levels=(*topology.levels, far),
        provenance=(*topology.provenance, *origins),
    )


def _nic_gb_per_s(topology: Topology, link: Level) -> float:
    """Of a rank: no more than a board takes from its slot."""
    pushed = topology.push_sms.points[-1][1]
    if link.fabric is Fabric.HOST_BRIDGE:
        return min(_NIC_GB_PER_S, link.gb_per_s)
    return _NIC_GB_PER_S if pushed >= _NIC_GB_PER_S else _SHARE * pushed
