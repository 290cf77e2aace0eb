"""Schedule -> predicted microseconds: one pass over the launches in order, chunks through links and tiles through SMs.

One rank stands for all: what a peer sends at some place of its order arrives here at the same place of this one's.
Constants are fitted to schedules measured on 2 and 4 x H200; links come from the descriptor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilelink.ir.calls import LibraryCollective, LibraryGemm, WordCollective
from tilelink.ir.nodes import (
    AwaitPeers,
    Begin,
    ComputeRole,
    CopyEngine,
    CopyOwn,
    CopyProgram,
    Exchange,
    Finish,
    Fused,
    Kernel,
    Kind,
    Publish,
    TellPlace,
    Transfer,
)
from tilelink.ir.order import Nest
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import DTYPE_BYTES
from tilelink.ir.steps import MatmulBody, Notify, SumParts, Wait
from tilelink.planner.library_cost import library_matmul
from tilelink.planner.links import COPY_START_US, SIGNAL_COPY_US, chunk_times, library_us, num_links, queue_us, words_us
from tilelink.planner.loop import Index, Loop, Times, positions
from tilelink.planner.tile_cost import TileCost
from tilelink.proof.contract import flat
from topologies.topology import Topology

_BEGIN_US, _FINISH_US, _TURN_US = 7.0, 7.0, 7.0  # in a CUDA graph, joins of streams with them
_JOINED_US = 1.0  # programs that go on poll at once for what a launch would only begin to look for; not measured
_MEET_US, _MEET_SHARE = 0.3, 0.015  # until the peers' last word has come; of a call, a doubling of ranks
_ENDED_US = 0.008  # a program is counted when it ends
_STREAM_US = 6.0  # until a side stream has been forked and has waited for the peers
_TELL_US = 3.0  # of places that are needed at once: by so much 64 to 256 rows on 2 x H200 were above the model, or more
_COPIED_US = (
    0.3  # until it is known that copy streams have ended; 3 at 512 rows of AG+GEMM, 2 x H200, less in longer calls
)
_AWAIT_US, _WITHIN_US = 4.0, 0.8  # a stream's wait for the peers; what programs do before or after their work
_SKEW_SHARE, _SKEW_US = 0.03, 7.0  # how late a peer may be with a part: a share of the call so far, at most so much
_DRAG_US = 1.5  # a transfer of a copy engine with its signal slows what is computed beside it
_BOOST, _RELIEF = 0.1, 0.4  # tensor cores that rest so much of the time run faster by so much: GPUs are held to a power


def predict_us(schedule: Schedule, topology: Topology) -> float:
    """Time of one call in a CUDA graph."""
    return _Model(schedule, topology).run()


def timeline(schedule: Schedule, topology: Topology) -> Timeline:
    """When one call moves what and computes what, by the same model."""
    model = _Model(schedule, topology)
    return Timeline(model.run(), model.moves, model.tiles)


@dataclass(frozen=True, slots=True)
class TileTimes:
    """A run of tiles on `programs` programs; tile i, in the order of the launch, is of program i % `programs`."""

    programs: int
    begin_us: float
    tile_us: float  # of one tile, without what it waits for
    ends_us: Times
    segments: Index  # the place of each tile's segment in the order of the loop


@dataclass(frozen=True, slots=True)
class Timeline:
    """Times in us from the start of a call. Transfers of a rank by exchange, in order; tile loops by kernel."""

    total_us: float
    moves: Mapping[str, list[tuple[float, float]]]
    tiles: Mapping[str, TileTimes]


class _Model:
    def __init__(self, schedule: Schedule, topology: Topology) -> None:
        self.schedule = schedule
        self.topology = topology
        self.gpu = topology.gpu
        self.peers = topology.num_ranks - 1
        self.meet_share = _MEET_SHARE * math.log2(topology.num_ranks)  # of a call
        self.now = 0.0  # the compute stream
        self.streams_end = 0.0
        self.tensor_us = 0.0  # tensor cores busy, at the sustained clock
        # by exchange: when its source chunks are complete, and when its chunks are readable here, [peer's place, chunk]
        self.made: dict[str, Times] = {x.name: np.zeros((self.peers, x.chunks)) for x in schedule.exchanges}
        self.arrivals: dict[str, Times] = {}
        self.moves: dict[str, list[tuple[float, float]]] = {}  # by exchange, each transfer with what starts it
        self.tiles: dict[str, TileTimes] = {}  # by kernel
        self.port: dict[str, list[tuple[float, float]]] = {}  # by exchange, when its bytes pass the one port of a rank

    def run(self) -> float:
        for launch in self.schedule.launches:
            match launch:
                case Begin():
                    self.now += _BEGIN_US + self.topology.levels[0].signal_us
                case AwaitPeers(within):
                    self.now += _WITHIN_US if within else _AWAIT_US
                case Finish(turns=turns, within=within, meets=meets):
                    ended = _WITHIN_US + _ENDED_US * self.schedule.kernels()[-1].programs if within else 0.0
                    ended += _COPIED_US if within and self.schedule.has_signal("copied") else 0.0
                    last = ended or (_TURN_US if turns else _FINISH_US)
                    ended_at = max(self.now, self.streams_end)
                    self.now = ended_at + last + (_MEET_US + self.meet_share * ended_at if meets else 0.0)
                case Publish():
                    self._publish(launch)
                case TellPlace():
                    self.now += _WITHIN_US if self._hidden(launch) else _TELL_US
                case CopyOwn(name):
                    self.now += self._copy_us(self.schedule.exchange(name))
                case CopyProgram(name, after_source=after_source):
                    if after_source:
                        self.made[name][:] = self.now + _STREAM_US
                    if name not in self.arrivals:
                        self._move(self.schedule.exchange(name))
                case Kernel():
                    self._kernel(launch)
                case LibraryGemm():
                    self._library_gemm(launch)
                case LibraryCollective(function, out, operand):
                    size = max(self._bytes(out), self._bytes(operand))
                    self.now += library_us(self.topology, function, size)
                case WordCollective(words=words, shots=shots, within=within):
                    self.now += words_us(self.topology, words, shots, within=within)
        copies = [x for x in self.schedule.exchanges if isinstance(x.mover, CopyEngine)]
        drag = _DRAG_US * sum(self.peers * x.chunks for x in copies)
        total = max(self.now, self.streams_end) + drag
        return total - self._boost_us(total)

    def _hidden(self, tell: TellPlace) -> bool:
        """Whether places have long been told when they are needed: the kernel behind multiplies matrices first."""
        at = next(index for index, launch in enumerate(self.schedule.launches) if launch is tell)
        kernel = next(launch for launch in self.schedule.launches[at:] if isinstance(launch, Kernel))
        steps = flat(kernel.compute.body) if kernel.compute is not None else []
        return any(isinstance(step, MatmulBody) for step in steps)

    def _boost_us(self, total: float) -> float:
        """What higher clocks save: power that idle tensor cores do not draw."""
        idle = max(0.0, 1.0 - self.tensor_us / total) if total else 0.0
        return _BOOST * min(1.0, idle / _RELIEF) * self.tensor_us

    def _bytes(self, buffer: str) -> int:
        found = self.schedule.buffer(buffer)
        return math.prod(found.shape) * DTYPE_BYTES[found.dtype]

    def _copy_us(self, exchange: Exchange) -> float:
        return self.gpu.kernel_launch_us + 2 * self._bytes(exchange.source) / self.gpu.memory_gb_per_s / 1e3

    def _publish(self, publish: Publish) -> None:
        exchange = self.schedule.exchange(publish.exchange)
        if publish.copy_from:
            self.now += self._copy_us(exchange)
        if publish.within:
            self.made[exchange.name][:] = self.now + self.gpu.kernel_launch_us + self.topology.levels[0].signal_us
            return
        self.now += SIGNAL_COPY_US * self.peers
        self.made[exchange.name][:] = self.now

    def _move(self, exchange: Exchange) -> None:
        """Run the mover: each transfer starts when the one before is done and its source is complete."""
        name = exchange.source or exchange.target
        made_here = self.schedule.has_signal(f"{exchange.name}_count")
        times = chunk_times(self.topology, exchange, DTYPE_BYTES[self.schedule.buffer(name).dtype], made=made_here)
        made, arrivals = self.made[exchange.name], np.zeros((self.peers, exchange.chunks))
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
            begin = max(free[place % streams], float(made[place, chunk]))
            start = begin + min(us, COPY_START_US)
            end = free[place % streams] = _through(others, max(end, start), max(0.0, us - COPY_START_US))
            spans.append((start, end))
            moves.append((begin, end))
            arrivals[place, chunk] = end
        if num_links(self.topology) == 1:
            self.port[exchange.name] = spans
        self.arrivals[exchange.name] = arrivals + self.topology.levels[0].signal_us
        self.streams_end = max(self.streams_end, end)

    def _streams(self, exchange: Exchange) -> int:
        """Of its copies, of which one after the other passes the port. Where each peer has a link of its own, the times of
        all of them at once are those of one queue."""
        copies = (x for x in self.schedule.launches if isinstance(x, CopyProgram) and x.exchange == exchange.name)
        return next((x.streams for x in copies), 1) if num_links(self.topology) == 1 else 1

    def _kernel(self, kernel: Kernel) -> None:
        begin = self.now + (0.0 if kernel.joined else self.gpu.kernel_launch_us)
        role = kernel.compute
        produced = (
            {step.exchange for step in flat(role.body) if isinstance(step, Notify)} if role is not None else set()
        )
        for comm in kernel.comm:  # fed from outside: moves while the tiles run
            exchange = self.schedule.exchange(comm.exchange)
            if exchange.slots and role is not None:
                size = DTYPE_BYTES[self.schedule.buffer(exchange.source).dtype]
                self.streams_end = max(self.streams_end, begin + queue_us(self.topology, exchange, size, role.programs))
            elif comm.exchange not in produced:
                self.made[comm.exchange] = np.maximum(self.made[comm.exchange], begin)
                self._move(self.schedule.exchange(comm.exchange))
        if role is None:
            self.now = max(begin, self.streams_end)
            return
        run = _TileRun(self, kernel, role, begin, sorted(produced))
        run.run()
        self.tensor_us += run.cost.tensor_us()
        self.now -= _JOINED_US if kernel.joined else 0.0

    def _library_gemm(self, gemm: LibraryGemm) -> None:
        right = self.schedule.buffer(gemm.right.buffer)
        exchange = self.schedule.exchange(gemm.split) if gemm.split else None
        pieces = self.topology.num_ranks * exchange.chunks if exchange is not None else 1
        shape = tuple(end - first for first, end in gemm.right.window) or right.shape
        k, cols = shape[::-1] if gemm.transposed else shape
        rows = self._bytes(gemm.out.buffer) // DTYPE_BYTES[right.dtype] // cols
        matmul = library_matmul(self.topology, rows, cols, k, right.dtype, pieces)
        self.tensor_us += matmul.tensor_us
        self.now += self.gpu.kernel_launch_us
        if exchange is None:
            self.now += matmul.total_us
            return
        arrivals = np.sort(self.arrivals[exchange.name].ravel()) if exchange.name in self.arrivals else None
        made = []
        for step in range(pieces):
            if gemm.wait is not None and arrivals is not None and step >= exchange.chunks:
                self.now = max(self.now, float(arrivals[step - exchange.chunks]))
            self.now += matmul.piece_us + (self.gpu.kernel_launch_us if step else 0.0)
            made.append(self.now)
        if gemm.count:
            count = self.peers * exchange.chunks
            self.made[exchange.name] = np.array(made[:count]).reshape(self.peers, exchange.chunks)


class _TileRun:
    """A tile loop among the exchanges that feed it and that it feeds."""

    def __init__(self, model: _Model, kernel: Kernel, role: ComputeRole, begin: float, produced: list[str]) -> None:
        self.model = model
        self.name = kernel.name
        self.role = role
        self.begin = begin
        self.cost = TileCost(model.schedule, model.topology, kernel, role)
        self.at = positions(role)
        self.segments = role.axis(role.order.major).segments
        first = role.order.ranks.first
        self.own_place = (0 if first == 0 else self.segments - 1) if self.segments > 1 else -1
        exchanges = [model.schedule.exchange(name) for name in produced]
        self.leaving = [x for x in exchanges if x.kind is Kind.SCATTER]
        self.gathered = [x for x in exchanges if x.kind is Kind.GATHER]
        self.seen: dict[str, int] = {}  # exchange -> the last chunk whose arrival is known
        self.sums = [s for s in flat(role.body) if isinstance(s, SumParts) and s.onto and s.wait is not None]

    def run(self) -> None:
        model = self.model
        tile_us = self.cost.tile_us()
        extra = self.cost.own_extra_us() if self.sums else 0.0
        half_us = self.cost.half_us(tile_us) if self.role.halved else 0.0
        turns = self.role.warpgroups, self.cost.behind_us(), self.cost.pieces_us()
        loop = Loop(self.role.programs, self.begin, tile_us, extra, self.role.halved, half_us, *turns)
        own = self.at.place == self.own_place if self.sums else np.zeros(len(self.at.place), dtype=bool)
        ends = loop.run(self._ready(), own, self._late)
        model.tiles[self.name] = TileTimes(self.role.programs, self.begin, tile_us, ends, self.at.place)
        for exchange in self.leaving:
            self._complete(exchange, ends)
            if not self._pulled(exchange):
                model._move(exchange)
        counted = self._counted(ends)
        for exchange in self.gathered:
            mine = own if self.sums else np.ones(len(ends), dtype=bool)
            chunk = self._chunk_of_source(exchange)
            for number in range(exchange.chunks):
                of_chunk = counted[mine & (chunk == number)]
                model.made[exchange.name][:, number] = of_chunk.max() if len(of_chunk) else ends.max()
            if not self._pulled(exchange):
                model._move(exchange)
        model.now = float(ends.max()) + self.cost.drain_us()

    @staticmethod
    def _pulled(exchange: Exchange) -> bool:
        return isinstance(exchange.mover, Fused) and exchange.transfer is Transfer.PULL

    def _ready(self) -> Times:
        """When what a tile waits for before its matmul is there."""
        ready = np.full(len(self.at.place), self.begin)
        for wait in _waits(self.role):
            exchange = self.model.schedule.exchange(wait.exchange)
            arrivals = self._arrivals(exchange)
            if self.own_place < 0 or wait.slot != self.role.order.major or wait.every:
                rows_known = wait.rows == self.role.order.major and self.segments == 1
                if rows_known and wait.every:
                    ready = np.maximum(ready, arrivals.max(axis=0)[self.at.last_chunk(exchange)])
                else:
                    ready = np.maximum(ready, arrivals.max(initial=0.0))
                continue
            place = self.at.place - (1 if self.own_place == 0 else 0)
            needed = arrivals[np.clip(place, 0, len(arrivals) - 1), self.at.last_chunk(exchange)]
            ready = np.maximum(ready, np.where(self.at.place == self.own_place, 0.0, needed))
        return ready

    def _arrivals(self, exchange: Exchange) -> Times:
        """Loads from peers find a chunk one link time after it is published; what peers compute may be late."""
        if self._pulled(exchange) and exchange.name not in self.model.arrivals:
            self.model.arrivals[exchange.name] = np.maximum(self.model.made[exchange.name], self.begin)
        counted = self.model.schedule.has_signal(f"{exchange.name}_count")
        arrivals = self.model.arrivals[exchange.name]
        if counted and exchange.kind is Kind.GATHER:  # the last thing of a call that ranks make: they meet here
            return arrivals * (1.0 + self.model.meet_share)
        return arrivals + _skew(arrivals) if counted else arrivals

    def _late(self, ends: Times, at: Index) -> Times:
        """When the parts are there that the own tiles at positions `at` add."""
        late = np.zeros(len(at))
        for step in self.sums:
            assert step.wait is not None
            exchange = self.model.schedule.exchange(step.wait.exchange)
            chunk = self.at.last_chunk(exchange)[at]
            if int(chunk.max()) > self.seen.get(exchange.name, -1):
                self.seen[exchange.name] = int(chunk.max())
                self._complete(exchange, ends)
                if not self._pulled(exchange):
                    self.model._move(exchange)
            pulled = self._pulled(exchange)
            arrivals = self.model.made[exchange.name] if pulled else self.model.arrivals[exchange.name]
            late = np.maximum(late, (arrivals + _skew(arrivals)).max(axis=0)[chunk])
        return late

    def _complete(self, exchange: Exchange, ends: Times) -> None:
        """Source chunks of a scatter are complete when their tiles are; those that have not run count as done at once."""
        made = self.at.latest(exchange, self._counted(ends))
        places = [place for place in range(self.segments) if place != self.own_place]
        whole = np.maximum.accumulate(made[places], axis=1)  # a tile may reach into the chunk before
        self.model.made[exchange.name] = (
            whole
            if len(places) == self.model.peers
            else np.full((self.model.peers, exchange.chunks), float(ends.max()))
        )

    def _counted(self, ends: Times) -> Times:
        """When tiles are counted: when they are done, or when the next one of their program is, if that is of the same loop."""
        if not self.role.counts_late:
            return ends
        loop = len(ends) // self.segments * (self.segments - 1) if self.sums else len(ends)
        counted, programs = ends.copy(), self.role.programs
        counted[: max(0, loop - programs)] = ends[programs:loop]
        return counted

    def _chunk_of_source(self, exchange: Exchange) -> Index:
        """Of each tile, the chunk of the one part that a gather sends."""
        if self.segments == 1 or self.sums:
            return self.at.last_chunk(exchange)
        # the part is cut in segments for another exchange
        return self.at.shifted(self.role.axis(self.role.order.major).extent).last_chunk(exchange)


def _skew(times: Times) -> Times:
    return np.minimum(_SKEW_US, _SKEW_SHARE * times)


def _through(busy: list[tuple[float, float]], start: float, us: float) -> float:
    """End of a transfer of `us` from `start` on through a port that others use in the spans of `busy`."""
    end = start + us
    for first, last in busy:
        if last > start and first < end:
            end += last - max(first, start)
    return end


def _waits(role: ComputeRole) -> list[Wait]:
    """Waits of tiles that are not folded sums."""
    found = [step for step in role.body if isinstance(step, Wait)]
    for step in flat(role.body):
        if isinstance(step, MatmulBody):
            found += step.waits
        if isinstance(step, SumParts) and step.wait is not None and not step.onto:
            found.append(step.wait)
    return found
