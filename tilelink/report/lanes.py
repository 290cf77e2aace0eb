"""The lanes of a Gantt chart: what each engine of a rank does when, as bars in microseconds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilelink.ir.calls import LibraryCollective, LibraryOp, PacketCollective, StateMerge
from tilelink.ir.movers import Issuer, Transfer
from tilelink.ir.nodes import Exchange, Finish, Kernel, Kind, Launch
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import DTYPE_BYTES
from tilelink.planner.course import Course, Tiles
from tilelink.planner.loop import Times
from tilelink.planner.term_names import name_of
from tilelink.planner.terms import Account
from tilelink.report.html import exact

_MOST = 160  # bars of a lane: more are drawn as one bar for several
_STEPS = 96  # of a curve
_SEEN = 1e-6  # us

WORK, WAIT, MOVE, LAUNCH, CALL, KERNEL, HELD = "work", "wait", "move", "launch", "call", "kernel", "held"


@dataclass(frozen=True, slots=True)
class Bar:
    """`share`: its height, of that of the lane. `label`: what is written on it where there is room."""

    begin: float
    end: float
    kind: str
    title: str
    label: str = ""
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Lane:
    """`engine`: what does it. `note`: what a reader must know of how it was drawn."""

    name: str
    engine: str
    bars: tuple[Bar, ...]
    note: str = ""


def rank_lanes(schedule: Schedule, course: Course, account: Account, gb_per_s: float, rank: int) -> list[Lane]:
    """Stream, programs, movers and links of a rank, in this order. `gb_per_s`: of its links, in one direction."""
    lanes = [_stream(course), _critical(account)]
    lanes += [_busy(name, tiles) for name, tiles in course.tiles.items()]
    sent, came = list[Bar](), list[Bar]()
    for exchange in schedule.exchanges:
        if exchange.mover.issuer is Issuer.TILES and exchange.transfer is Transfer.PUSH:
            sent += _stores(schedule, exchange, course, gb_per_s, rank, "to")
            came += _stores(schedule, exchange, course, gb_per_s, rank, "from")
            continue
        if exchange.name not in course.moves:
            continue
        out = exchange.transfer is Transfer.PUSH
        moves = course.moves[exchange.name]
        passes = course.passes[exchange.name] if exchange.mover.issuer is Issuer.STREAMS else moves
        own, others = _issued(schedule, exchange, rank, len(moves)), _reach(schedule, exchange, rank, len(moves))
        bars = [_move(exchange, what, span) for what, span in zip(own, moves, strict=True)]
        lanes.append(Lane(f"{exchange.name}, {exchange.mover.text}", "mover", _few(bars)))
        (sent if out else came).extend(_move(exchange, what, span) for what, span in zip(own, passes, strict=True))
        (came if out else sent).extend(_move(exchange, what, passes[place]) for place, what in others)
    link = "network" if any(one.mover.crosses_nodes for one in schedule.exchanges) else "link"
    for name, bars in ((f"{link} out", sent), (f"{link} in", came)):
        if bars:
            lanes.append(Lane(name, "link", _few(sorted(bars, key=lambda bar: bar.begin))))
    return [lane for lane in lanes if lane.bars]


def program_lanes(schedule: Schedule, course: Course, rank: int, programs: int, most: int) -> list[Lane]:
    """Some programs of each tile loop, evenly spaced among those that have a tile: at most `programs` of them, and about `most`
    bars in all."""
    lanes = []
    for name, tiles in course.tiles.items():
        each = -(-len(tiles.times.ends_us) // tiles.times.programs)
        count = max(2, min(programs, most // max(1, 2 * each * len(course.tiles))))
        busy = min(tiles.times.programs, len(tiles.times.ends_us))
        shown = sorted({place * busy // count for place in range(count)})
        for program in shown:
            bars = _few(_of_program(schedule, tiles, program, rank))
            lanes.append(Lane(f"{name.removesuffix('_kernel')}, program {program}", "program", bars))
    return lanes


def _stream(course: Course) -> Lane:
    bars = [_launch(*span) for span in course.launches if span.end - span.begin > _SEEN]
    return Lane("compute stream", "stream", tuple(bars))


def _launch(launch: Launch, begin: float, end: float) -> Bar:
    match launch:
        case Kernel(name):
            what, kind = name, KERNEL
            text = f"{what}, {launch.programs} programs on {launch.sms} SMs"
        case LibraryOp(out=out):
            what, kind = f"{out.buffer} by the library", WORK
            text = what
        case Finish():
            what, kind, text = "end", CALL, "end of the call"
        case LibraryCollective() | PacketCollective() | StateMerge():
            what, kind, text = name_of(launch), MOVE, name_of(launch)
        case _:
            what, kind, text = name_of(launch), LAUNCH, name_of(launch)
    return Bar(begin, end, kind, f"{text}: {from_to(begin, end)}", what)


def _critical(account: Account) -> Lane:
    """Stretches of one name, one behind the other, are one bar."""
    bars: list[Bar] = []
    for begin, end, what, awaits in account.stretches:
        if end - begin <= _SEEN:
            continue
        kind = WAIT if awaits else _kind_of(what)
        if bars and bars[-1].label == what and begin - bars[-1].end <= _SEEN:
            begin = bars.pop().begin
        bars.append(Bar(begin, end, kind, f"{what}: {from_to(begin, end)}", what))
    return Lane("critical path", "critical path", _few(bars))


def _kind_of(what: str) -> str:
    if what.startswith(("end of the call", "until the last peer", "beginning", "wait until")):
        return CALL
    if what.startswith(("packets", "all_", "reduce_", "states", "last stores")):
        return MOVE
    starts = ("launch", "start", "copy", "publication", "rows", "places", "telling")
    return LAUNCH if what.startswith(starts) else WORK


def _busy(name: str, tiles: Tiles) -> Lane:
    """How many programs compute: a step wherever that changes, or the mean of equal pieces where it changes often."""
    begins, programs = tiles.begins_us, tiles.times.programs
    ends = begins + tiles.times.tile_us if tiles.loop.role.warpgroups > 1 else tiles.times.ends_us
    at, count = _curve(begins, ends, np.ones(len(begins)))
    note = ""
    if len(at) > _STEPS:
        at, count = _means(at, count)
        note = f"means of {_STEPS} pieces of time"
    bars = [
        Bar(begin, end, WORK, f"{held:.4g} of {programs} programs compute tiles: {from_to(begin, end)}", "", share)
        for begin, end, held in zip(at[:-1].tolist(), at[1:].tolist(), count[:-1].tolist(), strict=True)
        if (share := min(1.0, held / programs)) > 0
    ]
    return Lane(f"{name.removesuffix('_kernel')}, {programs} programs", "SMs", tuple(bars), note)


def _curve(begins: Times, ends: Times, amounts: Times) -> tuple[Times, Times]:
    """The sum of amounts that last from a begin to an end, as times at which it changes and its values from there on."""
    changes = np.concatenate([begins, ends])
    order = np.argsort(changes, kind="stable")
    sums, at = np.cumsum(np.concatenate([amounts, -amounts])[order]), changes[order]
    last = np.append(np.diff(at) > _SEEN, True)
    return at[last], sums[last]


def _means(at: Times, count: Times) -> tuple[Times, Times]:
    """A curve of steps as its means over equal pieces; pieces with one mean are one."""
    edges = np.linspace(at[0], at[-1], _STEPS + 1)
    area = np.concatenate([[0.0], np.cumsum(count[:-1] * np.diff(at))])
    means = np.diff(np.interp(edges, at, area)) / np.diff(edges)
    keep = np.append(True, np.abs(np.diff(means)) > 1e-3)
    return np.append(edges[:-1][keep], edges[-1]), np.append(means[keep], 0.0)


def _of_program(schedule: Schedule, tiles: Tiles, program: int, rank: int) -> Iterator[Bar]:
    order = tiles.loop.role.order.ranks
    segments = tiles.loop.segments
    for tile, free, begin, product, end in tiles.bars(program):
        place = int(tiles.times.segments[tile])
        where = f", segment {order.at(rank, place)}" if segments == schedule.num_ranks and segments > 1 else ""
        arrived = tiles.arrived(tile)
        if begin - free > _SEEN:
            came = arrived is not None and arrived[0] in tiles.awaited and arrived[1] > free + _SEEN
            what = f"wait for {arrived[0]}" if came and arrived else "its warpgroup still ends the tile before"
            yield Bar(free, begin, WAIT if came else HELD, f"{what}: {from_to(free, begin)}")
        there = f"; its data of {arrived[0]} are there at {exact(arrived[1])}" if arrived is not None else ""
        done = f"; its epilogue ends at {exact(end)}" if end > product + _SEEN else ""
        yield Bar(begin, product, WORK, f"tile {tile}{where}: {from_to(begin, product)}{done}{there}", f"{tile}")


def _move(exchange: Exchange, what: str, span: tuple[float, float]) -> Bar:
    begin, end = span
    label = what.removeprefix("chunk 0 ") if exchange.chunks == 1 else what.removeprefix("chunk ")
    return Bar(
        begin,
        end,
        MOVE,
        f"{exchange.name} {what}: {from_to(begin, end)}",
        label.replace("rank ", "").replace("transfer ", ""),
    )


def _issued(schedule: Schedule, exchange: Exchange, rank: int, moves: int) -> list[str]:
    """What each transfer of a rank is, in the order of its mover."""
    found = _sequence(schedule, exchange, rank)
    if len(found) != moves:
        return [f"transfer {number}" for number in range(moves)]
    way = "to" if exchange.transfer is Transfer.PUSH else "from"
    return [f"chunk {chunk} {way} rank {peer}" for peer, chunk in found]


def _reach(schedule: Schedule, exchange: Exchange, rank: int, moves: int) -> Iterator[tuple[int, str]]:
    """Transfers of peers that come to the rank, or that fetch from it: their place in the order of the peer, and their text."""
    way = "from" if exchange.transfer is Transfer.PUSH else "to"
    for other in (peer for peer in range(schedule.num_ranks) if peer != rank):
        found = _sequence(schedule, exchange, other)
        if len(found) == moves:
            yield from (
                (place, f"chunk {chunk} {way} rank {other}")
                for place, (peer, chunk) in enumerate(found)
                if peer == rank
            )


def _sequence(schedule: Schedule, exchange: Exchange, rank: int) -> Sequence[tuple[int, int]]:
    if exchange.kind is Kind.SHIFT:
        return [((rank + exchange.by) % schedule.num_ranks, chunk) for chunk in range(exchange.chunks)]
    return exchange.order.sequence(rank, exchange.chunks)


def _stores(
    schedule: Schedule, exchange: Exchange, course: Course, gb_per_s: float, rank: int, way: str
) -> Iterator[Bar]:
    """Bytes that leave with the tiles which make them, spread over the epilogue of a tile: rates, which have no span of their own
    in the model. `way`: "to" peers, or "from" them."""
    tiles = next((one for one in course.tiles.values() if exchange.name in one.loop.produced), None)
    if tiles is None:
        return
    own, place, ends = tiles.loop.own_place, tiles.times.segments, tiles.times.ends_us
    away = place != own if own >= 0 else np.ones(len(ends), bool)
    if not away.any():
        return
    size = DTYPE_BYTES[schedule.buffer(exchange.target).dtype]
    each = exchange.rows * exchange.cols * size * (schedule.num_ranks - 1) / int(away.sum())
    products = tiles.begins_us + tiles.times.tile_us
    starts = products if tiles.loop.role.warpgroups > 1 else tiles.begins_us
    at, rates = _curve(starts[away], ends[away], each / np.maximum(ends[away] - starts[away], _SEEN) / 1e3)
    at, rates = _means(at, rates) if len(at) > _STEPS else (at, rates)
    for begin, end, rate in zip(at[:-1].tolist(), at[1:].tolist(), rates[:-1].tolist(), strict=True):
        if rate > _SEEN:
            here = away & (starts < end) & (ends > begin)
            peers = _peers(schedule, tiles, rank, sorted(set(place[here].tolist())), way)
            title = f"{exchange.name} {way} {peers}, tile by tile: {rate:.4g} of {gb_per_s:g} GB/s"
            yield Bar(begin, end, MOVE, f"{title}: {from_to(begin, end)}", "", min(1.0, rate / gb_per_s))


def _peers(schedule: Schedule, tiles: Tiles, rank: int, places: list[int], way: str) -> str:
    """Ranks whose segments lie at these places of the order, or ranks at whose places the segment of `rank` lies."""
    order, ranks = tiles.loop.role.order.ranks, range(schedule.num_ranks)
    if tiles.loop.segments != schedule.num_ranks:
        return "all peers"
    if way == "to":
        found = [order.at(rank, place) for place in places]
    else:
        found = [other for place in places for other in ranks if order.at(other, place) == rank]
    return f"rank {', '.join(map(str, found))}" if len(found) <= 3 else f"{len(found)} peers"


def _few(found: Iterable[Bar]) -> tuple[Bar, ...]:
    """At most so many bars: neighbours of one kind become one, that says how many it stands for."""
    bars = list(found)
    if len(bars) <= _MOST:
        return tuple(bars)
    step, merged = -(-len(bars) // _MOST), list[Bar]()
    for first in range(0, len(bars), step):
        group = bars[first : first + step]
        waits = sum(bar.end - bar.begin for bar in group if bar.kind == WAIT)
        begin, end = group[0].begin, max(bar.end for bar in group)
        also = f", of which {exact(waits)} are waits" if waits else ""
        kind = max(group, key=lambda bar: bar.end - bar.begin).kind
        title = f"{len(group)} bars, from {group[0].title.split(':')[0]} to {group[-1].title.split(':')[0]}"
        merged.append(Bar(begin, end, kind, f"{title}: {from_to(begin, end)}{also}"))
    return tuple(merged)


def from_to(begin: float, end: float) -> str:
    return f"{exact(begin)} to {exact(end)}, {exact(end - begin)}"
