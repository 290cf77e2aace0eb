"""The predicted course of a call: the cost model's launches, tiles and transfers, and when what a tile awaits is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tilelink.ir.nodes import Exchange
from tilelink.ir.schedule import Schedule
from tilelink.planner.cost import Model, Span, TileTimes
from tilelink.planner.draft import draft_of
from tilelink.planner.loop import Times
from tilelink.planner.tile_bars import Bar, bars_of, begins_of
from tilelink.planner.tile_run import TileLoop, TileRun
from topologies.topology import Topology

Spans = tuple[tuple[float, float], ...]


@dataclass(frozen=True, eq=False)
class Tiles:
    """A tile loop: its `times`, and for each exchange that it awaits when each tile's data are `there` (0: at once)."""

    loop: TileLoop
    times: TileTimes
    there: Mapping[str, Times]

    @cached_property
    def begins_us(self) -> Times:
        """When the product of each tile begins."""
        ready = np.full(len(self.times.ends_us), self.times.begin_us)
        for wait in self.loop.waits:
            ready = np.maximum(ready, self.there[wait.exchange])
        return begins_of(self.times, ready, self.loop.role.warpgroups)

    @cached_property
    def awaited(self) -> Mapping[str, Times]:
        """Of `there`, what programs may stand still for: where warpgroups take turns, parts are awaited behind a product, while
        the other warpgroup multiplies."""
        if self.loop.role.warpgroups == 1:
            return self.there
        before = {wait.exchange for wait in self.loop.waits}
        return {name: times for name, times in self.there.items() if name in before}

    def bars(self, program: int) -> Iterator[Bar]:
        """The tiles of a program, in order."""
        return bars_of(self.times, self.begins_us, program, self.loop.role.warpgroups)

    def arrived(self, tile: int) -> tuple[str, float] | None:
        """The exchange of which that tile's data are there last, and when; None if it awaits nothing."""
        found = [(float(times[tile]), name) for name, times in self.there.items() if times[tile] > 0]
        return (max(found)[1], max(found)[0]) if found else None


@dataclass(frozen=True, eq=False)
class Course:
    """Times in us from the start of a call, of one rank: all ranks do the same at the same time. `moves`: transfers of an
    exchange in the order of its mover, each with what starts it; `passes`: when their bytes pass the port. `drawn_us`: the end of
    all that has a place in time."""

    total_us: float
    drawn_us: float
    launches: tuple[Span, ...]
    moves: Mapping[str, Spans]
    passes: Mapping[str, Spans]
    tiles: Mapping[str, Tiles]


def course_of(schedule: Schedule, topology: Topology) -> Course:
    """One call, by the cost model."""
    model = Model(draft_of(schedule), topology, {})
    total = model.run()
    tiles = {name: Tiles(model.loops[name], times, _there(model, name)) for name, times in model.tiles.items()}
    ends = [model.now, model.transfers.end, *(span.end for span in model.spans)]
    moves = {name: _spans(found) for name, found in model.transfers.moves.items()}
    passes = {name: _spans(model.transfers.port.get(name, found)) for name, found in model.transfers.moves.items()}
    return Course(total, max(ends), tuple(model.spans), moves, passes, tiles)


def _spans(found: Times) -> Spans:
    return tuple((begin, end) for begin, end in found.tolist())


def _there(model: Model, kernel: str) -> dict[str, Times]:
    """Of each tile of a loop, when what it awaits of an exchange is there."""
    loop, times = model.loops[kernel], model.tiles[kernel]
    run = TileRun(model.transfers, loop, times.begin_us, model.meet_share)
    shape = times.ends_us.shape
    found = {wait.exchange: np.broadcast_to(run.ready_for(wait), shape) for wait in loop.waits}
    for step in loop.sums:
        if step.wait is None:
            continue
        exchange = loop.parts.exchange(step.wait.exchange)
        if _has_come(model, exchange):
            parts = run.parts_there(exchange)[loop.at.last_chunk(exchange)]
            found[exchange.name] = np.where(loop.own, parts, found.get(exchange.name, np.zeros(shape)))
    return found


def _has_come(model: Model, exchange: Exchange) -> bool:
    return exchange.name in model.transfers.arrivals or exchange.name in model.transfers.made
