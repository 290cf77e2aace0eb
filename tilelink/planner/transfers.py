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
from tilelink.planner.links import chunk_times, num_links
from tilelink.planner.loop import Times
from topologies.topology import Topology

Spans = tuple[tuple[float, float], ...]


class State(NamedTuple):
    """What a tile loop finds: of the exchanges that it has to do with streams, sources and arrivals, and of all when their bytes
    pass the port. Values, so that it is a key."""

    streams: tuple[tuple[str, int], ...]
    made: tuple[tuple[str, bytes], ...]
    arrivals: tuple[tuple[str, bytes], ...]
    port: tuple[tuple[str, Spans], ...]


class Transfers:
    """The exchanges of a rank during one call; `streams`: of how many copy streams each that copy engines move."""

    def __init__(self, parts: Parts, topology: Topology, streams: Mapping[str, int]) -> None:
        self.parts, self.topology, self.streams = parts, topology, streams
        self.peers = topology.num_ranks - 1
        self.end = 0.0  # of all so far
        # by exchange: when its source chunks are complete, and when its chunks are readable here, [peer's place, chunk]
        self.made: dict[str, Times] = {x.name: np.zeros((self.peers, x.chunks)) for x in parts.exchanges.values()}
        self.arrivals: dict[str, Times] = {}
        self.moves: dict[str, list[tuple[float, float]]] = {}  # by exchange, each transfer with what starts it
        self.port: dict[str, list[tuple[float, float]]] = {}  # by exchange, when its bytes pass the one port of a rank

    def state(self, names: Collection[str]) -> State:
        """What a loop that has to do with these exchanges finds."""
        return State(
            tuple((name, self.streams[name]) for name in names if name in self.streams),
            tuple((name, self.made[name].tobytes()) for name in names),
            tuple((name, self.arrivals[name].tobytes()) for name in names if name in self.arrivals),
            tuple((name, tuple(spans)) for name, spans in self.port.items()),
        )

    @staticmethod
    def at(parts: Parts, topology: Topology, state: State) -> Transfers:
        """Transfers as that state says; `parts` has the exchanges that it names."""

        def times(name: str, data: bytes) -> Times:
            return np.frombuffer(data).reshape(topology.num_ranks - 1, parts.exchange(name).chunks).copy()

        found = Transfers(parts, topology, dict(state.streams))
        found.made = {name: times(name, data) for name, data in state.made}
        found.arrivals = {name: times(name, data) for name, data in state.arrivals}
        found.port = {name: list(spans) for name, spans in state.port}
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
        times = chunk_times(self.topology, exchange, size, made=exchange.counted)
        made, arrivals = self.made[exchange.name].tolist(), np.zeros((self.peers, exchange.chunks))
        others = sorted(span for name, spans in self.port.items() if name != exchange.name for span in spans)
        spans: list[tuple[float, float]] = []
        moves = self.moves[exchange.name] = []
        streams = self._streams(exchange)
        free, end = [0.0] * streams, 0.0
        for step, us in enumerate(times):
            if exchange.order.nest is Nest.RANK_MAJOR:
                place, chunk = divmod(step, exchange.chunks)
            else:
                chunk, place = divmod(step, self.peers)
            # what a stream starts while bytes of another one pass the port costs nothing
            begin = max(free[place % streams], made[place][chunk])
            start = begin + min(us, COPY_START_US)
            end = free[place % streams] = _through(others, max(end, start), max(0.0, us - COPY_START_US))
            spans.append((start, end))
            moves.append((begin, end))
            arrivals[place, chunk] = end
        if num_links(self.topology) == 1:
            self.port[exchange.name] = spans
        self.arrivals[exchange.name] = arrivals + self.topology.levels[0].signal_us
        self.end = max(self.end, end)

    def _streams(self, exchange: Exchange) -> int:
        """Of its copies, of which one after the other passes the port. Where each peer has a link of its own, the times of
        all of them at once are those of one queue."""
        return self.streams.get(exchange.name, 1) if num_links(self.topology) == 1 else 1


def _through(busy: list[tuple[float, float]], start: float, us: float) -> float:
    """End of a transfer of `us` from `start` on through a port that others use in the spans of `busy`."""
    end = start + us
    for first, last in busy:
        if last > start and first < end:
            end += last - max(first, start)
    return end
