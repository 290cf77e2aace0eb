"""How long what a schedule moves keeps each level of a fabric busy, whatever else goes on: the level that takes longest binds.

a gather, or a scatter, over NN nodes of L ranks, of parts of s bytes:
    inside of a node    (L - 1) * NN * s / rate of the link, or share of a bridge
    between its halves  (L - l) * NN * s / share of their link, of halves of l ranks; (L / l - 1) * NN * s, if they hand on
    network             (NN - 1) * s / rate of the NIC
"""

from __future__ import annotations

from typing import NamedTuple

from tilelink.ir.calls import PacketCollective
from tilelink.ir.enums import PACKET_BYTES
from tilelink.ir.routed import Sent
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import DTYPE_BYTES
from tilelink.planner.links import rail_packets
from tilelink.planner.rails import shares
from topologies.topology import Fabric, Topology


class Busy(NamedTuple):
    """A level, and microseconds that bytes of one rank pass it in one direction."""

    level: str
    us: float


def busy_levels(schedule: Schedule, topology: Topology) -> tuple[Busy, ...]:
    """Of a schedule that crosses nodes, all levels from inside out; of another one nothing."""
    crossing = [one for one in schedule.exchanges if one.mover.crosses_nodes]
    nodes, local, half = topology.num_nodes, topology.ranks_per_node, topology.ranks_per_half
    outer, inner, across = list[float](), list[float](), list[float]()  # bytes of a rank
    for one in crossing:
        size: float = one.rows * one.cols * DTYPE_BYTES[schedule.buffer(one.source or one.target).dtype]
        needed = one.sent if isinstance(one.sent, Sent) else None
        outer.append((nodes - 1) * size * (needed.likely_share(nodes) if needed else 1.0))
        size *= nodes * (needed.likely_share(nodes * local) if needed else 1.0)
        inner.append((local - 1) * size)
        across.append((local // half - 1 if one.order.ranks.ranks_per_half else local - half) * size)
    for launch in schedule.launches:
        if isinstance(launch, PacketCollective) and launch.per_node:
            packets = launch.packets * launch.protocol.packet_bytes
            outer.append((nodes - 1) * rail_packets(launch.packets, launch.protocol) * PACKET_BYTES)
            inner.append((local - 1) * nodes * packets)
            across.append((local - half) * nodes * packets)
    if not outer:
        return ()
    found = list[Busy]()
    for level, rate in zip(topology.levels, shares(topology, topology.levels), strict=True):
        joins_halves = half < local and level is not topology.levels[0]
        moved = outer if level.fabric is Fabric.NETWORK else across if joins_halves else inner
        found.append(Busy(level.name, sum(moved) / rate / 1e3))
    return tuple(found)
