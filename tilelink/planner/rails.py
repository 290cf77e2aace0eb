"""Times of exchanges across nodes: puts along rails share a NIC, copies inside of nodes a port, and both go on at once.

    put (node j, chunk c)       begins when the one before has left the NIC, and is there `signal_us` of the network later
    copy (node j, chunk c, i)   begins when that chunk is there, or made, and the port is free
    sum (node j, chunk c)       begins when the parts of all ranks of the node are there

All ranks do the same, so that what the rank i places behind copies comes when copy i of this one does. The numbers are those of
the descriptor (`topologies/h800-2-nodes.toml`), none is measured here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np

from tilelink.ir.movers import COPY_START_US, ChunkMover, Issuer
from tilelink.ir.node_sums import as_sent, in_strips
from tilelink.ir.nodes import Exchange
from tilelink.ir.routed import Sent
from tilelink.planner.loop import Times
from topologies.topology import Fabric, Level, Topology

ADDED_GB_PER_S = (
    60.0  # that one program loads and stores; twice what one SM of H200 pushes to peers, not measured by itself
)
SEND_US = (
    14.0  # send and receive of NCCL: what its tuner takes a hop over a network to add (`NET`, Simple), not measured
)
CHANNEL_GB_PER_S = 10.3  # of one channel of NCCL, on an SM: 33.5 MB by two took 1,631 us (2 x H200, NVLink)
REQUEST_US = 0.25  # to post a put: 4 million a second of a proxy (ramp of one NIC, published with MORI)

STREAM_PUT_US = 15.0  # of a put on a stream with few bytes, over NVLink: 8 of 8 KB took 141 us (2 x H200)


def rail_ranks(topology: Topology, mover: ChunkMover) -> int:
    """Ranks of a group, between which rails go: of a node, or of a half of one."""
    return topology.ranks_per_node if mover.crosses_nodes else topology.ranks_per_half


class Groups(NamedTuple):
    """Ranks that come one behind the other in an order: of a node, or what stands for one, and of halves of it, 0 for none."""

    node: int
    half: int


def groups_of(topology: Topology, mover: ChunkMover) -> Groups:
    """Groups through which a mover brings chunks, or sums, level by level."""
    local, half = rail_ranks(topology, mover) if mover.along_rails else topology.ranks_per_node, topology.ranks_per_half
    through = mover.along_rails and mover.crosses_nodes and not mover.listed and 1 < half < local
    return Groups(local, half if through else 0)


def held_sms(topology: Topology, mover: ChunkMover) -> int:
    """SMs that are held beside those of programs: by a library, and by streams that put or hand on, which wait for the number of
    the call, and the host does not know that."""
    if mover.issuer is not Issuer.STREAMS:
        return 0
    halves = groups_of(topology, mover).half > 0
    streams = (rail_ranks(topology, mover) > 1) + halves + (mover.puts is Issuer.STREAMS)
    return streams + mover.library_sms


class Hops(NamedTuple):
    """What a chunk takes, in us: on its way along a rail, until it is there then, out of the port to a rank of the group, and to
    the other half of a node, if it is handed on there."""

    put: float
    far: float
    copy: float
    across: float = 0.0


def hops(topology: Topology, exchange: Exchange, element_bytes: int) -> Hops:
    mover, num_bytes = exchange.mover, exchange.chunk_rows * exchange.cols * element_bytes
    outer = (
        [one for one in topology.levels if one.fabric is Fabric.NETWORK]
        if mover.crosses_nodes
        else [topology.levels[-1]]
    )
    inner = [one for one in topology.levels if one not in outer and one.size > 1]
    rail, far = min(one.gb_per_s for one in outer), max(one.signal_us for one in outer)
    floor, start = mover.start_us(topology)
    near: float = num_bytes  # that a rank of the group gets
    if isinstance(exchange.sent, Sent):  # rows of a block that follow each other are one message
        sent, share = exchange.sent, exchange.sent.likely_share(topology.num_nodes)
        requests = sent.tokens // sent.rows * share * (1 + (sent.rows - 1) * (1 - share))
        put = requests * REQUEST_US + num_bytes * share / rail / 1e3
        near, far = num_bytes * sent.likely_share(topology.num_ranks), 3 * far  # there, known to be, told
    elif mover.library_sms:  # a call is over when both ranks have what they get, and the next one begins behind it
        put, far = SEND_US + num_bytes / min(rail, mover.library_sms * CHANNEL_GB_PER_S) / 1e3, 0.0
    elif mover.puts:
        put = REQUEST_US + num_bytes / rail / 1e3
        if mover.puts is Issuer.STREAMS:  # a put, the wait until it is there and that for its word follow each other
            put += STREAM_PUT_US + 2 * far
    else:
        (share,) = shares(topology, outer)
        put = max(floor, num_bytes / min(share, mover.gb_per_s(topology, exchange.transfer, num_bytes)) / 1e3) + start
    half = exchange.order.ranks.ranks_per_half
    rates = [mover.gb_per_s(topology, exchange.transfer, near), *shares(topology, inner)]
    copy, across = (max(floor, near / min(some) / 1e3) + start for some in (rates[:-1] if half else rates, rates))
    if not half:
        return Hops(put, far, copy)
    halves = rail_ranks(topology, mover) // half
    return Hops(put, far, copy * (1 + (halves - 1) / (halves * (half - 1))), across)  # both pass the first level


def shares(topology: Topology, levels: Sequence[Level]) -> list[float]:
    """GB/s of a rank over each level while all ranks are busy: boards share a bridge, those of a half its link to the next."""
    half = topology.ranks_per_half
    ranks = [half if half < topology.ranks_per_node and one is not topology.levels[0] else one.size for one in levels]
    by_bridge = [one.fabric is Fabric.HOST_BRIDGE for one in levels]
    return [one.gb_per_s / (n if shared else 1) for one, n, shared in zip(levels, ranks, by_bridge, strict=True)]


def hops_us(topology: Topology, exchange: Exchange, element_bytes: int) -> tuple[float, float]:
    """(all transfers at least, those before the last group's first chunk is there at least), through whichever is slower."""
    hop, local = hops(topology, exchange, element_bytes), rail_ranks(topology, exchange.mover)
    groups, half = topology.num_ranks // local, exchange.order.ranks.ranks_per_half or local
    others, halves, chunks = half - 1, local // half, exchange.chunks
    puts, copies, across = (groups - 1) * chunks, groups * halves * chunks * others, groups * chunks * (halves - 1)
    first = (
        (groups - 2) * chunks + 1,
        (groups - 1) * halves * chunks * others + others,
        (groups - 1) * chunks * (halves - 1),
    )
    first_us = max(first[0] * hop.put, first[1] * hop.copy if others else 0.0, first[2] * hop.across)
    return max(puts * hop.put, copies * hop.copy, across * hop.across), first_us


class Course(NamedTuple):
    """Of an exchange along rails: begin and end of each copy, when its bytes begin to pass the port, and when chunks are there,
    by place in the order of readers and chunk."""

    begins: Times
    starts: Times
    ends: Times
    arrivals: Times


def course(topology: Topology, exchange: Exchange, element_bytes: int, made: Times, begin: float) -> Course:
    """`made`: when chunks are, by place and chunk. `begin`: when the port and the NIC are free."""
    ways = _Ways(topology, exchange, hops(topology, exchange, element_bytes), np.maximum(made, begin), begin)
    arrivals = ways.scattered(element_bytes) if exchange.relayed else ways.gathered()
    begins, ends = np.array(ways.begins), np.array(ways.ends)
    return Course(begins, begins + min(ways.hop.copy, COPY_START_US), ends, arrivals)


class _Ways:
    """The port and the NIC of a rank, and what has passed them."""

    def __init__(self, topology: Topology, exchange: Exchange, hop: Hops, made: Times, begin: float) -> None:
        self.topology, self.exchange, self.hop, self.made = topology, exchange, hop, made
        self.local, self.chunks = rail_ranks(topology, exchange.mover), exchange.chunks
        self.half = exchange.order.ranks.ranks_per_half or self.local
        self.nodes, self.halves = topology.num_ranks // self.local, self.local // self.half
        self.near = topology.levels[0].signal_us if self.local > 1 else 0.0
        self.port = self.nic = self.bridge = begin
        self.begins, self.ends = list[float](), list[float]()

    def copy(self, ready: float) -> float:
        """When it is there."""
        begin = max(self.port, ready)
        self.port = begin + self.hop.copy
        self.begins.append(begin)
        self.ends.append(self.port)
        return self.port + self.near

    def across(self, ready: float) -> float:
        self.bridge = max(self.bridge, ready) + self.hop.across
        return self.bridge + max(one.signal_us for one in self.topology.levels if one.fabric is not Fabric.NETWORK)

    def put(self, ready: float, us: float) -> float:
        self.nic = max(self.nic, ready) + us
        return self.nic + self.hop.far

    def gathered(self) -> Times:
        made = self.made.max(axis=0)
        arrivals = np.zeros((self.nodes, self.halves, self.half, self.chunks))
        arrivals[0, 0, 0] = made
        for node in range(1, self.nodes):
            arrivals[node, 0, 0] = [self.put(float(made[chunk]), self.hop.put) for chunk in range(self.chunks)]
        for node, chunk in product(range(self.nodes), range(self.chunks)):
            for half in range(1, self.halves):
                arrivals[node, half, 0, chunk] = self.across(float(arrivals[node, 0, 0, chunk]))
        for node, half, chunk in product(range(self.nodes), range(self.halves), range(self.chunks)):
            ready = float(arrivals[node, half, 0, chunk])
            for other in range(1, self.half):
                arrivals[node, half, other, chunk] = self.copy(ready)
        return arrivals.reshape(self.nodes * self.local, self.chunks)[1:]

    def scattered(self, element_bytes: int) -> Times:
        """Parts of the ranks of the own half for this rank, then sums of the other halves, and of the other nodes; of no other
        part anything is awaited."""
        made = np.zeros((self.nodes, self.halves, self.half, self.chunks))
        made.reshape(-1, self.chunks)[: len(self.made)] = self.made  # the own part is made last, and not sent
        there = made.copy()
        for node, half, other in product(range(self.nodes), range(self.halves), range(self.half - 1)):
            there[node, half, other] = [self.copy(float(one)) for one in made[node, half, other]]
        ready, adding = there.max(axis=2), _Adding(self.exchange, element_bytes)
        beside, sums = np.zeros((self.nodes, self.halves - 1, self.chunks)), np.zeros((self.nodes - 1, self.chunks))
        sent = as_sent(self.exchange)
        put = hops(self.topology, sent, element_bytes).put
        for node in range(self.nodes):
            for half in range(self.halves - 1):
                beside[node, half] = adding.sums(ready[node, half], self.half, self.chunks, self.across)
            if node < self.nodes - 1:
                every = np.maximum(ready[node, -1], beside[node].max(axis=0, initial=0.0))
                sums[node] = adding.sums(every, self.half + self.halves - 1, sent.chunks, partial(self.put, us=put))
        arrivals = np.zeros((self.nodes * self.local - 1, self.chunks))
        awaited = np.concatenate([there[-1, -1, :-1], beside[-1], sums])
        arrivals[: len(awaited)] = awaited
        return arrivals


class _Adding:
    """Programs that add, and when each is free."""

    def __init__(self, exchange: Exchange, element_bytes: int) -> None:
        cut = in_strips(exchange)
        self.chunks, self.strips = exchange.chunks, cut.chunks // exchange.chunks
        self.us = cut.chunk_rows * cut.cols * element_bytes / ADDED_GB_PER_S / 1e3  # to load or to store a strip
        self.programs = [0.0] * max(1, exchange.mover.sms)
        self.number = 0

    def sums(self, ready: Times, parts: int, messages: int, leave: Callable[[float], float]) -> Times:
        """When sums of so many `parts` are where they go, whose chunks are `ready` to be added; strip by strip, each of which
        leaves with others in one of `messages`."""
        together, added, found = self.strips * self.chunks // messages, 0.0, np.zeros(self.chunks)
        for strip, there in enumerate(np.repeat(ready, self.strips)):
            program = self.number % len(self.programs)
            self.programs[program] = max(self.programs[program], float(there)) + (parts + 1) * self.us
            added = max(added, self.programs[program])
            if (strip + 1) % together == 0:
                found[strip // self.strips], added = leave(added), 0.0
            self.number += 1
        return found
