"""Time of one tile on one SM: tensor cores, memory, stores and signals. Constants are fitted to 2 and 4 x H200."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property

from tilelink.ir.movers import FUSED_SHARE
from tilelink.ir.node_sums import parts_added
from tilelink.ir.nodes import PIECES_SPREAD, ComputeRole
from tilelink.ir.order import Nest
from tilelink.ir.routed import Follows, Routed
from tilelink.ir.spec import DTYPE_BYTES
from tilelink.ir.steps import (
    CombineBody,
    IfOwn,
    Load,
    MatmulBody,
    Notify,
    Place,
    Step,
    Store,
    SumPackets,
    SumParts,
    Wait,
    in_pieces,
    matmuls_together,
)
from tilelink.ir.walk import flat
from tilelink.planner.attention_cost import attend_us, attended, fold_of
from tilelink.planner.draft import Parts
from tilelink.planner.links import FUSED_LOAD_SHARE, SUM_LOAD_SHARE, tile_packets_us
from tilelink.planner.tile_work import (
    MEMORY_SHARE,
    PREFETCHED_START_US,
    START_US,
    TURN_US,
    Programs,
    TileParts,
    Work,
    again_us,
    compute_us,
    finds_in_order,
    flops_us,
    loops_over_k,
    of_experts_us,
    operands_of,
    read_again,
    rows_share,
    softly,
    stray,
    stream_share,
    times_remote,
    with_zeros,
)
from topologies.topology import Topology

COUNT_US = 1.3  # a tile that is counted: its stores must have been performed
LATE_COUNT_US = 0.1  # the same while the next tile is computed; 1.2 less measured on 4 x H200
_SENT_US = 2.0  # until the last piece of a tile is at its peer
MIXED = 0.4  # of what the link needs for pieces of parts and of sums at once, they hold up products (two H100)
BEHIND_US = 3.0  # what a warpgroup does behind a product, beside counts, sums and stores to peers (one H200)
_MISSED = 0.35  # of what programs with several tiles at hand load, comes from memory: they do not keep step (H100)
_MISSED_IN_PIECES = 0.33  # the same of those whose tiles leave in pieces (two H100 that stand for four ranks)
_REMOTE_US = 1.0  # from a load over the link to its data, while other programs of an SM go on
_BESIDE_DRAG = 0.004  # programs that copy slow the tiles on the other SMs
_MOVED_BESIDE = 1.06  # what those take longer that load weights of their own (2 x H100, 16 tokens)
WIDE_WEIGHTS, NARROW = 128, 1.1  # columns of weights that each tile has for itself; what fewer cost (2 x H100)
STORES_DRAG = 0.2  # of the time that stores to peers take, they hold up the tile that is computed meanwhile
ROWS_DRAG = 0.05  # the same of rows that go to the ranks of their tokens: peers are told at the end (2 x H100)
STORES_EXPOSED = 0.85  # of the time that stores to peers take, not hidden behind loads of the next tile
STORES_HIDDEN = 0.9  # of it, the most that is hidden where a tile waits for its stores, to tell of them
LAST_EXPOSED = 0.75  # of the stores of the last round of own tiles, which no later round hides
SHARED_LINK = 1.6  # stores to peers beside movers take so much longer; fitted to 4 x H200
WIDE_TILE = 128 * 256  # elements of a tile that hides any


class TileCost:
    """Times of the tiles of one kernel. `routed`: the axis of some of them, in the order of a routing. `again`: the share of its
    experts whose tiles come in two parts, so that weights are read again."""

    def __init__(
        self,
        parts: Parts,
        topology: Topology,
        role: ComputeRole,
        on: Programs,
        routed: Routed | None = None,
        again: float = 0.0,
    ) -> None:
        combined = (step.routed for step in flat(role.body) if isinstance(step, CombineBody))
        self.routed = routed or next(combined, None)
        self.share = routed.likely_share if routed is not None else 1.0  # of weights of experts
        self.again = again
        self.parts = parts
        self.topology = topology
        self.role = role
        self.on = on
        branches = [step for step in role.body if isinstance(step, IfOwn)]
        self._own = [step for branch in branches for step in branch.own]
        self._others = [s for step in role.body for s in (step.others if isinstance(step, IfOwn) else (step,))]
        self._sums_in_pieces = any(map(in_pieces, self._own))
        self._parts_in_pieces = any(map(in_pieces, self._others))

    @cached_property
    def tile_us(self) -> float:
        """A tile of any segment, without what own tiles add: the slowest of tensor cores, memory and remote loads."""
        return sum(self.parts_us)

    @cached_property
    def parts_us(self) -> TileParts:
        """What a tile of any segment takes, by what takes it."""
        if (fold := fold_of(self.role)) is not None:
            drag = _BESIDE_DRAG if self.on.beside else 0.0
            us = attend_us(self.role, fold, self.parts.dtype, self.topology.gpu) / self.on.per_sm
            return attended(us, self._remote_us(), drag, COUNT_US * self._counts())
        role, memory, rounds = self.role, self.memory_us, -(-self.role.num_tiles // self.role.programs)
        computed = compute_us(self._work, self.on, self.parts.dtype, self.topology.gpu) * stray(self._work, rounds)
        start, again, both = PREFETCHED_START_US if role.prefetch else START_US, 0.0, max(computed, memory)
        if any(isinstance(step, MatmulBody) for step in role.body):  # neither hides the other completely
            again = 0.0 if role.prefetch else again_us(computed, memory, rounds)
            both = with_zeros(max(memory, softly(computed, memory)), role, DTYPE_BYTES[self.parts.dtype])
            if self._other_weights and self.routed is not None:
                work, gpu, rows = self._work, self.topology.gpu, self.routed.likely_height(self._work.m)
                both = of_experts_us(work, self.on, self.parts.dtype, gpu, memory, rows, role.num_tiles / role.programs)
                start = again = 0.0  # in it
        loaded = max(both, self._missed_us())
        # in turns the rest is done while the next tile is multiplied, but for stores that fill the link
        turns = role.warpgroups > 1
        if turns:
            start, again = TURN_US, 0.0
        busy = loaded if turns else max(loaded, self._remote_us())
        sends, loads = self._held_up_us(busy, start + again), 0.0 if turns else self._loads_us()
        count = LATE_COUNT_US if role.counts_late else COUNT_US
        return TileParts(
            computed=computed,
            memory=loaded - computed,
            remote=busy - loaded,
            sends=sends,
            loads=loads,
            beside=(busy + sends + loads) * _BESIDE_DRAG if self.on.beside else 0.0,
            start=start,
            again=again,
            counts=0.0 if turns else count * self._counts(),
            packets=0.0 if turns else self._packets_us(),
        )

    @property
    def _other_weights(self) -> bool:
        """Whether each tile reads weights of its own."""
        return any(isinstance(step, MatmulBody) and any(step.right.along) for step in self.role.body)

    @cached_property
    def behind_us(self) -> float:
        """What a warpgroup does behind the product of a tile, without what own tiles add and without pieces."""
        if self.role.warpgroups == 1:
            return 0.0
        return BEHIND_US + COUNT_US * self._counts()

    @cached_property
    def pieces_us(self) -> float:
        """Until all pieces of a tile that is not an own one have arrived at a peer."""
        return PIECES_SPREAD * self.tile_us + _SENT_US if self._parts_in_pieces else 0.0

    def _held_up_us(self, product: float, rest: float) -> float:
        """What stores to peers, but for those of own tiles, add to a product of `product` us while all programs have them: most
        of what they take, or in pieces what is more than they are spread over, since loads wait behind stores that the link
        does not take. `rest`: what else the tile takes."""
        sent = self._to_peers_us(self._others)
        if any(isinstance(step, Store) and step.place is Place.TOKEN for step in self._others):
            return max(ROWS_DRAG * sent, sent - product - rest)
        if not self._parts_in_pieces:
            return STORES_EXPOSED * sent
        least = 0.0
        if self.role.order.nest is Nest.CHUNK_MAJOR and self._own:  # own tiles send at the same time
            ranks = self.topology.num_ranks
            sent = ((ranks - 1) * sent + self._to_peers_us(self._own)) / ranks
            least = MIXED * sent
        return max(least, sent - PIECES_SPREAD * product)

    @cached_property
    def memory_us(self) -> float:
        """What the tiles of a round move between memory and L2, while all programs do. A last round of few tiles is one more,
        unless programs share these."""
        rate, traffic = self.topology.gpu.memory_gb_per_s, self._traffic()
        if not any(isinstance(step, MatmulBody) for step in self.role.body):
            combines = any(isinstance(step, CombineBody) for step in flat(self.role.body))
            share = rows_share(self.on.per_sm, self.routed, combines=combines)
            return traffic / self.role.num_tiles / (rate * share / self.role.programs) / 1e3
        if self._other_weights:
            traffic *= (NARROW if self._work.n < WIDE_WEIGHTS else 1.0) * (_MOVED_BESIDE if self.on.beside else 1.0)
        rounds = self.role.num_tiles / self.role.programs
        shared = (self.role.halved or self.role.split) and not self._other_weights
        return traffic / (rounds if shared else math.ceil(rounds)) / (rate * MEMORY_SHARE) / 1e3

    def _packets_us(self) -> float:
        """Packets of a tile to peers and back."""
        total = 0.0
        for step in self.role.body:
            if isinstance(step, SumPackets):
                size = DTYPE_BYTES[self.parts.buffer(step.result).dtype]
                tile = math.prod(self.role.axis(name).tile for name in step.index) * size
                how, programs = (step.protocol, step.shots), self.role.programs
                total += tile_packets_us(self.topology, *how, tile, programs, cut=bool(step.cut))
        return total

    @cached_property
    def tensor_us(self) -> float:
        """How long the tensor cores of an SM are busy with all tiles at the sustained clock, which the rate of attention has. Of
        experts, only as far as tiles are done sooner where products take less, beside what memory takes."""
        if fold_of(self.role) is not None:
            return 0.0
        busy = self._flops_us() * self.role.num_tiles / self.role.programs
        if self.routed is None or not self._other_weights:
            return busy
        return busy * self.parts_us.computed / (self.parts_us.computed + self.parts_us.memory)

    def _loads_us(self) -> float:
        """What a tile loads when its matmul is over, at the rate of one SM: nothing hides it."""
        if not any(isinstance(step, MatmulBody) for step in self.role.body):
            return 0.0
        tile = math.prod(axis.tile for axis in self.role.axes if not axis.reduction)
        loads = [step.operand.buffer for step in self.role.body if isinstance(step, Load)]
        num_bytes = sum(tile * DTYPE_BYTES[self.parts.buffer(name).dtype] for name in loads)
        return num_bytes / (self.topology.gpu.memory_gb_per_s * stream_share(1) / self.role.programs) / 1e3

    @cached_property
    def _work(self) -> Work:
        written = [axis.tile for axis in self.role.axes if not axis.reduction]
        return Work(
            m=written[0],
            n=written[-1],
            dims=len(written),
            matmuls=matmuls_together(self.role.body),
            bodies=loops_over_k(self.role.body),
            reduction=self._reduction(),
            step=max([64, *(axis.tile for axis in self.role.axes if axis.reduction)]),
            turns=self.role.warpgroups > 1,
            others=self._other_weights,
            in_order=finds_in_order(self.role.body),
        )

    def _flops_us(self) -> float:
        return flops_us(self._work, self.on, self.parts.dtype, self.topology.gpu)

    def _reduction(self) -> int:
        return sum(axis.extent * axis.segments for axis in self.role.axes if axis.reduction) or 1

    def half_computed_us(self) -> float:
        """What an SM does for half of a tile while all else is there."""
        half = replace(self._work, n=self._work.n // 2)
        return compute_us(half, self.on, self.parts.dtype, self.topology.gpu)

    def _traffic(self) -> float:
        """Bytes that all tiles together move between memory and L2: each buffer once, and a right operand again for groups
        of rows that are not computed at the same time, as far as the L2 does not keep it."""
        role = self.role
        read = [operand for step in role.body for operand in operands_of(step)]
        moved = {(one.buffer, one.window, one.along) for one in read}
        traffic = sum(self.parts.bytes_read(name, window) * self._share(name, along) for name, window, along in moved)
        major = role.axis(role.order.major)
        groups = major.segments * -(-major.tiles // role.order.group)
        again = min(groups, max(1.0, role.num_tiles / role.programs)) - 1.0
        waits = any(isinstance(step, Wait) and step.slot == role.order.major for step in role.body)
        for step in role.body:
            # of an expert: few tiles read it, at once in each part
            if isinstance(step, MatmulBody) and step.right.along:
                traffic += read_again(
                    round(self.again * self.parts.bytes_read(step.right.buffer, ())), self.topology.gpu
                )
            elif isinstance(step, MatmulBody):
                size = self.parts.bytes_read(step.right.buffer, step.right.window)
                # tiles that wait for their part follow the others through the right operand, and find what the L2 still has
                follow = waits and size > 2 * self.topology.gpu.l2_bytes
                times = max(again, major.segments - 1.0) if follow else again
                traffic += times * read_again(size, self.topology.gpu)
        return traffic

    def _share(self, buffer: str, along: tuple[Follows | None, ...]) -> float:
        """Of a buffer, what tiles read or write of it where a routing says which rows."""
        if Follows.EXPERT in along:
            return self.share
        if self.routed is None or not {Follows.ROW, Follows.PLACE, Follows.CHOICES} & set(along):
            return 1.0
        return min(1.0, self.routed.likely_rows / self.parts.buffer(buffer).shape[0])

    def _missed_us(self) -> float:
        """What the tiles of a round load from memory again, where programs do not keep step. In the first round they do."""
        if self.role.warpgroups == 1 and self.on.per_sm == 1:
            return 0.0
        rounds = -(-self.role.num_tiles // self.role.programs)
        missed = _MISSED_IN_PIECES if self._parts_in_pieces or self._sums_in_pieces else _MISSED
        return missed * (1.0 - 1.0 / rounds) * self._loaded() / rounds / self.topology.gpu.memory_gb_per_s / 1e3

    def _loaded(self) -> float:
        """Bytes of operands that all tiles together load from the L2."""
        m, n = (axis.tile for axis in self.role.axes if not axis.reduction)
        size = DTYPE_BYTES[self.parts.dtype]
        return self.role.num_tiles * (m + n) * self._reduction() * size * float(loops_over_k(self.role.body))

    def _counts(self) -> int:
        """How often a tile counts: for each chunk that it touches."""
        most = 0
        for step in flat(self.role.body):
            if isinstance(step, Notify):
                rows = self.role.axis(step.rows).tile
                most = max(most, -(-rows // self.parts.exchange(step.exchange).chunk_rows))
        return most

    @cached_property
    def own_extra_us(self) -> float:
        """What an own tile adds to that: loads of all parts at the rate of one SM, or over the link."""
        extra = 0.0
        sums = [step for step in flat(self.role.body) if isinstance(step, SumParts) and step.onto]
        for step in sums:
            written = [axis for axis in self.role.axes if not axis.reduction]
            size = DTYPE_BYTES[self.parts.buffer(step.operand.buffer).dtype]
            others = self.topology.num_ranks - 1
            if step.wait is not None:
                others = parts_added(self.parts.exchange(step.wait.exchange)) - 1
            num_bytes = others * written[0].tile * written[-1].tile * size
            link = self.topology.link_gb_per_s(0, 1) * FUSED_LOAD_SHARE
            rate = link if step.operand.remote else self.topology.gpu.memory_gb_per_s
            extra += num_bytes / (rate / self.role.programs) / 1e3
        stored = self._to_peers_us(self._own)
        if self.role.order.nest is Nest.CHUNK_MAJOR:
            if self._sums_in_pieces and self._parts_in_pieces:  # few programs have an own tile at once
                stored = max(stored / self.topology.num_ranks, PIECES_SPREAD * self.tile_us)
            else:
                stored *= SHARED_LINK  # movers bring parts of the next chunk at the same time
        if self.role.warpgroups > 1:  # `Loop` hides it
            return max(extra, stored) if self._sums_in_pieces else extra + stored
        waves = max(1.0, self.role.num_tiles / self.topology.num_ranks / self.role.programs)
        if any(isinstance(step, Notify) for step in self._own):
            hidden = STORES_HIDDEN * (1.0 - LAST_EXPOSED / waves) if self._wide() else 0.0
            return extra + stored * (1.0 - hidden)
        if not self._wide():
            return extra + stored
        # nobody waits for the stores of a tile: they are under way while the next own tile is computed, and slow it a little
        return extra + max(STORES_DRAG * stored * (1.0 - 1.0 / waves), stored - self.tile_us)

    def _wide(self) -> bool:
        """Whether a tile takes long enough to hide stores to peers behind the next one."""
        return math.prod(axis.tile for axis in self.role.axes if not axis.reduction) >= WIDE_TILE

    @cached_property
    def drain_us(self) -> float:
        """Until the last stores to peers that no tile has waited for have been performed, but for what `own_extra_us` says."""
        own = self._own
        if self.role.order.nest is Nest.CHUNK_MAJOR and self._sums_in_pieces:  # own tiles of the last chunk are alone
            last = self.role.order.group * self.role.axis(self.role.order.minor).tiles / self.role.programs
            return max(0.0, last * self._to_peers_us(own) - self.own_extra_us)
        if any(isinstance(step, Notify) for step in own) or not self._wide() or self.role.warpgroups > 1:
            return 0.0
        return min(self._to_peers_us(own), self.tile_us)

    def _to_peers_us(self, steps: Iterable[Step]) -> float:
        written = [axis for axis in self.role.axes if not axis.reduction]
        ranks = self.topology.num_ranks
        most, pieces, rows = 0.0, False, 0.0
        for step in steps:
            if isinstance(step, Store) and step.place in (Place.PEER, Place.EVERY_PEER, Place.TOKEN):
                size = DTYPE_BYTES[self.parts.buffer(step.operand.buffer).dtype]
                copies = ranks - 1 if step.place is Place.EVERY_PEER else (ranks - 1) / ranks
                rows = written[0].tile
                if step.place is Place.TOKEN and self.routed is not None:
                    rows = self.routed.likely_height(rows)
                most = max(most, copies * rows * written[-1].tile * size)
                pieces = pieces or in_pieces(step)
        rate = self.topology.link_gb_per_s(0, 1)
        rate = rate if pieces else min(rate, self.topology.push_sms.at(self.role.programs))
        return most / (rate * FUSED_SHARE / self.role.programs) / 1e3

    def _remote_us(self) -> float:
        """Bytes that tiles load from peers, each by every tile that needs it."""
        worst = 0.0
        for step in self.role.body:
            if isinstance(step, IfOwn):
                continue  # own tiles only: counted where they end
            for operand in operands_of(step):
                if operand.remote:
                    adds = isinstance(step, SumParts | CombineBody)
                    share = SUM_LOAD_SHARE if adds else FUSED_LOAD_SHARE
                    sms = self.topology.pull_sms.at(self.role.programs)
                    link = min(self.topology.link_gb_per_s(0, 1) * share, sms)
                    elements = times_remote(step, self.topology.num_ranks)
                    for name in operand.index:
                        if name:
                            axis = self.role.axis(name)
                            elements *= axis.tile if axis.tile and not axis.reduction else axis.extent
                    size = elements * DTYPE_BYTES[self.parts.buffer(operand.buffer).dtype]
                    worst = max(worst, size / (link / self.role.programs) / 1e3 + _REMOTE_US / self.on.per_sm)
        return worst
