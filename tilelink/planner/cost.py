"""Schedule -> predicted microseconds: one pass over the launches in order, chunks through links and tiles through SMs.

One rank stands for all: what a peer sends at some place of its order arrives here at the same place of this one's.
Constants are fitted to schedules measured on 2 and 4 x H200; links come from the descriptor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, repeat
from typing import NamedTuple

import numpy as np

from tilelink.ir.calls import (
    LibraryCollective,
    LibraryOp,
    ListPlaces,
    ListRows,
    PacketCollective,
    SortRows,
    StateMerge,
)
from tilelink.ir.nodes import (
    AwaitPeers,
    Begin,
    ComputeRole,
    CopyOwn,
    CopyProgram,
    Exchange,
    Finish,
    Kernel,
    Kind,
    Launch,
    MoveRows,
    Publish,
    TellPlace,
)
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import DTYPE_BYTES, Attend, Matmul
from tilelink.ir.steps import MatmulBody
from tilelink.ir.walk import flat
from tilelink.planner.draft import Draft, draft_of
from tilelink.planner.library_cost import LibraryTimes, library_attention, library_matmul
from tilelink.planner.links import (
    LIST_US,
    SIGNAL_COPY_US,
    drag_us,
    index_us,
    library_us,
    packet_call_us,
    places_us,
    queue_us,
)
from tilelink.planner.loop import Index, Times, last_ends
from tilelink.planner.states import states_us
from tilelink.planner.tile_run import TileLoop, in_two_parts, run_tiles, tile_loop
from tilelink.planner.tile_work import programs_of
from tilelink.planner.transfers import Transfers
from topologies.topology import Topology

_BEGIN_US, FINISH_US, _TURN_US = 7.0, 7.0, 7.0  # in a CUDA graph, joins of streams with them
_JOINED_US = 1.0  # programs that go on poll at once for what a launch would only begin to look for; not measured
MEET_US, _MEET_SHARE = 0.3, 0.015  # until the peers' last word has come; of a call, a doubling of ranks
ENDED_US = 0.008  # a program is counted when it ends
STREAM_US = 6.0  # until a side stream has been forked and has waited for the peers
_TELL_US = 3.0  # of places that are needed at once: by so much 64 to 256 rows on 2 x H200 were above the model, or more
_COPIED_US = (
    0.3  # until it is known that copy streams have ended; 3 at 512 rows of AG+GEMM, 2 x H200, less in longer calls
)
_AWAIT_US, WITHIN_US = 4.0, 0.8  # a stream's wait for the peers; what programs do before or after their work
_ROUNDED = 1e-9  # of a time, what other sums of the same terms may differ by
_BOOST, _RELIEF = 0.1, 0.4  # tensor cores that rest so much of the time run faster by so much: GPUs are held to a power


def predict_us(schedule: Schedule, topology: Topology) -> float:
    """Time of one call in a CUDA graph."""
    return draft_us(draft_of(schedule), topology, {})


def draft_us(draft: Draft, topology: Topology, loops: Mapping[str, TileLoop], limit: float = math.inf) -> float:
    """The same of a draft, or what it takes at least if that is `limit` or more. `loops`: known tile loops, by kernel."""
    return Model(draft, topology, loops).run(limit)


def most_boost_us(total: float, least: float, most: float) -> float:
    """The most that higher clocks save of `total` us, in which tensor cores are busy for so long at least and at most."""
    return _boost_us(total, min(most, max(least, (1.0 - _RELIEF) * total)))


def meet_share(topology: Topology) -> float:
    """Of a call, what it takes until the last peer has ended it."""
    return _MEET_SHARE * math.log2(topology.num_ranks)


def _boost_us(total: float, tensor: float) -> float:
    """What higher clocks save: power that idle tensor cores do not draw."""
    idle = max(0.0, 1.0 - tensor / total) if total else 0.0
    return _BOOST * min(1.0, idle / _RELIEF) * tensor


def timeline(schedule: Schedule, topology: Topology) -> Timeline:
    """When one call moves what and computes what, by the same model."""
    model = Model(draft_of(schedule), topology, {})
    total = model.run()
    moves = {name: [(begin, end) for begin, end in found.tolist()] for name, found in model.transfers.moves.items()}
    return Timeline(total, moves, model.tiles, tuple(model.spans))


@dataclass(frozen=True, slots=True)
class TileTimes:
    """A run of tiles on `programs` programs; tile i, in the order of the launch, is of program i % `programs`."""

    programs: int
    begin_us: float
    tile_us: float  # of one tile, without what it waits for
    ends_us: Times
    segments: Index  # the place of each tile's segment in the order of the loop
    late_us: tuple[float, ...] = ()  # after `begin_us`, each program begins; nothing: at once
    each_us: Times | None = None  # of each tile, where these are not alike

    @property
    def last_began_us(self) -> float:
        """When the program with the last tile to end begins."""
        return self.begin_us + (self.late_us[int(self.ends_us.argmax()) % self.programs] if self.late_us else 0.0)


class Span(NamedTuple):
    """A launch on the compute stream, with what it waits for there."""

    launch: Launch
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """Times in us from the start of a call. Transfers of a rank by exchange, in order; tile loops by kernel; launches on the
    compute stream."""

    total_us: float
    moves: Mapping[str, list[tuple[float, float]]]
    tiles: Mapping[str, TileTimes]
    launches: tuple[Span, ...] = ()


class Model:
    """One call: `spans` of the compute stream behind each other, `pauses` of library matmuls for chunks of an exchange, `tiles`
    by kernel, and transfers."""

    def __init__(self, draft: Draft, topology: Topology, loops: Mapping[str, TileLoop]) -> None:
        self.draft, self.parts = draft, draft.parts
        self.topology = topology
        self.loops = dict(loops)
        self.by_library: dict[str, LibraryTimes] = {}  # by what is made
        for launch in draft.launches:
            if isinstance(launch, Kernel) and launch.compute is not None and launch.name not in self.loops:
                role, on = launch.compute, programs_of(launch)
                two_parts = in_two_parts(draft.launches, role)
                self.loops[launch.name] = tile_loop(draft.parts, topology, role, on, two_parts=two_parts)
            elif isinstance(launch, LibraryOp):
                self.by_library[launch.out.buffer] = self._of_library(launch)
        self.gpu = topology.gpu
        self.peers = topology.num_ranks - 1
        self.meet_share = meet_share(topology)
        self.now = 0.0  # the compute stream
        self.tensor_us = sum(loop.cost.tensor_us for loop in self.loops.values())  # at the sustained clock
        self.tensor_us += sum(one.tensor_us for one in self.by_library.values())
        self.drag = sum(
            drag_us(topology, x, DTYPE_BYTES[self.parts.buffer(x.source or x.target).dtype])
            for x in self.parts.exchanges.values()
        )
        self.tiles: dict[str, TileTimes] = {}  # by kernel
        self.free: Times | None = None  # when each program of the last kernel has done its tiles
        self.spans: list[Span] = []
        self.pauses: list[tuple[str, float, float]] = []
        copies = (launch for launch in draft.launches if isinstance(launch, CopyProgram))
        self.transfers = Transfers(draft.parts, topology, {one.exchange: one.streams for one in copies})

    def run(self, limit: float = math.inf) -> float:
        launches = self.draft.launches
        rest = list(accumulate(map(self._least_us, reversed(launches)))) if limit < math.inf else [0.0]
        for launch, least in zip(launches, reversed(rest) if limit < math.inf else repeat(0.0), strict=False):
            if limit < math.inf and isinstance(launch, Kernel) and (sure := self._sure(least)) >= limit:
                return sure
            begin = self.now
            match launch:
                case Finish():
                    self._finish(launch)
                case Publish():
                    self._publish(launch)
                case CopyProgram(name, after_source=after_source):
                    if after_source:
                        self.transfers.made[name][:] = self.now + STREAM_US
                    if name not in self.transfers.arrivals:
                        self.transfers.move(self.parts.exchange(name))
                case MoveRows(name):
                    self.transfers.made[name][:] = self.now + self.gpu.kernel_launch_us
                    self.transfers.move(self.parts.exchange(name))
                case Kernel():
                    self._kernel(launch)
                case LibraryOp():
                    self._library_op(launch)
                case _:
                    self.now += self._least_us(launch)
            self.spans.append(Span(launch, begin, self.now))
        return self._total(max(self.now, self.transfers.end))

    def _sure(self, least: float) -> float:
        """What the call takes at least if what is left takes `least`."""
        us = max(self.now + least, self.transfers.end)
        finish = self.draft.launches[-1]
        if isinstance(finish, Finish):
            us = self._finished(finish, us)
        return (1.0 - _ROUNDED) * self._total(us)

    def _total(self, us: float) -> float:
        """Of a call whose last work ends then."""
        return us + self.drag - self.saved_us(us)

    def saved_us(self, us: float) -> float:
        """What higher clocks save of it."""
        return _boost_us(us + self.drag, self.tensor_us)

    def _least_us(self, launch: Launch) -> float:
        """What a launch takes on the compute stream, at least if it waits for something."""
        match launch:
            case Begin():
                return _BEGIN_US + self.topology.levels[0].signal_us
            case AwaitPeers(within):
                return WITHIN_US if within else _AWAIT_US
            case TellPlace():
                return WITHIN_US if self._hidden(launch) else _TELL_US
            case CopyOwn(name):
                return self._copy_us(self.parts.exchange(name))
            case SortRows(routed):
                return index_us(routed)
            case ListRows():
                return LIST_US
            case ListPlaces(placed):
                return places_us(placed)
            case LibraryCollective(function, out, operand):
                return library_us(self.topology, function, max(self._bytes(out), self._bytes(operand)))
            case PacketCollective():
                return packet_call_us(self.topology, launch)
            case StateMerge(operands=operands):
                return states_us(launch, self.parts.buffer(operands[0]).dtype, self.topology)
            case LibraryOp(out=out):
                return self.gpu.kernel_launch_us + self.by_library[out.buffer].total_us
            case Kernel(name, compute=role, joined=joined):
                begin = -_JOINED_US if joined else self.gpu.kernel_launch_us
                begin = 0.0 if role is not None and role.first else begin
                return begin + self.loops[name].least_us if role is not None else 0.0
            case Finish() | Publish() | MoveRows() | CopyProgram():
                return 0.0

    def _finish(self, finish: Finish) -> None:
        self.now = self._finished(finish, max(self.now, self.transfers.end))

    def _finished(self, finish: Finish, ended_at: float) -> float:
        """When the call is over whose work ends then."""
        return ended_at + sum(self.end_us(finish, ended_at))

    def end_us(self, finish: Finish, ended_at: float) -> tuple[float, float]:
        """To end a call whose work ends then, and until the last peer has."""
        ended = WITHIN_US + ENDED_US * self._last_programs() if finish.within else 0.0
        ended += _COPIED_US if finish.within and self.draft.copied else 0.0
        last = ended or (_TURN_US if finish.turns else FINISH_US)
        in_step = any(one.kind is Kind.RETURN for one in self.parts.exchanges.values())  # they have met for their rows
        return last, MEET_US + (0.0 if in_step else self.meet_share * ended_at) if finish.meets else 0.0

    def _last_programs(self) -> int:
        """Of the last kernel."""
        return [launch for launch in self.draft.launches if isinstance(launch, Kernel)][-1].programs

    def _hidden(self, tell: TellPlace) -> bool:
        """Whether places have long been told when they are needed: the kernel behind multiplies matrices first."""
        at = next(index for index, launch in enumerate(self.draft.launches) if launch is tell)
        kernel = next(launch for launch in self.draft.launches[at:] if isinstance(launch, Kernel))
        steps = flat(kernel.compute.body) if kernel.compute is not None else []
        return any(isinstance(step, MatmulBody) for step in steps)

    def _bytes(self, buffer: str) -> int:
        found = self.parts.buffer(buffer)
        return math.prod(found.shape) * DTYPE_BYTES[found.dtype]

    def _copy_us(self, exchange: Exchange) -> float:
        return self.gpu.kernel_launch_us + 2 * self._bytes(exchange.source) / self.gpu.memory_gb_per_s / 1e3

    def _publish(self, publish: Publish) -> None:
        exchange = self.parts.exchange(publish.exchange)
        if publish.copy_from:
            self.now += self._copy_us(exchange)
        if publish.within:
            self.transfers.made[exchange.name][:] = (
                self.now + self.gpu.kernel_launch_us + self.topology.levels[0].signal_us
            )
            return
        self.now += SIGNAL_COPY_US * self.peers
        self.transfers.made[exchange.name][:] = self.now

    def _kernel(self, kernel: Kernel) -> None:
        begin, role = self.now + (0.0 if kernel.joined else self.gpu.kernel_launch_us), kernel.compute
        if role is not None and role.first:
            self._in_turn(kernel, role)
            return
        loop = self.loops[kernel.name] if role is not None else None
        produced = loop.produced if loop is not None else ()
        for comm in kernel.comm:  # fed from outside: moves while the tiles run
            exchange = self.parts.exchange(comm.exchange)
            if exchange.slots and role is not None:
                size = DTYPE_BYTES[self.parts.buffer(exchange.source).dtype]
                self.transfers.end = max(
                    self.transfers.end, begin + queue_us(self.topology, exchange, size, role.programs)
                )
            elif comm.exchange not in produced:
                self.transfers.made[comm.exchange] = np.maximum(self.transfers.made[comm.exchange], begin)
                self.transfers.move(self.parts.exchange(comm.exchange))
        if role is None:
            self.now = max(begin, self.transfers.end)
            return
        assert loop is not None, "there is a role"
        ends = run_tiles(self.transfers, loop, begin, self.meet_share)
        times = role.programs, begin, loop.cost.tile_us, ends, loop.at.place
        self.tiles[kernel.name] = TileTimes(*times, (), loop.each_us)
        self.now = float(ends.max()) + loop.cost.drain_us
        self.now -= _JOINED_US if kernel.joined else 0.0
        self.free = last_ends(ends, role.programs, begin) if not kernel.joined and role.warpgroups == 1 else None

    def _in_turn(self, kernel: Kernel, role: ComputeRole) -> None:
        """A loop that each program of the kernel before begins when it is done there."""
        assert self.free is not None, "programs that go on have ended"
        loop, free = self.loops[kernel.name], np.roll(self.free, -(role.first % role.programs))
        begin = float(free.min())
        late = tuple((free - begin).tolist())
        ends = run_tiles(self.transfers, loop, begin, self.meet_share, late)
        times = role.programs, begin, loop.cost.tile_us, ends, loop.at.place
        self.tiles[kernel.name] = TileTimes(*times, late, loop.each_us)
        self.free = np.roll(last_ends(ends, role.programs, free), role.first % role.programs)
        self.now = max(self.now, float(ends.max()) + loop.cost.drain_us)

    def _by_parts(self, launch: LibraryOp) -> None:
        """Attention over the own keys, then over each part that has come, as the rank does it that sees all of them."""
        times, pieces = self.by_library[launch.out.buffer], self.pieces(launch)
        self.now += self.gpu.kernel_launch_us + times.total_us - (pieces - 1) * times.piece_us
        found = self.transfers.arrivals
        brought = [(name, np.sort(found[name].max(axis=1)).tolist()) for name in launch.split if name in found]
        for number in range(pieces - 1):
            arrived, name = max((each[number], name) for name, each in brought)
            begin, self.now = self.now, max(self.now, arrived)
            self.pauses.append((name, begin, self.now))
            self.now += times.piece_us + self.gpu.kernel_launch_us

    def _of_library(self, launch: LibraryOp) -> LibraryTimes:
        first, second = (self.parts.buffer(one.buffer) for one in launch.operands[:2])
        if isinstance(launch.how, Attend):
            keys = (
                second.shape[0]
                if not launch.split
                else self.topology.num_ranks * self.parts.exchange(launch.split[0]).rows
            )
            return library_attention(self.topology, launch.how, first.shape[0], keys, first.dtype, self.pieces(launch))
        shape = tuple(end - begin for begin, end in launch.operands[1].window) or second.shape
        k, cols = shape[::-1] if launch.how.transposed else shape
        rows = self._bytes(launch.out.buffer) // DTYPE_BYTES[second.dtype] // cols
        return library_matmul(self.topology, rows, cols, k, second.dtype, launch.how.transposed, self.pieces(launch))

    def pieces(self, launch: LibraryOp) -> int:
        if not launch.split:
            return 1
        chunks = self.parts.exchange(launch.split[0]).chunks if isinstance(launch.how, Matmul) else 1
        return self.topology.num_ranks * chunks

    def _library_op(self, gemm: LibraryOp) -> None:
        if isinstance(gemm.how, Attend) and gemm.split:
            self._by_parts(gemm)
            return
        exchange = self.parts.exchange(gemm.split[0]) if gemm.split else None
        pieces, matmul = self.pieces(gemm), self.by_library[gemm.out.buffer]
        self.now += self.gpu.kernel_launch_us
        if exchange is None:
            self.now += matmul.total_us
            return
        arrivals = (
            np.sort(self.transfers.arrivals[exchange.name].ravel())
            if exchange.name in self.transfers.arrivals
            else None
        )
        made = []
        for step in range(pieces):
            if gemm.wait is not None and arrivals is not None and step >= exchange.chunks:
                begin, self.now = self.now, max(self.now, float(arrivals[step - exchange.chunks]))
                self.pauses.append((exchange.name, begin, self.now))
            self.now += matmul.piece_us + (self.gpu.kernel_launch_us if step else 0.0)
            made.append(self.now)
        if gemm.counted:
            count = self.peers * exchange.chunks
            self.transfers.made[exchange.name] = np.array(made[:count]).reshape(self.peers, exchange.chunks)
