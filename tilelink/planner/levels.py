"""How long what a schedule moves keeps each level of a fabric busy, whatever else goes on: the level that takes longest binds.

a gather, or a scatter, over NN nodes of L ranks, of parts of s bytes:
    inside of a node    (L - 1) * NN * s / rate of the link, or share of a bridge
    network             (NN - 1) * s / rate of the NIC
"""

from __future__ import annotations

from typing import NamedTuple

from tilelink.ir.calls import PacketCollective
from tilelink.ir.enums import PACKET_BYTES
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
    sizes = [one.rows * one.cols * DTYPE_BYTES[schedule.buffer(one.source or one.target).dtype] for one in crossing]
    launches = (one for one in schedule.launches if isinstance(one, PacketCollective) and one.per_node)
    sizes += [one.packets * PACKET_BYTES for one in launches]
    if not sizes:
        return ()
    nodes, local = topology.num_nodes, topology.ranks_per_node
    part, found = sum(sizes), list[Busy]()
    for level in topology.levels:
        times = nodes - 1 if level.fabric is Fabric.NETWORK else (local - 1) * nodes
        found.append(Busy(level.name, times * part / level.unit_gb_per_s / 1e3))
    return tuple(found)
