"""How long what a schedule moves keeps each level of a fabric busy, whatever else goes on: the level that takes longest binds.

a gather, or a scatter, over NN nodes of L ranks, of parts of s bytes:
    inside of a node    (L - 1) * NN * s / rate of the link, or share of a bridge
    network             (NN - 1) * s / rate of the NIC
"""

from __future__ import annotations

from typing import NamedTuple

from tilelink.ir.calls import PacketCollective
from tilelink.ir.enums import PACKET_BYTES
from tilelink.ir.routed import Sent
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import DTYPE_BYTES
from topologies.topology import Fabric, Topology


class Busy(NamedTuple):
    """A level, and microseconds that bytes of one rank pass it in one direction."""

    level: str
    us: float


def busy_levels(schedule: Schedule, topology: Topology) -> tuple[Busy, ...]:
    """Of a schedule that crosses nodes, all levels from inside out; of another one nothing."""
    crossing = [one for one in schedule.exchanges if one.mover.crosses_nodes]
    nodes, local = topology.num_nodes, topology.ranks_per_node
    outer, inner = list[float](), list[float]()  # bytes of a part that go to each other node, and to each rank inside
    for one in crossing:
        size = one.rows * one.cols * DTYPE_BYTES[schedule.buffer(one.source or one.target).dtype]
        needed = one.sent if isinstance(one.sent, Sent) else None
        outer.append(size * (needed.likely_share(nodes) if needed else 1.0))
        inner.append(size * (needed.likely_share(nodes * local) if needed else 1.0))
    packets = (one for one in schedule.launches if isinstance(one, PacketCollective) and one.per_node)
    sizes = [float(one.packets * PACKET_BYTES) for one in packets]
    if not (crossing or sizes):
        return ()
    found = list[Busy]()
    for level in topology.levels:
        far = level.fabric is Fabric.NETWORK
        moved = (nodes - 1) * sum(outer + sizes) if far else (local - 1) * nodes * sum(inner + sizes)
        found.append(Busy(level.name, moved / level.unit_gb_per_s / 1e3))
    return tuple(found)
