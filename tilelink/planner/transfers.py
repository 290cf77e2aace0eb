"""Exchanges in flight: when what they send is made, and when it arrives."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from tilelink.ir.movers import COPY_START_US
from tilelink.ir.nodes import Exchange
from tilelink.ir.order import Nest
from tilelink.ir.spec import DTYPE_BYTES
from tilelink.planner.draft import Parts
from tilelink.planner.links import chunk_us, num_links
from tilelink.planner.loop import Times
from tilelink.planner.rails import course
from topologies.topology import Topology

_FEW = 32  # transfers, which are faster one by one than as arrays
Spans = list[tuple[float, float]]


class State(NamedTuple):
    """What a tile loop finds: of the exchanges that it has to do with streams, sources and arrivals, and of all when their bytes
    pass the port. Values, so that it is a key."""

    streams: tuple[tuple[str, int], ...]
    made: tuple[tuple[str, bytes], ...]
    arrivals: tuple[tuple[str, bytes], ...]
    port: tuple[tuple[str, bytes], ...]


class Transfers:
    """The exchanges of a rank during one call; `streams`: of how many copy streams each that copy engines move."""

    def __init__(self, parts: Parts, topology: Topology, streams: Mapping[str, int]) -> None:
        self.parts, self.topology, self.streams = parts, topology, streams
        self.peers = topology.num_ranks - 1
        self.end = 0.0  # of all so far
        # by exchange: when its source chunks are complete, and when its chunks are readable here, [peer's place, chunk]
        self.made: dict[str, Times] = {x.name: np.zeros((self.peers, x.chunks)) for x in parts.exchanges.values()}
        self.arrivals: dict[str, Times] = {}
        # by exchange, begin and end of each transfer: with what starts it, and of its bytes that pass the one port of a rank
        self.moves: dict[str, Times] = {}
        self.port: dict[str, Times] = {}

    def state(self, names: Collection[str]) -> State:
        """What a loop that has to do with these exchanges finds."""
        return State(
            tuple((name, self.streams[name]) for name in names if name in self.streams),
            tuple((name, self.made[name].tobytes()) for name in names),
            tuple((name, self.arrivals[name].tobytes()) for name in names if name in self.arrivals),
            tuple((name, spans.tobytes()) for name, spans in self.port.items()),
        )

    @staticmethod
    def at(parts: Parts, topology: Topology, state: State) -> Transfers:
        """Transfers as that state says; `parts` has the exchanges that it names."""

        def times(name: str, data: bytes) -> Times:
            return np.frombuffer(data).reshape(topology.num_ranks - 1, parts.exchange(name).chunks).copy()

        found = Transfers(parts, topology, dict(state.streams))
        found.made = {name: times(name, data) for name, data in state.made}
        found.arrivals = {name: times(name, data) for name, data in state.arrivals}
        found.port = {name: np.frombuffer(spans).reshape(-1, 2) for name, spans in state.port}
        return found

    def take(self, other: Transfers) -> None:
        """Go on where `other` has come to with its exchanges."""
        self.made |= {name: times.copy() for name, times in other.made.items()}
        self.arrivals |= other.arrivals
        self.moves |= other.moves
        self.port |= other.port
        self.end = max(self.end, other.end)

    def move(self, exchange: Exchange) -> None:
        """Run the mover: each transfer starts when the one before is done and its source is complete."""
        name = exchange.source or exchange.target
        size = DTYPE_BYTES[self.parts.buffer(name).dtype]
        if exchange.mover.along_rails:
            self._along_rails(exchange, size)
            return
        us = chunk_us(self.topology, exchange, size, made=exchange.counted)
        by_rank = exchange.order.nest is Nest.RANK_MAJOR
        peers = self.peers if exchange.reach is None else exchange.reach  # of the rank that needs most
        made = self.made[exchange.name][:peers]
        ready = (made if by_rank else made.T).ravel()  # in the order of the mover
        streams = self._streams(exchange)
        # along rails between groups of one rank nothing passes the port
        others = [spans for name, spans in self.port.items() if name != exchange.name and len(spans)]
        alone = not any(float(spans[:, 1].max()) > float(ready.min()) for spans in others)
        if alone and streams == 1 and len(ready) > _FEW:
            passed = np.arange(1, len(ready) + 1) * us
            ends = np.maximum.accumulate(ready - passed + us) + passed
            begins = ends - us
            starts = begins + min(us, COPY_START_US)
        else:
            busy = [] if alone else sorted((first, last) for spans in others for first, last in spans.tolist())
            begins, starts, ends = _one_by_one(ready.tolist(), us, streams, peers, exchange, busy)
        self.moves[exchange.name] = np.array((begins, ends)).T
        if num_links(self.topology) == 1:
            self.port[exchange.name] = np.array((starts, ends)).T
        places = ends.reshape(peers, exchange.chunks) if by_rank else ends.reshape(exchange.chunks, peers).T
        arrived = np.zeros((self.peers, exchange.chunks))
        arrived[:peers] = places + self.topology.levels[0].signal_us
        self.arrivals[exchange.name] = arrived
        self.end = max(self.end, float(ends[-1]))

    def _along_rails(self, exchange: Exchange, size: int) -> None:
        """Behind others, with which it shares the NIC and the port."""
        before = max(
            (float(times.max()) for name, times in self.arrivals.items() if name != exchange.name), default=0.0
        )
        found = course(self.topology, exchange, size, self.made[exchange.name], before)
        self.moves[exchange.name] = np.array((found.begins, found.ends)).T
        self.port[exchange.name] = np.array((found.starts, found.ends)).T
        self.arrivals[exchange.name] = found.arrivals
        self.end = max(self.end, float(found.arrivals.max()))

    def _streams(self, exchange: Exchange) -> int:
        """Of its copies, of which one after the other passes the port. Where each peer has a link of its own, the times of
        all of them at once are those of one queue."""
        return self.streams.get(exchange.name, 1) if num_links(self.topology) == 1 else 1


def _one_by_one(
    ready: list[float], us: float, streams: int, peers: int, exchange: Exchange, busy: Spans
) -> tuple[Times, Times, Times]:
    """When transfers of `us` begin, when their bytes pass the port, and when they end, one after the other: on several streams,
    or through a port that others use."""
    free, end, passed = [0.0] * streams, 0.0, 0
    begins, starts, ends = list[float](), list[float](), list[float]()
    for step, there in enumerate(ready):
        place = step // exchange.chunks if exchange.order.nest is Nest.RANK_MAJOR else step % peers
        # what a stream starts while bytes of another one pass the port costs nothing
        begin = max(free[place % streams], there)
        start = begin + min(us, COPY_START_US)
        since = max(end, start)
        while passed < len(busy) and busy[passed][1] <= since:  # bytes pass the port in the order of steps
            passed += 1
        end = free[place % streams] = _through(busy, passed, since, max(0.0, us - COPY_START_US))
        begins.append(begin)
        starts.append(start)
        ends.append(end)
    return np.array(begins), np.array(starts), np.array(ends)


def _through(busy: Spans, at: int, start: float, us: float) -> float:
    """End of a transfer of `us` from `start` on through a port that others use in the spans of `busy`, in the order of their
    begins, from the one at `at` on."""
    end = start + us
    while at < len(busy) and busy[at][0] < end:
        first, last = busy[at]
        if last > start:
            end += last - max(first, start)
        at += 1
    return end
