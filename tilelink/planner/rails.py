"""Times of exchanges across nodes: puts along rails share a NIC, copies inside of nodes a port, and both go on at once.

    put (node j, chunk c)       begins when the one before has left the NIC, and is there `signal_us` of the network later
    copy (node j, chunk c, i)   begins when that chunk is there and the port is free; own chunks come first

All ranks do the same, so that what the rank i places behind hands on comes when copy i of this one does. Formulas: AllGather
across nodes, direct puts; the numbers are those of the descriptor (`topologies/h800-2-nodes.toml`), none is measured here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilelink.ir.movers import COPY_START_US
from tilelink.ir.nodes import Exchange
from tilelink.planner.loop import Times
from topologies.topology import Fabric, Topology

REQUEST_US = 0.25  # to post a put: 4 million a second of a proxy (ramp of one NIC, published with MORI)


class Hops(NamedTuple):
    """What a chunk takes, in us: on its way out of the NIC, and of the port to a rank of the node."""

    put: float
    copy: float


def hops(topology: Topology, exchange: Exchange, element_bytes: int) -> Hops:
    num_bytes = exchange.chunk_rows * exchange.cols * element_bytes
    network = min(level.gb_per_s for level in topology.levels if level.fabric is Fabric.NETWORK)
    inner = [level.gb_per_s for level in topology.levels if level.fabric is not Fabric.NETWORK and level.size > 1]
    rate = min([exchange.mover.gb_per_s(topology, exchange.transfer, num_bytes), *inner])
    floor, start = exchange.mover.start_us(topology)
    return Hops(REQUEST_US + num_bytes / network / 1e3, max(floor, num_bytes / rate / 1e3) + start)


def hops_us(topology: Topology, exchange: Exchange, element_bytes: int) -> tuple[float, float]:
    """(all transfers at least, those before the last node's first chunk is there at least), through whichever is slower."""
    hop, nodes, others = hops(topology, exchange, element_bytes), topology.num_nodes, topology.ranks_per_node - 1
    puts, copies = (nodes - 1) * exchange.chunks, nodes * exchange.chunks * others
    first = (nodes - 2) * exchange.chunks + 1, (nodes - 1) * exchange.chunks * others + others
    first_us = max(first[0] * hop.put, first[1] * hop.copy if others else 0.0)
    return max(puts * hop.put, copies * hop.copy), first_us


class Course(NamedTuple):
    """Of an exchange along rails: begin and end of each copy, when its bytes begin to pass the port, and when chunks are there,
    by place in the order of readers and chunk."""

    begins: Times
    starts: Times
    ends: Times
    arrivals: Times


def course(topology: Topology, exchange: Exchange, element_bytes: int, ready: float) -> Course:
    """`ready`: when the first transfers may begin."""
    hop, nodes, local = hops(topology, exchange, element_bytes), topology.num_nodes, topology.ranks_per_node
    chunks, far = exchange.chunks, max(level.signal_us for level in topology.levels)
    near = topology.levels[0].signal_us if local > 1 else 0.0
    there = np.zeros((nodes, chunks))
    puts = np.arange(1, (nodes - 1) * chunks + 1).reshape(nodes - 1, chunks)
    there[1:] = ready + puts * hop.put + far
    arrivals = np.zeros((nodes, local, chunks))
    arrivals[:, 0] = there
    free, begins, ends = ready, list[float](), list[float]()
    for node in range(nodes):
        for chunk in range(chunks):
            for other in range(1, local):
                begin = max(free, float(there[node, chunk]) if node else ready)
                free = begin + hop.copy
                begins.append(begin)
                ends.append(free)
                arrivals[node, other, chunk] = free + near
    flat = arrivals.reshape(nodes * local, chunks)[1:]
    return Course(np.array(begins), np.array(begins) + min(hop.copy, COPY_START_US), np.array(ends), flat)
