"""A tile loop among the exchanges that feed it and that it feeds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tilelink.ir.calls import SortRows
from tilelink.ir.movers import Issuer, Transfer
from tilelink.ir.nodes import Axis, ComputeRole, Exchange, Kind, Launch
from tilelink.ir.order import Cut, Nest
from tilelink.ir.steps import AttendBody, MatmulBody, Notify, Place, Store, SumParts, Wait
from tilelink.ir.walk import flat
from tilelink.planner.attention_cost import fold_of, seen_shares
from tilelink.planner.draft import Parts
from tilelink.planner.last_tiles import pieces_of
from tilelink.planner.loop import Index, Loop, Positions, Times, positions
from tilelink.planner.tile_cost import TileCost
from tilelink.planner.tile_work import Programs
from tilelink.planner.transfers import State, Transfers
from topologies.topology import Topology

RETURNED_US = 4.0  # until the last program has told peers, when the stores of all are performed (2 x H100, few rows)
SKEW_SHARE, SKEW_US = 0.03, 7.0  # how late a peer may be with a part: a share of the call so far, at most so much


@dataclass(frozen=True, eq=False)
class TileLoop:
    """A tile loop by itself: what does not depend on when it begins; `alone`: its first positions, as many as are likely of tiles
    that do not wait for rows of other ranks; `runs`: those that were computed, by what they found."""

    parts: Parts
    role: ComputeRole
    cost: TileCost
    at: Positions
    alone: int = 0
    runs: dict[tuple[float, float, State, tuple[float, ...]], tuple[Transfers, Times]] = field(
        default_factory=dict, repr=False
    )

    @cached_property
    def least_us(self) -> float:
        """What the program with the most tiles takes at least, or all of them on average with what own tiles add."""
        role, cost = self.role, self.cost
        rounds = role.num_tiles / role.programs if self.shares else -(-role.whole // role.programs)
        if self.each_us is not None:
            rounds = role.num_tiles / role.programs
        work = rounds * cost.tile_us
        if self.sums:
            adds = role.num_tiles / self.segments / role.programs * cost.own_extra_us
            tiles = role.num_tiles / role.programs * cost.tile_us
            if role.warpgroups > 1:  # own tiles come last, unless chunk by chunk
                chunked = role.order.nest is Nest.CHUNK_MAJOR
                tiles = 0.0 if chunked or self.own_place == 0 else tiles * (self.segments - 1) / self.segments
            work = max(work, tiles + adds)
        return work + cost.drain_us

    def tile_us(self, place: int) -> float:
        """Of one tile, without what it waits for."""
        return self.cost.tile_us if self.each_us is None else float(self.each_us[place])

    @cached_property
    def each_us(self) -> Times | None:
        """Of each tile, where these are not alike: on average as much as `cost` has it."""
        fold = fold_of(self.role)
        shares = seen_shares(self.role, fold, self.at) if fold is not None and self.role.warpgroups == 1 else None
        if shares is None:
            return None
        parts = self.cost.parts_us
        return np.asarray(self.cost.tile_us + (parts.computed + parts.beside) * (shares - 1.0))

    @property
    def shares(self) -> bool:
        """Whether its programs have tiles of other loops, too."""
        return self.role.first > 0 or (self.role.programs > self.role.num_tiles and not self.role.split)

    @cached_property
    def segments(self) -> int:
        return self.role.axis(self.role.order.major).segments

    @cached_property
    def own_place(self) -> int:
        """Place of the own segment in the order, -1 if there is but one segment."""
        first = self.role.order.ranks.first
        return (0 if first == 0 else self.segments - 1) if self.segments > 1 else -1

    @cached_property
    def produced(self) -> tuple[str, ...]:
        """Exchanges whose source the tiles make."""
        steps = list(flat(self.role.body))
        found = {step.exchange for step in steps if isinstance(step, Notify)}
        found |= {step.operand.buffer for step in steps if isinstance(step, Store) and step.place is Place.TOKEN}
        return tuple(sorted(found))

    @cached_property
    def sums(self) -> list[SumParts]:
        """Sums that own tiles add to what they have made."""
        return [s for s in flat(self.role.body) if isinstance(s, SumParts) and s.onto and s.wait is not None]

    @cached_property
    def along_k(self) -> list[Wait]:
        """Of these, those in loops over k."""
        return [wait for step in flat(self.role.body) if isinstance(step, MatmulBody) for wait in step.waits]

    @cached_property
    def of_folds(self) -> list[Wait]:
        """Of these, those of attention."""
        return [wait for step in self.role.body if isinstance(step, AttendBody) for wait in step.waits]

    @cached_property
    def waits(self) -> list[Wait]:
        return _waits(self.role)

    @cached_property
    def own(self) -> NDArray[np.bool_]:
        """Which tiles add such sums."""
        return self.at.place == self.own_place if self.sums else np.zeros(len(self.at.place), dtype=bool)

    @cached_property
    def stages(self) -> Index | None:
        """Of each tile, the chunk of the parts that it adds."""
        waits = [step.wait for step in self.sums if step.wait is not None]
        return self.at.last_chunk(self.parts.exchange(waits[0].exchange)) if len(waits) == 1 else None


def tile_loop(
    parts: Parts, topology: Topology, role: ComputeRole, on: Programs, *, two_parts: bool = False
) -> TileLoop:
    """The tile loop of `role` on these programs; `two_parts`: its tables put tiles of own tokens before all others."""
    axis = next((one for one in role.axes if one.routed is not None), None)
    role = replace(role, axes=tuple(map(_likely, role.axes)))
    if axis is None or axis.routed is None:
        return TileLoop(parts, role, TileCost(parts, topology, role, on), positions(role))
    again = axis.routed.likely_apart(axis.tile, topology.num_ranks) if two_parts else 0.0
    cost = TileCost(parts, topology, role, on, axis.routed, again)
    own = axis.routed.likely_own_tiles(axis.tile, topology.num_ranks) if role.own_first else 0
    return TileLoop(parts, role, cost, positions(role), own * (role.num_tiles // role.axis(axis.name).tiles))


def in_two_parts(launches: Iterable[Launch], role: ComputeRole) -> bool:
    """Whether the tables of a loop put tiles of own tokens before all others, for this loop or for another one that has them."""
    made = {(one.routed, one.height) for one in launches if isinstance(one, SortRows) and one.own_first}
    return any((axis.routed, axis.tile) in made for axis in role.axes)


def _likely(axis: Axis) -> Axis:
    """A routed axis with as many tiles as are likely."""
    if axis.routed is None:
        return axis
    return replace(axis, extent=axis.routed.likely_tiles(axis.tile) * axis.tile, routed=None)


def run_tiles(
    transfers: Transfers, loop: TileLoop, begin: float, meet_share: float, late: tuple[float, ...] = ()
) -> Times:
    """When each tile is done of a loop that begins then, on program p `late[p]` us after that; what the tiles make is then on
    its way in `transfers`."""
    after, ends = _ran(loop, begin, meet_share, transfers.state(tuple(loop.parts.exchanges)), late)
    transfers.take(after)
    return ends


def _ran(
    loop: TileLoop, begin: float, meet_share: float, state: State, late: tuple[float, ...]
) -> tuple[Transfers, Times]:
    """A run, computed once: a change of what is launched later leaves all before as it is."""
    key = begin, meet_share, state, late
    if key not in loop.runs:
        transfers = Transfers.at(loop.parts, loop.cost.topology, state)
        loop.runs[key] = transfers, TileRun(transfers, loop, begin, meet_share, late).ends()
    return loop.runs[key]


class TileRun:
    """One run of it, from `begin` on; `meet_share`: of the call so far, until ranks have met; `late`: of each program."""

    def __init__(
        self, transfers: Transfers, loop: TileLoop, begin: float, meet_share: float, late: tuple[float, ...] = ()
    ) -> None:
        self.begins = begin + np.array(late) if late else None
        self.transfers, self.loop, self.begin, self.meet_share = transfers, loop, begin, meet_share
        self.seen: dict[str, int] = {}  # exchange -> the last chunk whose arrival is known

    def ends(self) -> Times:
        """When each tile is done; what the tiles make is then on its way."""
        loop, cost, role = self.loop, self.loop.cost, self.loop.role
        extra = cost.own_extra_us if loop.sums else 0.0
        cut = pieces_of(cost)
        turns = role.warpgroups, cost.behind_us, cost.pieces_us
        begins = self.begin if self.begins is None else self.begins
        run = Loop(role.programs, begins, cost.tile_us, extra, *cut, *turns, loop.each_us)
        ends = run.run(self._ready(), loop.own, self._late, loop.stages)
        made = [loop.parts.exchange(name) for name in loop.produced]
        for exchange in made:
            if exchange.kind is Kind.SCATTER:
                self._complete(exchange, ends)
                if not self._pulled(exchange):
                    self.transfers.move(exchange)
            elif exchange.kind is Kind.RETURN:  # nobody is told before the last tile is done
                self.transfers.made[exchange.name][:] = ends.max() + RETURNED_US
                if not self._pulled(exchange):
                    self.transfers.move(exchange)
        gathered = [exchange for exchange in made if exchange.kind is Kind.GATHER]
        counted = self._counted(ends) if gathered else ends
        for exchange in gathered:
            mine = loop.own if loop.sums else np.ones(len(ends), dtype=bool)
            chunk = self._chunk_of_source(exchange)
            for number in range(exchange.chunks):
                of_chunk = counted[mine & (chunk == number)]
                self.transfers.made[exchange.name][:, number] = of_chunk.max() if len(of_chunk) else ends.max()
            if not self._pulled(exchange):
                self.transfers.move(exchange)
        return ends

    @staticmethod
    def _pulled(exchange: Exchange) -> bool:
        return exchange.mover.issuer is Issuer.TILES and exchange.transfer is Transfer.PULL

    def _ready(self) -> Times:
        """When what a tile waits for before its matmul is there."""
        ready = np.full(len(self.loop.at.place), self.begin)
        for wait in self.loop.waits:
            ready = np.maximum(ready, self.ready_for(wait))
        return ready

    def ready_for(self, wait: Wait) -> Times | float:
        """When what each tile awaits by that is there, or when it is for all of them."""
        exchange = self.loop.parts.exchange(wait.exchange)
        arrivals = self._arrivals(exchange)
        if wait in self.loop.of_folds:
            return self._behind_own(exchange, arrivals)
        if exchange.cut is Cut.COLUMNS and wait in self.loop.along_k:
            return self._by_columns(arrivals)
        if self.loop.own_place < 0 or wait.slot != self.loop.role.order.major or wait.every:
            rows_known = wait.rows == self.loop.role.order.major and self.loop.segments == 1
            if rows_known and wait.every:
                return np.asarray(arrivals.max(axis=0)[self.loop.at.last_chunk(exchange)])
            there = float(arrivals.max(initial=0.0))
            return (
                np.where(np.arange(len(self.loop.at.place)) < self.loop.alone, 0.0, there) if self.loop.alone else there
            )
        place = self.loop.at.place - (1 if self.loop.own_place == 0 else 0)
        needed = arrivals[np.clip(place, 0, len(arrivals) - 1), self.loop.at.last_chunk(exchange)]
        return np.where(self.loop.at.place == self.loop.own_place, 0.0, needed)

    def _behind_own(self, exchange: Exchange, arrivals: Times) -> Times:
        """When a tile of attention may begin so that it awaits no keys: own ones come first."""
        fold = next(step for step in self.loop.role.body if isinstance(step, AttendBody))
        there, own = arrivals.max(axis=0), self.loop.cost.tile_us / self.loop.role.axis(fold.axis).segments
        chunk = np.zeros(len(self.loop.at.place), np.int64)
        by_heads = exchange.cut is Cut.COLUMNS and fold.how.sequences == 1  # whose tiles come head by head
        if by_heads:
            keys = self.loop.at.first_row // (fold.how.shared * fold.how.width) * fold.how.width
            chunk = keys // exchange.chunk_cols
        found: Times = np.maximum((there if by_heads else there.max(keepdims=True))[chunk] - own, 0.0)
        return found

    def _by_columns(self, arrivals: Times) -> float:
        """When a program may begin its first tile so that it awaits no chunk of columns in its loop over k: that takes as long
        for each. Later tiles begin when the first one is done, and all has come by then."""
        each = self.loop.cost.tile_us / arrivals.shape[1]
        return float((arrivals - each * np.arange(arrivals.shape[1])).max(initial=0.0))

    def _arrivals(self, exchange: Exchange) -> Times:
        """Loads from peers find a chunk one link time after it is published; what peers compute may be late."""
        if self._pulled(exchange) and exchange.name not in self.transfers.arrivals:
            self.transfers.arrivals[exchange.name] = np.maximum(self.transfers.made[exchange.name], self.begin)
        counted = exchange.counted
        arrivals = self.transfers.arrivals[exchange.name]
        if counted and exchange.kind is Kind.GATHER:  # the last thing of a call that ranks make: they meet here
            return arrivals * (1.0 + self.meet_share)
        return arrivals + _skew(arrivals) if counted else arrivals

    def _late(self, ends: Times, at: Index) -> Times:
        """When the parts are there that the own tiles at positions `at` add."""
        late = np.zeros(len(at))
        for step in self.loop.sums:
            assert step.wait is not None
            exchange = self.loop.parts.exchange(step.wait.exchange)
            chunk = self.loop.at.last_chunk(exchange)[at]
            if int(chunk.max()) > self.seen.get(exchange.name, -1):
                self.seen[exchange.name] = int(chunk.max())
                self._complete(exchange, ends)
                if not self._pulled(exchange):
                    self.transfers.move(exchange)
            late = np.maximum(late, self.parts_there(exchange)[chunk])
        return late

    def parts_there(self, exchange: Exchange) -> Times:
        """Of each chunk, when the parts of all peers are there, which own tiles add."""
        pulled = self._pulled(exchange)
        arrivals = self.transfers.made[exchange.name] if pulled else self.transfers.arrivals[exchange.name]
        found: Times = (arrivals + _skew(arrivals)).max(axis=0)
        return found

    def _complete(self, exchange: Exchange, ends: Times) -> None:
        """Source chunks of a scatter are complete when their tiles are; those that have not run count as done at once."""
        made = self.loop.at.latest(exchange, self._counted(ends))
        places = [place for place in range(self.loop.segments) if place != self.loop.own_place]
        whole = np.maximum.accumulate(made[places], axis=1)  # a tile may reach into the chunk before
        self.transfers.made[exchange.name] = (
            whole
            if len(places) == self.transfers.peers
            else np.full((self.transfers.peers, exchange.chunks), float(ends.max()))
        )

    def _counted(self, ends: Times) -> Times:
        """When tiles are counted: when they are done, or when the next one of their program is, if that is of the same loop."""
        if not self.loop.role.counts_late:
            return ends
        loop = len(ends) // self.loop.segments * (self.loop.segments - 1) if self.loop.sums else len(ends)
        counted, programs = ends.copy(), self.loop.role.programs
        counted[: max(0, loop - programs)] = ends[programs:loop]
        return counted

    def _chunk_of_source(self, exchange: Exchange) -> Index:
        """Of each tile, the chunk of the one part that a gather sends."""
        if self.loop.segments == 1 or self.loop.sums:
            return self.loop.at.last_chunk(exchange)
        # the part is cut in segments for another exchange
        return self.loop.at.shifted(self.loop.role.axis(self.loop.role.order.major).extent).last_chunk(exchange)


def _skew(times: Times) -> Times:
    return np.minimum(SKEW_US, SKEW_SHARE * times)


def _waits(role: ComputeRole) -> list[Wait]:
    """Waits of tiles that are not folded sums."""
    found = [step for step in role.body if isinstance(step, Wait)]
    for step in flat(role.body):
        if isinstance(step, MatmulBody | AttendBody):
            found += step.waits
        if isinstance(step, SumParts) and step.wait is not None and not step.onto:
            found.append(step.wait)
    return found
