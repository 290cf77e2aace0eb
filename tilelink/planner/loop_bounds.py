"""What one loop of a structure takes at least: by its tiles, and by the exchanges that its tiles read and feed."""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

from tilelink.ir.choices import ComputeChoice, ExchangeChoice, TritonLoop
from tilelink.ir.enums import Tail
from tilelink.ir.graph import Copy, Relation, Sum
from tilelink.ir.movers import FUSED_SHARE
from tilelink.ir.node_sums import parts_added
from tilelink.ir.nodes import PIECES_SPREAD, Exchange, Kind
from tilelink.ir.order import Nest
from tilelink.ir.routed import Along, Follows, Placed, Routed
from tilelink.ir.spec import DTYPE_BYTES, Attend, Combine, Elementwise, Matmul
from tilelink.planner.group import Group
from tilelink.planner.last_round import MOST_SPLITS
from tilelink.planner.layout import exchange_of
from tilelink.planner.links import FUSED_LOAD_SHARE, SUM_LOAD_SHARE, tile_packets_us
from tilelink.planner.memo import remembered
from tilelink.planner.structure import Structure, group_of
from tilelink.planner.tile_cost import (
    BEHIND_US,
    COUNT_US,
    LAST_EXPOSED,
    LATE_COUNT_US,
    MIXED,
    NARROW,
    ROWS_DRAG,
    SHARED_LINK,
    STORES_DRAG,
    STORES_EXPOSED,
    STORES_HIDDEN,
    WIDE_TILE,
    WIDE_WEIGHTS,
)
from tilelink.planner.tile_order import num_tiles
from tilelink.planner.tile_work import (
    START_US,
    Programs,
    Work,
    again_us,
    compute_us,
    flops_us,
    least_tile_us,
    matmul_memory_us,
    rows_share,
    stream_share,
)

Around = tuple[tuple[str, ExchangeChoice], ...]  # exchanges whose parts a loop reads or makes


class Busy(NamedTuple):
    """Microseconds of the compute stream, and of busy tensor cores; of all tiles by the average program, without what own tiles
    add. `adds`: of the program that has most to add, from the first parts on. `first_own`, `last_own`: until the first chunk of
    own tiles is done, and the last one. `tile`: its rows and columns. `most_tensor`: of `tensor`, not at least but at most.
    `rest`: of tiles that wait for rows of other ranks, where others come first."""

    us: float = 0.0
    tensor: float = 0.0
    tiles: float = 0.0
    adds: float = 0.0
    first_own: float = 0.0
    last_own: float = 0.0
    tile: tuple[int, int] = (0, 0)
    programs: int = 0
    library: bool = False
    most_tensor: float = math.inf
    rest: float | None = None


@remembered
def loop_us(structure: Structure, name: str, choice: ComputeChoice, sms: int, folded: str, around: Around) -> Busy:
    """A tile loop on so many SMs. `folded`: the group that runs in its epilogue, if one does."""
    group, loop = group_of(structure, name), choice.loop
    if not isinstance(loop, TritonLoop) or structure.queue_of(group) is not None or sms < 1:
        return Busy()
    bound = _Bound(structure, group, loop, sms, folded, around)
    if isinstance(group.anchor.operation, Matmul):
        index = structure.maker(name)
        if structure.goes_on(index) or structure.goes_on(index + 1):  # programs may have tiles of other loops, too
            return bound.shared()
        return bound.matmul()
    if isinstance(group.anchor.operation, Sum | Copy | Elementwise | Combine):
        return bound.stream()
    return Busy()


class _Bound:
    """`rounds`: tiles of the program that has most, without halves."""

    def __init__(
        self, structure: Structure, group: Group, loop: TritonLoop, sms: int, folded: str, around: Around
    ) -> None:
        self.structure, self.group, self.loop, self.folded, self.sms = structure, group, loop, folded, sms
        self.topology, self.graph = structure.topology, structure.graph
        self.tiles, most = num_tiles(structure, group.name, loop.tile.m, loop.tile.n), sms * loop.tile.per_sm
        self.programs = most if loop.tail is Tail.SPLIT_K else min(self.tiles, most)  # fewer tiles are shared by all
        whole = loop.tail is Tail.WHOLE
        self.rounds: float = -(-self.tiles // self.programs) if whole else self.tiles // self.programs
        self.turns = loop.tile.warpgroups > 1
        how = group.anchor.operation
        if isinstance(how, Attend) and how.causal:  # the long tiles may come first
            self.rounds = self.tiles / self.programs
        found = ((structure.graph.relation(name), exchange_of(structure, name, choice)) for name, choice in around)
        self.exchanges = [(r, x) for r, x in found if r is not None and isinstance(x, Exchange) and not x.slots]
        self.written = [axis for axis in group.anchor.axes if not axis.reduction]

    def matmul(self) -> Busy:
        gpu, tile, loop = self.topology.gpu, self.loop.tile, self.loop
        reduction = next(axis.extent for axis in self.group.anchor.axes if axis.reduction)
        by_expert = self.routed is not None  # each tile has weights of its own
        in_order, step = self._may_be_in_order(), max(64, tile.k)
        work = Work(tile.m, tile.n, 2, self.group.matmuls, 1, reduction, step, self.turns, by_expert, in_order)
        on = Programs(tile.warps, tile.stages, tile.per_sm, beside=False)
        dtype = self.graph.values[self.graph.inputs[0]].dtype
        rounds = -(-self.tiles // self.programs)
        memory = matmul_memory_us(self._moved(), gpu) / rounds
        memory *= NARROW if by_expert and tile.n < WIDE_WEIGHTS else 1.0
        prefetch = loop.prefetch and self._may_prefetch()
        one = least_tile_us(work, on, dtype, gpu, memory, prefetch=prefetch)
        if not (self.turns or prefetch or by_expert):
            one += again_us(compute_us(work, on, dtype, gpu), memory, rounds)
        one += 0.0 if self.turns else self._packets_us() + self._loads_us()
        one = one if self.turns else max(one, self._pulled_us(reduction))
        one += self._sent_us(one) + self._counts() * (LATE_COUNT_US if loop.late else COUNT_US)
        us = self.rounds * one
        if loop.tail is not Tail.WHOLE and self.tiles % self.programs:
            us += one / (2 if loop.tail is Tail.HALVES else MOST_SPLITS)
        tiles, ranks, adds = self.tiles / self.programs * one, self.topology.num_ranks, 0.0
        first, last = 0.0, 0.0
        if self.folded:
            own = self.tiles / ranks / self.programs
            adds, first = self._adds(one), self._first_own(one)
            last = 0.0 if self.chunked else self.rounds * one
            others = 0.0 if self.chunked else (ranks - 1) / ranks * tiles  # of warpgroups in turns: own tiles come last
            us = max(us, own * self._added_us(one, one) + (others if self.turns else tiles))
        us += BEHIND_US if self.turns else 0.0
        tensor = flops_us(work, on, dtype, gpu) * self.tiles
        least = 0.0 if self.routed else tensor / self.programs  # tiles of experts may be no sooner at higher clocks
        shape, most = (tile.m, tile.n), tensor / self.programs
        rest = tiles * self._waiting() if loop.own_first else None
        busy = Busy(gpu.kernel_launch_us + us, least, tiles, adds, first, last, shape, self.programs, rest=rest)
        return busy._replace(most_tensor=most)

    def _may_prefetch(self) -> bool:
        """Whether a tile may be loaded before the one before it is stored: of one matmul, behind which nothing branches."""
        return self.group.matmuls == 1 and not (self.folded and self.chunked)

    def _may_be_in_order(self) -> bool:
        """Whether rows by experts follow each other, or may, where it is not known how they come."""
        known, reads = {x.name: x.sent for _, x in self.exchanges}, self.group.reads()
        read = (one for one in self.structure.relations if one.name in reads)
        sent = (known.get(one.name, self.structure.placed(one, self.loop.tile.m)) for one in read)
        return any(isinstance(one, Placed) for one in sent)

    def _waiting(self) -> float:
        """Of tiles of rows that a routing finds, the share of those that are not of own tokens only."""
        routed, height = self.routed, self.loop.tile.m
        own = routed.likely_own_tiles(height, self.topology.num_ranks) if routed is not None else 0
        return 1.0 - own / routed.likely_tiles(height) if routed is not None else 1.0

    def shared(self) -> Busy:
        """A matmul whose launch may be that of others, whose programs share all tiles evenly."""
        found, programs = self.matmul(), self.sms * self.loop.tile.per_sm
        share = self.programs / programs
        return found._replace(
            us=found.tiles * share, tensor=found.tensor * share, tiles=found.tiles * share, programs=0
        )

    def _adds(self, one: float) -> float:
        """What the program with most own tiles takes, of `one` us each, when the parts of its first one are there: it adds them,
        and then computes the others, which two warpgroups do at the same time."""
        most, extra = -(-(self.tiles // self.topology.num_ranks) // self.programs), self._added_us(one, math.inf)
        alone = -(-most // 2) if self.turns else most
        return max(most * extra, alone * extra + (alone - 1) * one)

    def _first_own(self, one: float) -> float:
        """Until the first chunk of own tiles is done, if these come last."""
        if self.chunked:
            return 0.0
        makes, own = group_of(self.structure, self.folded).makes, self.tiles // self.topology.num_ranks
        m = self.loop.tile.m  # a tile that reaches into another chunk is of that one
        whole = (own * (x.chunk_rows // m) // -(-x.rows // m) for r, x in self.exchanges if makes(r.source))
        return -(-(self.tiles - own + max(1, min(whole, default=0))) // self.programs) * one

    def stream(self) -> Busy:
        gpu, moved = self.topology.gpu, self._streamed()
        for relation, exchange in self.exchanges:
            part = math.prod(relation.part) * self._size(relation)
            if self.group.makes(relation.source):
                scatters = relation.kind is Kind.SCATTER or not exchange.source
                moved += part * (self.topology.num_ranks if scatters else 1)
            elif exchange.target and self._reads_whole(relation):
                moved += part * (1 if relation.kind is Kind.RETURN else parts_added(exchange))
        combines = isinstance(self.group.anchor.operation, Combine)
        rate = gpu.memory_gb_per_s * rows_share(self.loop.tile.per_sm, self.routed, combines=combines)
        one = max(moved / self.tiles / (rate / self.programs) / 1e3, self._summed_us()) + self._sent_us(0.0)
        one += START_US + self._counts() * COUNT_US + self._packets_us()
        us = gpu.kernel_launch_us + self.rounds * one
        tiles, shape = self.rounds * one, (self.loop.tile.m, self.loop.tile.n)
        adds = tiles / self.topology.num_ranks if self.folded else us  # of own tiles
        return Busy(us, tiles=tiles, adds=adds, tile=shape, programs=self.programs, most_tensor=0.0)

    def _reads_whole(self, relation: Relation) -> bool:
        anchor = self.group.anchor
        reads = [read for read in anchor.reads if read.value == relation.name]
        return relation.kind is Kind.SCATTER or any(not self.graph.window(anchor, read) for read in reads)

    @cached_property
    def routed(self) -> Routed | None:
        """By which the tiles find rows."""
        anchor = self.group.anchor
        if isinstance(anchor.operation, Combine):
            return next(one for one in self.graph.routings if one.ids == anchor.reads[2].value)
        return next((axis.routed for axis in self.written if axis.routed is not None), None)

    def _moved(self) -> float:
        """Bytes of operands and results of matmuls in memory of this rank, each once: of weights of experts those that are likely
        read."""
        brought = {relation.name for relation, exchange in self.exchanges if exchange.target}
        matmuls = (op for op in self.group.ops if isinstance(op.operation, Matmul))
        read = {(read.value, read.along): self.graph.window(op, read) for op in matmuls for read in op.reads}
        moved = {
            value: along
            for (value, along), window in read.items()
            if not window and (value in brought or (one := self.graph.relation(value)) is None or one.library)
        }
        if self._stored and not self.folded:
            moved[self.group.name] = self.group.anchor.write.along
        returned = (r.name for r, _ in self.exchanges if r.kind is Kind.RETURN and self._leaves(r))
        moved |= dict.fromkeys(returned, self.group.anchor.write.along)
        return sum(self._bytes(value) * self._share(value, along) for value, along in moved.items())

    def _bytes(self, value: str) -> int:
        found = self.graph.values[value]
        return math.prod(found.shape) * DTYPE_BYTES[found.dtype]

    def _streamed(self) -> float:
        """Bytes that lie in memory of this rank and that tiles of a loop without matmuls load or store, each once."""
        made, found = self.group.made, 0.0
        reads = {one.value: (op, one) for op in reversed(self.group.ops) for one in op.reads if one.value not in made}
        for value, (op, one) in reads.items():
            if self.graph.relation(value) is None and not self.graph.window(op, one):
                found += self._bytes(value) * self._share(value, one.along)
        return found + (self._bytes(self.group.name) if self._stored else 0.0)

    @property
    def _stored(self) -> bool:
        """Whether all that the tiles make lies in memory of this rank."""
        sent = (one for one in self.graph.relations() if one.source == self.group.name and self.routed is None)
        return self.structure.is_kept(self.group.name) or any(one.library and not one.in_tiles for one in sent)

    def _loads_us(self) -> float:
        """What a tile loads when its matmul is over: operands of elementwise ops."""
        graph, made = self.graph, self.group.made
        reads = (one.value for op in self.group.ops if isinstance(op.operation, Elementwise) for one in op.reads)
        read = {value for value in reads if value not in made and graph.relation(value) is None}
        size = sum(DTYPE_BYTES[graph.values[value].dtype] for value in read)
        rate = self.topology.gpu.memory_gb_per_s * stream_share(1) / self.programs
        return self.loop.tile.m * self.loop.tile.n * size / rate / 1e3

    def _packets_us(self) -> float:
        """What a tile takes that adds those of peers."""
        added = (one for one in self.graph.relations() if one.in_tiles and self.group.makes(one.source))
        return sum(
            tile_packets_us(
                self.topology,
                one.how.protocol,
                one.how.shots,
                self._elements() * self._size(one),
                self.programs,
                cut=one.kind is Kind.SCATTER,
            )
            for one in added
        )

    def _share(self, value: str, along: tuple[Along | None, ...]) -> float:
        """Of a value, what tiles read of it where a routing says which rows."""
        how = {one.how for one in along if one is not None}
        if self.routed is None or not how or how == {Follows.TOKEN}:
            placed = any(x.name == value and isinstance(x.sent, Placed) for _, x in self.exchanges)
            return self.routed.likely_rows / self.graph.values[value].shape[0] if self.routed and placed else 1.0
        if Follows.EXPERT in how:
            return self.routed.likely_share
        return min(1.0, self.routed.likely_rows / self.graph.values[value].shape[0])

    def _size(self, relation: Relation) -> int:
        return DTYPE_BYTES[self.graph.values[relation.name].dtype]

    def _elements(self) -> int:
        return self.loop.tile.m * self.loop.tile.n if len(self.written) > 1 else self.loop.tile.m

    def _link_us(self, num_bytes: float, share: float) -> float:
        """What all programs take that load or store so much each."""
        return num_bytes * self.programs / (self.topology.link_gb_per_s(0, 1) * share) / 1e3

    def _counts(self) -> int:
        """How often a tile is counted, at least; of warpgroups in turns it costs nothing."""
        counted = (x for r, x in self.exchanges if self._leaves(r) and r.kind is not Kind.RETURN)
        rows = [x.chunk_rows for x in counted if not (x.met and not x.source)]
        return 0 if self.turns or not rows else -(-self.loop.tile.m // max(rows))

    def _leaves(self, relation: Relation) -> bool:
        return self.group.makes(relation.source) and relation.kind is not Kind.SHIFT

    def _stored_us(self, relation: Relation) -> float:
        """To store a tile at every peer, or a part of the tiles at each."""
        ranks = self.topology.num_ranks
        copies = ranks - 1 if relation.kind is Kind.GATHER else (ranks - 1) / ranks
        return self._link_us(copies * self._elements() * self._size(relation), FUSED_SHARE)

    def _sent_us(self, product: float) -> float:
        """What stores to peers hold a tile up, behind a product of so long."""
        sent = max((self._stored_us(r) for r, x in self.exchanges if self._leaves(r) and not x.source), default=0.0)
        height = self.loop.tile.m
        likely = ROWS_DRAG * self.routed.likely_height(height) / height if self._returns and self.routed else 0.0
        exposed = (likely or STORES_EXPOSED) * sent
        if not self.turns:
            return exposed
        mixed = 0.0
        if self.folded and self.chunked:
            ranks = self.topology.num_ranks
            sent = ((ranks - 1) * sent + self._own_stored_us()) / ranks
            mixed = MIXED * sent
        return max(0.0, min(exposed, max(mixed, sent - PIECES_SPREAD * product)))

    @property
    def _returns(self) -> bool:
        """Whether tiles send rows to the ranks of their tokens, which nobody waits for tile by tile."""
        return any(r.kind is Kind.RETURN and self._leaves(r) for r, _ in self.exchanges)

    @cached_property
    def chunked(self) -> bool:
        """Whether parts that own tiles add come chunk by chunk."""
        scattered = (x for r, x in self.exchanges if r.kind is Kind.SCATTER and self._leaves(r))
        return any(x.order.nest is Nest.CHUNK_MAJOR for x in scattered)

    def _own_stored_us(self) -> float:
        """To store an own tile at every peer."""
        makes = group_of(self.structure, self.folded).makes
        stored = (self._stored_us(r) for r, x in self.exchanges if makes(r.source) and not x.source)
        return max(stored, default=0.0)

    def _pulled_us(self, reduction: int) -> float:
        """What a tile of a matmul loads from peers."""
        worst = 0.0
        for read in self.group.anchor.reads:
            for relation, exchange in self.exchanges:
                if relation.name == read.value and not exchange.target:
                    tile = dict(
                        zip((axis.name for axis in self.written), (self.loop.tile.m, self.loop.tile.n), strict=True)
                    )
                    along_k = reduction // (self.topology.num_ranks if relation.kind is Kind.GATHER else 1)
                    elements = math.prod(tile.get(axis, along_k) for axis in read.axes)
                    worst = max(worst, self._link_us(elements * self._size(relation), FUSED_LOAD_SHARE))
        return worst

    def _summed_us(self) -> float:
        """What a tile that adds parts loads from peers."""
        value, peers = self.group.anchor.reads[0].value, self.topology.num_ranks - 1
        for relation, exchange in self.exchanges:
            if relation.name == value and not exchange.target:
                count: float = 1 if self._reads_whole(relation) else 0
                if isinstance(self.group.anchor.operation, Sum):
                    count = peers
                elif relation.kind is Kind.RETURN and self.routed is not None:
                    count = self.routed.choices * peers / self.topology.num_ranks
                return self._link_us(count * self._elements() * self._size(relation), SUM_LOAD_SHARE)
        return 0.0

    def _added_us(self, tile_us: float, hides: float) -> float:
        """What own tiles add, in whose epilogue `folded` runs, if a tile takes `tile_us` and hides so much of its stores."""
        ranks, added, stored, sent = self.topology.num_ranks, 0.0, self._own_stored_us(), False
        for relation, exchange in self.exchanges:
            if relation.kind is Kind.SCATTER and self._leaves(relation):
                loaded, sent = (
                    (parts_added(exchange) - 1) * self._elements() * self._size(relation),
                    not exchange.source,
                )
                if exchange.target:
                    added = loaded * self.programs / self.topology.gpu.memory_gb_per_s / 1e3
                else:
                    added = self._link_us(loaded, FUSED_LOAD_SHARE)
        if self.chunked:
            shared = SHARED_LINK * stored
            stored = min(shared, max(stored / ranks, PIECES_SPREAD * tile_us)) if sent and stored else shared
        if self.turns:
            return max(added, stored)
        if self._elements() < WIDE_TILE:
            return added + stored
        makes = group_of(self.structure, self.folded).makes
        waves = max(1.0, self.tiles / ranks / self.programs)
        if not any(makes(r.source) and not x.met for r, x in self.exchanges):
            return added + max(STORES_DRAG * stored * (1.0 - 1.0 / waves), stored - hides)
        return added + stored * (1.0 - STORES_HIDDEN * (1.0 - LAST_EXPOSED / waves))
