"""A predicted call as a trace in Chrome's format, which ui.perfetto.dev and chrome://tracing show.

One process, of one rank: all ranks do the same. A track for the compute stream, one for each exchange, and some for programs that
compute tiles, evenly spaced among all. Arrows go from the transfer that ended last to the tile that had waited. Counters say how
many tiles are done, and how many transfers.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

from tilelink.ir.calls import LibraryOp
from tilelink.ir.nodes import Finish, Kernel
from tilelink.ir.schedule import Schedule
from tilelink.planner.course import Course, Tiles, course_of
from tilelink.planner.term_names import name_of
from tilelink.report.measured import Measured
from topologies.topology import Topology

_PROGRAMS = 12  # shown of each kernel
_SAMPLES = 256  # of a counter
_WAITED_US = 0.05  # less is rounding
_STREAM, _EXCHANGES, _TILES = 1, 100, 1000  # numbers of tracks

Event = dict[str, Any]


def predicted_trace(schedule: Schedule, topology: Topology, measured: Measured | None = None) -> str:
    """JSON of one call; times are in us, as the format wants them. What was `measured` is a process for each rank beneath, with a
    track for each program that is shown."""
    course = course_of(schedule, topology)
    title = f"predicted: {schedule.name} on {topology.name}, a rank of {schedule.num_ranks}, {course.total_us:.1f} us"
    events = [_named("process_name", 0, title), *_launches(course), *_moves(schedule, course), *_tiles(course)]
    events += () if measured is None else _measured(measured)
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}, separators=(",", ":"))


def _measured(measured: Measured) -> Iterator[Event]:
    for rank in measured.ranks:
        process = 2 + rank
        title = f"measured: rank {rank}, {measured.machine}, {measured.call_us:.1f} us a call"
        yield _named("process_name", 0, title) | {"pid": process}
        tracks: dict[str, int] = {}
        for span in measured.shown(rank):
            track = tracks.setdefault(span.lane, len(tracks))
            name = f"wait: {span.where}" if span.doing == "wait" else span.where or span.doing
            yield _span(track, name, span.start_us, span.end_us, doing=span.doing) | {"pid": process}
        for lane, track in tracks.items():
            yield _named("thread_name", track, lane) | {"pid": process}


def _named(what: str, track: int, name: str) -> Event:
    return {"ph": "M", "name": what, "pid": 1, "tid": track, "args": {"name": name}}


def _span(track: int, name: str, begin: float, end: float, **more: object) -> Event:
    span = {"ph": "X", "pid": 1, "tid": track, "name": name, "ts": round(begin, 3), "dur": round(end - begin, 3)}
    return span | ({"args": more} if more else {})


def _launches(course: Course) -> Iterator[Event]:
    yield _named("thread_name", _STREAM, "compute stream")
    for launch, begin, end in course.launches:
        match launch:
            case Kernel(name):
                title = name
            case LibraryOp(out=out):
                title = f"library: {out.buffer}"
            case Finish():
                title = "end of the call"
            case _:
                title = name_of(launch)
        if end > begin:
            yield _span(_STREAM, title, begin, end)


def _moves(schedule: Schedule, course: Course) -> Iterator[Event]:
    for number, (name, moves) in enumerate(course.moves.items()):
        track = _EXCHANGES + number
        yield _named("thread_name", track, f"{name} by {schedule.exchange(name).mover.text}")
        for place, (begin, end) in enumerate(moves):
            yield _span(track, f"{name} {place}", begin, end)
        yield from _counted(f"transfers of {name}", sorted(end for _, end in moves))


def _tiles(course: Course) -> Iterator[Event]:
    ended = sorted(
        (end, _EXCHANGES + number) for number, name in enumerate(course.moves) for _, end in course.moves[name]
    )
    for number, (name, tiles) in enumerate(course.tiles.items()):
        shown = sorted({place * tiles.times.programs // _PROGRAMS for place in range(_PROGRAMS)})
        for place, program in enumerate(shown):
            track = _TILES + number * _PROGRAMS + place
            yield _named("thread_name", track, f"{name}, program {program}")
            yield from _of_program(name, tiles, program, track, ended)
        yield from _counted(f"tiles of {name}", sorted(tiles.times.ends_us.tolist()))


def _of_program(
    name: str, tiles: Tiles, program: int, track: int, ended: Sequence[tuple[float, int]]
) -> Iterator[Event]:
    """Its tiles, what it waits for in front of them, and arrows from there. Where warpgroups take turns, a span is the product:
    the rest of the tile runs beside the next one."""
    for tile, free, begin, product, _ in tiles.bars(program):
        if begin - free > _WAITED_US:
            yield _span(track, "wait", free, begin)
            at = bisect_right(ended, (begin, _TILES)) - 1
            if at >= 0 and ended[at][0] > free:
                arrow = {"cat": "notify", "name": "notify", "id": track * 100_000 + tile, "pid": 1}
                yield arrow | {"ph": "s", "tid": ended[at][1], "ts": round(ended[at][0] - 1e-3, 3)}
                yield arrow | {"ph": "f", "bp": "e", "tid": track, "ts": round(begin + 1e-3, 3)}
        yield _span(track, f"{name} {tile}", begin, product, segment=int(tiles.times.segments[tile]))


def _counted(name: str, ends: Sequence[float]) -> Iterator[Event]:
    """How many are over, at some of the times at which one is."""
    yield {"ph": "C", "pid": 1, "name": name, "ts": 0, "args": {"done": 0}}
    step = -(-len(ends) // _SAMPLES)
    for place in range(step - 1, len(ends), step):
        yield {"ph": "C", "pid": 1, "name": name, "ts": round(ends[place], 3), "args": {"done": place + 1}}
    if len(ends) % step:
        yield {"ph": "C", "pid": 1, "name": name, "ts": round(ends[-1], 3), "args": {"done": len(ends)}}
