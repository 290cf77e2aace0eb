"""Schedule -> predicted microseconds: chunks through links and tiles through SMs, with fill, drain and wave quantisation.

First version: one pass over the launches in order, chunk by chunk, for one rank (all ranks are alike). The shares of peak
of a tile shape are the ratios measured on H200 with Triton 3.6; links come from the descriptor.
"""

from __future__ import annotations

import math

from tilelink.ir.nodes import (
    Axis,
    Begin,
    ComputeRole,
    CopyOwn,
    CopyProgram,
    Exchange,
    Finish,
    Fused,
    Kernel,
    Kind,
    LibraryCollective,
    LibraryGemm,
    Publish,
    Transfer,
)
from tilelink.ir.order import Nest
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import DTYPE_BYTES
from tilelink.ir.steps import IfOwn, Load, MatmulBody, Notify, Operand, Step, Store, SumParts, UserBody, Wait
from tilelink.planner.links import FUSED_SHARE, SIGNAL_COPY_US, chunk_times, library_us, num_links
from topologies.topology import Topology

_TILE_START_US = 1.5  # fill and drain of the software pipeline of one tile, fitted to 4 x H200
_PROTOCOL_US = 14.0  # begin, finish and the joins of streams in a CUDA graph, fitted to 4 x H200
_REDUCTION_STEP_US = 0.3  # a step of 64 along k takes at least this long, however small the tile; fitted to H200
_LIBRARY_STEP_US = 0.22  # the same for the library's matmul
_LIBRARY_FILL_US = 5.0  # first loads and last stores of a library matmul

_SHARE_EXPONENT = 0.25  # how much slower small tiles are; fitted to 4 x H200
_WAVE_SHARE = 0.5  # of what whole waves would cost, a library's matmul pays; fitted to 4 x H200
_BOOST, _BOOST_US = 0.15, 1200.0  # short matmuls run at higher clocks: by so much, fading over so long; fitted to H200
_SKEW_US, _SKEW_SHARE = 20.0, 0.05  # how late a peer may be with its last part: fixed, and of the loop; fitted

_PIECE_US = 5.0  # between two pieces of a library matmul: a wait, drain and fill; fitted to 4 x H200
_POINTER_STORES = 1.05  # tiles that are signalled are stored through pointers, which takes longer; fitted to 4 x H200
_FUSED_LOAD_SHARE = 1.1  # of a link, loads from peers reach: neighbours find lines in the L2; fitted to 4 x H200

Arrivals = dict[tuple[int, int], float]  # (place in the order of ranks, chunk) -> us


def predict_us(schedule: Schedule, topology: Topology) -> float:
    """Time of one call in a CUDA graph, without rank skew."""
    return _Model(schedule, topology).run()


def tile_share(m: int, n: int, warps: int = 8) -> float:
    """Share of the best GEMM rate that a tile shape reaches: fewer operand bytes a flop, better use of the tensor cores."""
    accumulators = m * n / (32 * warps)
    share = (accumulators / 128) ** 0.1 * (m * n / (m + n) / 85.3) ** 0.05
    return float(min(1.0, share) * (1.0 if n >= m else 0.94))


def library_waves(rows: float, cols: float, num_sms: int) -> float:
    """Time of a library matmul over that of one whose tiles come in whole waves: the best of three tile widths, since
    the library chooses one. Fitted to pieces of matmuls on 4 x H200."""
    ratios = []
    for width in (128, 192, 256):
        tiles = math.ceil(rows / 128) * math.ceil(cols / width)
        ratios.append(math.ceil(tiles / num_sms) * num_sms / tiles / tile_share(128, width))
    return 1.0 + _WAVE_SHARE * (min(ratios) - 1.0)


def boosted(us: float) -> float:
    """Time of a matmul that takes `us` at the sustained clock."""
    return us * (1.0 - _BOOST * math.exp(-us / _BOOST_US))


class _Model:
    def __init__(self, schedule: Schedule, topology: Topology) -> None:
        self.schedule = schedule
        self.topology = topology
        self.gpu = topology.gpu
        self.now = 0.0  # the compute stream
        self.streams_end = 0.0
        self.arrivals: dict[str, Arrivals] = {}  # exchange -> when its chunks are readable here
        self.made: dict[str, list[float]] = {}  # exchange -> when its source chunks are complete, in the mover's order

    def run(self) -> float:
        for exchange in self.schedule.exchanges:
            self.made[exchange.name] = [0.0] * ((self.topology.num_ranks - 1) * exchange.chunks)
        for launch in self.schedule.launches:
            match launch:
                case Begin():
                    self.now += _PROTOCOL_US / 2 + self.topology.levels[0].signal_us
                case Finish(turns=turns):
                    self.now = max(self.now, self.streams_end) + _PROTOCOL_US * (0.4 if turns else 0.5)
                case Publish(name, copy_from):
                    self._publish(self.schedule.exchange(name), bool(copy_from))
                case CopyOwn(name):
                    self.now += self._copy_us(self.schedule.exchange(name))
                case CopyProgram(name, _, after_source):
                    if after_source:
                        self.made[name] = [self.now] * len(self.made[name])
                    self._move(self.schedule.exchange(name))
                case Kernel():
                    self._kernel(launch)
                case LibraryGemm():
                    self._library_gemm(launch)
                case LibraryCollective(function, out, operand):
                    size = max(self._bytes(out), self._bytes(operand))
                    self.now += library_us(self.topology, function, size)
        return max(self.now, self.streams_end)

    def _bytes(self, buffer: str) -> int:
        found = self.schedule.buffer(buffer)
        size = DTYPE_BYTES[found.dtype]
        for extent in found.shape:
            size *= extent
        return size

    def _copy_us(self, exchange: Exchange) -> float:
        return self.gpu.kernel_launch_us + 2 * self._bytes(exchange.source) / self.gpu.memory_gb_per_s / 1e3

    def _publish(self, exchange: Exchange, copies: bool) -> None:
        if copies:
            self.now += self._copy_us(exchange)
        self.now += SIGNAL_COPY_US * (self.topology.num_ranks - 1)
        self.made[exchange.name] = [self.now] * len(self.made[exchange.name])

    def _move(self, exchange: Exchange) -> None:
        """Run the mover: each transfer starts when the one before is done and its source is complete."""
        name = exchange.source or exchange.target
        times = chunk_times(self.topology, exchange, DTYPE_BYTES[self.schedule.buffer(name).dtype])
        signal = self.topology.levels[0].signal_us
        peers = self.topology.num_ranks - 1
        end, arrivals = 0.0, Arrivals()
        for step, (us, ready) in enumerate(zip(times, self.made[exchange.name], strict=True)):
            end = max(end, ready) + us
            if exchange.order.nest is Nest.RANK_MAJOR:
                place, chunk = divmod(step, exchange.chunks)
            else:
                chunk, place = divmod(step, peers)
            arrivals[place, chunk] = end + signal
        self.arrivals[exchange.name] = arrivals
        self.streams_end = max(self.streams_end, end)

    def _kernel(self, kernel: Kernel) -> None:
        begin = self.now + self.gpu.kernel_launch_us
        role = kernel.compute
        produced = {e.name for e in self.schedule.exchanges if role is not None and _notifies(role.body, e.name)}
        for comm in kernel.comm:  # fed from outside: moves while the tiles run
            if comm.exchange not in produced:
                self.made[comm.exchange] = [max(begin, t) for t in self.made[comm.exchange]]
                self._move(self.schedule.exchange(comm.exchange))
        if role is None:
            self.now = max(begin, self.streams_end)
            return
        self._feed_fused(role, begin)
        self.began = begin
        self.per_sm, self.warps = kernel.per_sm, kernel.warps
        tile_us = self._tile_us(role)
        cursor = self._tiles(role, begin, tile_us)
        scatters = [n for n in sorted(produced) if self.schedule.exchange(n).kind is Kind.SCATTER]
        for name in scatters:
            self._after_tiles(self.schedule.exchange(name), role, cursor, begin)
        if _sums_inside(role.body):
            cursor = self._sum_inside(role, cursor)
        for name in sorted(produced.difference(scatters)):
            self._after_tiles(self.schedule.exchange(name), role, cursor, begin)
        self.now = cursor

    def _feed_fused(self, role: ComputeRole, begin: float) -> None:
        """Loads from peers: a chunk is there one link time after it is published."""
        for wait in _waits(role.body):
            exchange = self.schedule.exchange(wait.exchange)
            if isinstance(exchange.mover, Fused) and exchange.transfer is Transfer.PULL:
                ready = self.made[exchange.name][0]
                self.arrivals[exchange.name] = {
                    (place, chunk): max(begin, ready)
                    for place in range(self.topology.num_ranks - 1)
                    for chunk in range(exchange.chunks)
                }

    def _tile_us(self, role: ComputeRole) -> float:
        """One tile on one SM: the slower of tensor cores, memory, and remote loads or stores."""
        bodies = [step for step in role.body if isinstance(step, MatmulBody | UserBody)]
        written = [axis for axis in role.axes if not axis.reduction]
        m, n = written[0].tile, written[-1].tile
        inner = sum(axis.extent * axis.segments for axis in role.axes if axis.reduction) or 1
        buffers = {name for step in role.body for name in _touched(step)}
        traffic = sum(self._bytes(name) for name in buffers) / max(1, role.num_tiles)
        memory = traffic / (self.gpu.memory_gb_per_s / role.programs) / 1e3
        dtype = self.schedule.spec.inputs[0].dtype
        rate = (
            self.gpu.tflops(dtype)
            * self.gpu.gemm_efficiency
            * tile_share(m, n, self.warps)
            / self.gpu.num_sms
            / self.per_sm
        )
        one = 2 * m * n * inner / rate / 1e6
        waves = role.num_tiles / role.programs
        compute = len(bodies) * max(boosted(one * waves) / waves, inner / 64 * _REDUCTION_STEP_US)
        if any(isinstance(step, Notify) for step in _walk(role.body)):
            compute *= _POINTER_STORES
        return max(compute, memory, self._remote_us(role)) + (0.4 if role.prefetch else _TILE_START_US)

    def _remote_us(self, role: ComputeRole) -> float:
        """Bytes that tiles load from peers, each by every tile that needs it."""
        worst = 0.0
        link = self.topology.link_gb_per_s(0, 1) * _FUSED_LOAD_SHARE
        for step in role.body:
            if isinstance(step, IfOwn):
                continue  # own tiles only: counted where they end
            for operand in _operands(step):
                if operand.remote:
                    elements = self.topology.num_ranks - 1 if isinstance(step, SumParts) else 1
                    for name in operand.index:
                        if name:
                            axis = role.axis(name)
                            elements *= axis.tile if axis.tile and not axis.reduction else axis.extent
                    size = elements * DTYPE_BYTES[self.schedule.buffer(operand.buffer).dtype]
                    worst = max(worst, size / (link / role.programs) / 1e3)
        return worst

    def _groups(self, role: ComputeRole) -> list[tuple[int, int, int]]:
        """(place, chunk, tiles) in the order in which the role visits them; one entry if it has no segments."""
        major = role.axis(role.order.major)
        minor = role.num_tiles // (major.segments * major.tiles)
        if major.segments == 1:
            return [(-1, 0, role.num_tiles)]
        chunks = max([self.schedule.exchange(e).chunks for e in _exchanges(role.body)] or [1])
        per_chunk = _spread(major, chunks)
        if role.order.nest is Nest.RANK_MAJOR:
            return [(p, c, per_chunk[c] * minor) for p in range(major.segments) for c in range(chunks)]
        return [(p, c, per_chunk[c] * minor) for c in range(chunks) for p in range(major.segments)]

    def _tiles(self, role: ComputeRole, begin: float, tile_us: float) -> float:
        """Work-conserving: groups in order, none before its chunks are there; whole waves at the end."""
        cursor, own = begin, 0 if role.order.ranks.first == 0 else self.topology.num_ranks - 1
        waits = [self.schedule.exchange(w.exchange) for w in _waits(role.body)]
        self.finished: list[tuple[int, int, float]] = []
        for place, chunk, tiles in self._groups(role):
            for exchange in waits:
                cursor = max(cursor, self._needed(exchange, place, chunk, own, role))
            cursor += tiles / role.programs * tile_us
            self.finished.append((place, chunk, cursor))
        waves = -(-role.num_tiles // role.programs)
        return cursor + (waves - role.num_tiles / role.programs) * tile_us

    def _needed(self, exchange: Exchange, place: int, chunk: int, own: int, role: ComputeRole) -> float:
        arrivals = self.arrivals.get(exchange.name, {})
        along = any(w.exchange == exchange.name and w.slot == role.order.major for w in _waits(role.body))
        if not along or place < 0:
            return max(arrivals.values(), default=0.0)
        if place == own:
            return 0.0
        arrived_place = place - 1 if own == 0 else place
        chunks = [us for (p, c), us in arrivals.items() if p == arrived_place and c <= min(chunk, exchange.chunks - 1)]
        return max(chunks, default=0.0)

    def _after_tiles(self, exchange: Exchange, role: ComputeRole, end: float, begin: float) -> None:
        """Source chunks of an exchange are complete when their tiles are; then the mover runs."""
        peers = self.topology.num_ranks - 1
        done = {(place, chunk): us for place, chunk, us in self.finished}
        first = begin
        if exchange.kind is Kind.GATHER and _sums_inside(role.body):
            # what the own tiles make comes in the last segment, and not before the parts that they add have arrived
            first = end - (end - begin) / self.topology.num_ranks
            late = self._last_part(role)
            first, end = max(first, late), max(end, late)
        made = []
        for step in range(peers * exchange.chunks):
            nest = exchange.order.nest is Nest.RANK_MAJOR
            place, chunk = divmod(step, exchange.chunks) if nest else divmod(step, peers)[::-1]
            if exchange.kind is Kind.SCATTER and (place, chunk) in done:
                made.append(done[place, chunk])
            else:
                share = (chunk + 1) / exchange.chunks if exchange.kind is Kind.GATHER else 1.0
                made.append(first + (end - first) * share)
        self.made[exchange.name] = made
        if isinstance(exchange.mover, Fused) and exchange.transfer is Transfer.PULL:
            return
        if not any(
            isinstance(launch, CopyProgram) and launch.exchange == exchange.name for launch in self.schedule.launches
        ):
            self._move(exchange)

    def _sum_inside(self, role: ComputeRole, end: float) -> float:
        """Own tiles end after the last part has arrived; copy programs are enqueued after the kernel, so run them here."""
        for launch in self.schedule.launches:
            if isinstance(launch, CopyProgram) and not launch.after_source and _notifies(role.body, launch.exchange):
                self._move(self.schedule.exchange(launch.exchange))
        remote = [s for s in _walk(role.body) if isinstance(s, SumParts) and s.onto and s.operand.remote]
        link = self.topology.link_gb_per_s(0, 1) * num_links(self.topology) * FUSED_SHARE
        parts = sum((self.topology.num_ranks - 1) * self._part_bytes(s.operand) for s in remote)
        return end + self._held_up(role, end) + parts / link / 1e3

    def _held_up(self, role: ComputeRole, end: float) -> float:
        """How long own tiles, the last of the loop, wait for parts: the rows of a chunk for that chunk of every peer."""
        own = (end - self.began) / self.topology.num_ranks
        skew = _SKEW_US + _SKEW_SHARE * (end - self.began)
        sums = [step for step in _walk(role.body) if isinstance(step, SumParts) and step.onto and step.wait is not None]
        worst = 0.0
        for step in sums:
            assert step.wait is not None
            chunks = self.schedule.exchange(step.wait.exchange).chunks
            for (_, chunk), us in self.arrivals.get(step.wait.exchange, {}).items():
                ready = end - own + own * chunk / chunks + self._tile_us(role)
                worst = max(worst, us + skew - ready)
        return worst

    def _part_bytes(self, operand: Operand) -> float:
        return self._bytes(operand.buffer) / operand.own_slots

    def _last_part(self, role: ComputeRole) -> float:
        """When the last part that own tiles add has arrived."""
        sums = [step for step in _walk(role.body) if isinstance(step, SumParts) and step.onto and step.wait is not None]
        times = [us for s in sums if s.wait for us in self.arrivals.get(s.wait.exchange, {}).values()]
        return max(times, default=0.0)

    def _library_gemm(self, gemm: LibraryGemm) -> None:
        out, left = self._bytes(gemm.out.buffer), self._bytes(gemm.left.buffer)
        right = self.schedule.buffer(gemm.right.buffer)
        rows = out / DTYPE_BYTES[right.dtype] / right.shape[-1]
        flops = 2 * rows * right.shape[-2] * right.shape[-1]
        compute = flops / (self.gpu.tflops(right.dtype) * self.gpu.gemm_efficiency) / 1e6
        memory = (out + left + self._bytes(gemm.right.buffer)) / self.gpu.memory_gb_per_s / 1e3
        least = _LIBRARY_FILL_US + right.shape[-2] / 64 * _LIBRARY_STEP_US
        exchange_pieces = 1
        if gemm.split:
            exchange_pieces = self.topology.num_ranks * self.schedule.exchange(gemm.split).chunks
        waves = library_waves(rows / exchange_pieces, right.shape[-1], self.gpu.num_sms)
        total = max(boosted(compute * waves), memory, least)
        if not gemm.split:
            self.now += self.gpu.kernel_launch_us + total
            return
        exchange = self.schedule.exchange(gemm.split)
        pieces = self.topology.num_ranks * exchange.chunks
        # a piece that does not fill the GPU takes as long as one wave
        piece = max(total / pieces, least) + self.gpu.kernel_launch_us + _PIECE_US
        arrivals = sorted(self.arrivals.get(exchange.name, {}).values())
        made = []
        for step in range(pieces):
            if gemm.wait is not None and step >= exchange.chunks:
                self.now = max(self.now, arrivals[step - exchange.chunks])
            self.now += piece
            made.append(self.now)
        if gemm.count:
            self.made[exchange.name] = made[: len(self.made[exchange.name])]


def _spread(major: Axis, chunks: int) -> list[int]:
    """Tiles of a segment by the chunk in which they end."""
    counts = [0] * chunks
    for tile in range(major.tiles):
        counts[min(chunks - 1, (tile + 1) * chunks // max(1, major.tiles) - 1 if major.tiles >= chunks else tile)] += 1
    return counts


def _walk(steps: tuple[Step, ...]) -> list[Step]:
    found: list[Step] = []
    for step in steps:
        found.append(step)
        if isinstance(step, IfOwn):
            found += _walk(step.own) + _walk(step.others)
    return found


def _waits(steps: tuple[Step, ...]) -> list[Wait]:
    """Waits of tiles that are not folded sums."""
    found = [step for step in steps if isinstance(step, Wait)]
    for step in _walk(steps):
        if isinstance(step, MatmulBody):
            found += step.waits
        if isinstance(step, SumParts) and step.wait is not None and not step.onto:
            found.append(step.wait)
    return found


def _sums_inside(steps: tuple[Step, ...]) -> bool:
    return any(isinstance(step, SumParts) and step.onto for step in _walk(steps))


def _notifies(steps: tuple[Step, ...], exchange: str) -> bool:
    return any(isinstance(step, Notify) and step.exchange == exchange for step in _walk(steps))


def _exchanges(steps: tuple[Step, ...]) -> list[str]:
    names = [wait.exchange for wait in _waits(steps)]
    return names + [step.exchange for step in _walk(steps) if isinstance(step, Notify)]


def _operands(step: Step) -> list[Operand]:
    match step:
        case MatmulBody(left=left, right=right):
            return [left, right]
        case UserBody(operands=operands):
            return [operand for _, operand in operands]
        case SumParts(operand=operand) | Store(operand=operand) | Load(operand=operand):
            return [operand]
    return []


def _touched(step: Step) -> list[str]:
    return [operand.buffer for operand in _operands(step)]
