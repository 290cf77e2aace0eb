"""Steps of what is scattered along rails: sums of groups of ranks, from the innermost level outwards.

    ranks of a group        copy what is for any other rank to the one beside them that has its place, each in its own group
    halves of a node        it adds what its half has for a rank of another half, and copies the sum to the rank there
    nodes                   it adds what its node has for a rank of another node, and puts the sum

So the target of a rank has, for each group, a part from each rank of the own group, number `group * size + place`; and beside it
a buffer of each level of sums has one from each other group. Where nodes have no halves, two levels are left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from tilelink.elaborate import signals
from tilelink.elaborate.positions import TILE, rank_at
from tilelink.elaborate.rail_orders import CHUNK, COLUMN, GROUP, PART, PEER, local_of, nodes_of, put, turned
from tilelink.elaborate.regions import Box, chunk_box, chunk_region
from tilelink.elaborate.stores import STEP
from tilelink.ir.movers import Issuer
from tilelink.ir.node_sums import SumLevel, as_sent, in_strips, strips_of, sum_levels
from tilelink.ir.nodes import Exchange
from tilelink.ir.schedule import Schedule
from tilelink.schedule.index import Index, Number, call, least, rank
from tilelink.schedule.memory import Buffer, Memory, Region
from tilelink.schedule.names import SignalName
from tilelink.schedule.roles import Phase
from tilelink.schedule.steps import Compute, For, If, Let, Load, Move, Notify, Step, Store, Wait

_ADDED_ROWS, _ADDED_COLS = 16, 256  # of a tile that is added at a time: 32 registers of a thread of 4 warps


class _Landing(NamedTuple):
    """Where parts lie that come from groups of `size` ranks in one of `outer`: that of the group `step` further is a part."""

    buffer: str
    word: SignalName
    size: int
    outer: int

    @property
    def others(self) -> int:
        return self.outer // self.size - 1

    def beside(self, group: Number | None, first: int = 1) -> Number:
        """The part for the rank of the own place in that `group` of `outer` ranks; None: all ranks are one."""
        many = self.outer // self.size
        around, place = (0, rank) if group is None else (group * many, rank % self.outer)
        return around + (place // self.size + first + STEP) % many


def _landings(exchange: Exchange) -> list[_Landing]:
    """From inside out: copies of ranks of the own group, then sums."""
    name, levels = exchange.name, sum_levels(exchange)
    found = [_Landing(exchange.target, signals.arrived(name), 1, levels[0].size)]
    return [*found, *(_Landing(one.landing(name), signals.landed(name, one), one.size, one.outer) for one in levels)]


# ---- steps -------------------------------------------------------------------------------------------------------------


def brought(schedule: Schedule, exchange: Exchange, ready: tuple[Step, ...]) -> Phase:
    """Chunks for each group, in the order in which they are made, to the ranks of this one that have their place. `ready`: the
    wait for the chunk `chunk` of the part `peer`."""
    level, *further = sum_levels(exchange)
    size, chunks, groups = level.size, exchange.chunks, schedule.num_ranks // level.size
    others, box = size - 1, chunk_box(exchange, CHUNK)
    part = GROUP * size + rank % size  # of the target
    place = turned(exchange, rank % size, TILE // chunks % others, size)
    let: Let = (
        ("group", _column(exchange, TILE // (others * chunks))),
        ("place", place),
        ("peer", GROUP * size + Index("place")),
        ("at", rank // size * size + Index("place")),
        ("chunk", TILE % chunks),
    )
    source = chunk_region(schedule, exchange.source, exchange, PEER, box)
    target = chunk_region(schedule, exchange.target, exchange, part, box, Index("at"))
    told = Notify(signals.arrived(exchange.name), (part, CHUNK), Index("at"), call)
    of = "half" if further else "node"
    title = f"chunks for all {level.others} to the ranks of this {of} on their rails"
    return Phase(groups * others * chunks, (*ready, Move((source,), (target,)), told), let, title=title)


def relayed(schedule: Schedule, exchange: Exchange, ready: tuple[Step, ...]) -> Phase:
    """What a group has for each other one is added, strip by strip of a chunk: of halves it is copied then, of nodes put or sent.
    `ready`: see `brought`."""
    inner, *further = sum_levels(exchange)
    cut, strip = in_strips(exchange), Index("strip")
    columns, at = schedule.num_ranks // inner.size, COLUMN if further else GROUP
    let: Let = (
        ("column" if further else "group", _column(exchange, TILE // cut.chunks)),
        ("strip", TILE % cut.chunks),
        ("chunk", strip // strips_of(exchange)),
        ("peer", at * inner.size + rank % inner.size),
    )
    steps = _sum(schedule, exchange, inner, at)
    title = "sums of this node's parts " + ("to" if exchange.mover.puts is Issuer.PROGRAMS else "for") + " the rails"
    for level in further:
        halves = level.size // inner.size
        let = (*let, ("half", COLUMN % halves), ("group", COLUMN // halves))
        own = rank % level.size // inner.size
        steps = (If(Index("half"), own, _sum(schedule, exchange, level, GROUP), steps),)
        title = f"sums of this half's parts for the other halves, {title}"
    return Phase((columns - 1) * cut.chunks, (*ready, *steps), let, title=title)


def _sum(schedule: Schedule, exchange: Exchange, level: SumLevel, to: Number) -> tuple[Step, ...]:
    """What a group of this level has for group `to`: a strip of it."""
    name, size, box = exchange.name, level.size, chunk_box(in_strips(exchange), Index("strip"))
    inside = [one for one in _landings(exchange) if one.outer <= size and one.others]
    come = [(one, one.beside(to if one.outer == size else COLUMN)) for one in inside]
    waits = (
        For("step", one.others, (Wait(one.word, (PART, CHUNK), call, (one.buffer,)),), (("part", part),))
        for one, part in come
    )
    added = (*waits, *_added(schedule, exchange, level, to, box, come))
    if level.outer < schedule.num_ranks or exchange.mover.puts is not Issuer.PROGRAMS:
        return (*added, Notify(signals.of_group(name, level), (to, CHUNK), rank))
    own = to * size + rank % size
    there = chunk_region(schedule, level.landing(name), exchange, rank // size, box, own)
    told = Notify(signals.landed(name, level), (rank // size, Index("strip")), own, call)
    return (*added, *put(sums(exchange, level, to, box), there, told))


def _added(
    schedule: Schedule,
    exchange: Exchange,
    level: SumLevel,
    to: Number,
    box: Box,
    come: list[tuple[_Landing, Number]],
) -> tuple[Step, ...]:
    """The own part and those that have come, tile by tile of a box."""
    ((first, rows), (_, cols)) = box
    row, col = Index("row"), Index("col")
    high, wide = least(_ADDED_ROWS, rows - row), least(_ADDED_COLS, cols - col)
    within = ((first + row, high), (col, wide))
    mine = chunk_region(schedule, exchange.source, exchange, PEER, within)
    total, more = f"{exchange.name}_sum", f"{exchange.name}_more"
    adding = Compute((total,), "add", (total, more))
    tile: tuple[Step, ...] = (
        Compute((total,), "zeros", shape=(_ADDED_ROWS, _ADDED_COLS)),
        Load(more, mine),
        adding,
    )
    for one, part in come:
        theirs = chunk_region(schedule, one.buffer, exchange, PART, within)
        tile += (For("step", one.others, (Load(more, theirs), adding), (("part", part),)),)
    tile += (Store(total, sums(exchange, level, to, within)),)
    along = For("col_tile", (cols + _ADDED_COLS - 1) // _ADDED_COLS, tile, (("col", Index("col_tile") * _ADDED_COLS),))
    tiles = (rows + _ADDED_ROWS - 1) // _ADDED_ROWS
    return (For("row_tile", tiles, (along,), (("row", Index("row_tile") * _ADDED_ROWS),)),)


def sent_beside(schedule: Schedule, exchange: Exchange) -> Phase:
    """Chunks of sums of this half to the ranks of the same place in the other halves, for ranks of all nodes there."""
    level, node = sum_levels(exchange)
    name, size, chunks, halves = exchange.name, level.size, exchange.chunks, level.outer // level.size
    others, half, own, box = halves - 1, Index("half"), rank % node.size // size, chunk_box(exchange, CHUNK)
    let: Let = (
        ("group", turned(exchange, rank // node.size, TILE // (others * chunks), nodes_of(exchange))),
        ("half", turned(exchange, own, TILE // chunks % others, halves)),
        ("peer", rank // node.size * node.size + half * size + rank % size),
        ("chunk", TILE % chunks),
    )
    column, part = GROUP * halves + half, GROUP * halves + own
    there = chunk_region(schedule, level.landing(name), exchange, part, box, PEER)
    body = (
        made(exchange, level, column),
        Move((sums(exchange, level, column, box),), (there,)),
        Notify(signals.landed(name, level), (part, CHUNK), PEER, call),
    )
    title = "sums of this half's parts to the other halves"
    return Phase(nodes_of(exchange) * others * chunks, body, let, title=title)


def made(exchange: Exchange, level: SumLevel, to: Number) -> Wait:
    """The wait for a chunk that programs add."""
    word = signals.of_group(exchange.name, level)
    return Wait(word, (to, CHUNK), call * strips_of(exchange), (level.sums(exchange.name),))


def sums(exchange: Exchange, level: SumLevel, to: Number, inside: Box) -> Region:
    """A box of what is added for group `to`."""
    (row, rows), (col, cols) = inside
    return Region(level.sums(exchange.name), (to, row, col), (1, rows, cols))


def buffers(schedule: Schedule) -> Iterator[Buffer]:
    """Of sums. A network card that puts them reads symmetric memory alone."""
    for one in schedule.exchanges:
        for level in sum_levels(one):
            _, *part = schedule.buffer(one.target).shape
            put_from = one.mover.puts and level.outer == schedule.num_ranks
            memory = Memory.SYMMETRIC if put_from else Memory.LOCAL
            shape = (schedule.num_ranks // level.size, *part)
            yield Buffer(level.sums(one.name), memory, shape, schedule.buffer(one.target).dtype)


def _column(exchange: Exchange, position: Number) -> Number:
    """The group of the innermost level at a position: node by node, in each through its halves, the own one last."""
    level, *further = sum_levels(exchange)
    node = local_of(exchange)
    if not further:
        return turned(exchange, rank // node, position, nodes_of(exchange))
    halves = node // level.size
    half = turned(exchange, rank % node // level.size, position % halves, halves)
    return turned(exchange, rank // node, position // halves, nodes_of(exchange)) * halves + half


# ---- what readers add --------------------------------------------------------------------------------------------------


class Parts(NamedTuple):
    """Parts that there are to add: the number of the one that is `step` further, and how many. `exchange`: with chunks as words
    tell of these parts, None if none do. `landing`: the buffer of sums of other groups with its word, if they are these."""

    part: Number
    many: int
    exchange: Exchange | None
    landing: tuple[str, SignalName] | None = None


def parts_to_add(schedule: Schedule, exchange: Exchange | None, *, own: bool) -> tuple[Parts, ...]:
    """Those of the innermost group, with the `own` one first or without it, then the sums of other groups."""
    begin, ranks = (0 if own else 1), schedule.num_ranks
    if exchange is None or not exchange.relayed:
        there = (rank + begin + STEP) % ranks
        if exchange is not None and exchange.order.ranks.ranks_per_node < ranks:  # in the order in which they come
            there = rank_at(replace(exchange.order.ranks, first=0, direction=1), begin + STEP)
        return (Parts(there, ranks - begin, exchange),)
    found = list[Parts]()
    for number, one in enumerate(_landings(exchange)):
        first, last = 1 if number else begin, one.outer == ranks
        there = one.beside(None if last else rank // one.outer, first)
        cut, landing = as_sent(exchange) if last else exchange, (one.buffer, one.word) if number else None
        found.append(Parts(there, one.others + 1 - first, cut, landing))
    return tuple(parts for parts in found if parts.many)
