"""Where a measured call is while it does not compute, in parts that add up to what it takes beyond computing alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from tilelink.profiling.timeline import Doing

TILES = "tiles, beyond computing alone"
BEGIN = "start, before programs run"
LAST = "no further tile, until the last program ends"
COPIES = "copies by the programs"
ENDS = "end of the call"
LAUNCHES = "launch, and between kernels"
BETWEEN = "gaps between operations"
CALLS = "between calls, less what stamps add"


class Timed(Protocol):
    """A span, in us on a clock that all ranks share."""

    @property
    def rank(self) -> int: ...
    @property
    def lane(self) -> str: ...
    @property
    def doing(self) -> str: ...
    @property
    def where(self) -> str: ...
    @property
    def start_us(self) -> float: ...
    @property
    def end_us(self) -> float: ...


class Part(NamedTuple):
    """`us`: of a program, on average."""

    what: str
    us: float


class Parts(NamedTuple):
    """Of rank `rank`, which ends last. The sum of `parts` is a call less what computing alone takes."""

    rank: int
    parts: tuple[Part, ...]


def program_of(lane: str) -> str:
    """The program of a lane, which may be that of a group of its warps; empty where it is of none."""
    return lane.split(",")[0] if lane.startswith("program ") else ""


def parts_of(spans: Iterable[Timed], call_us: float, alone_us: float) -> Parts | None:
    """`alone_us`: of what computes, alone. Averages are those of programs with tiles, or of streams where libraries compute; None
    without either."""
    found = list(spans)
    if not found:
        return None
    rank = max(found, key=lambda span: span.end_us).rank
    mine = [span for span in found if span.rank == rank]
    begin, end = min(span.start_us for span in mine), max(span.end_us for span in mine)
    lanes = defaultdict[str, list[Timed]](list)
    for span in mine:
        if "," not in span.lane:  # what other groups of its warps do is beside a program
            lanes[span.lane].append(span)
    computing = {lane: held for lane, held in lanes.items() if any(one.doing == Doing.TILE.value for one in held)}
    programs = {lane: held for lane, held in computing.items() if program_of(lane)}
    chosen = list((programs or computing).values())
    if not chosen:
        return None
    sums = defaultdict[str, float](float)
    for held in chosen:
        _add(sums, held, begin, end)
    parts = {what: us / len(chosen) for what, us in sums.items()}
    parts[TILES] = parts.get(TILES, 0.0) - alone_us
    parts[CALLS] = call_us - (end - begin)
    ordered = sorted(parts.items(), key=lambda part: (part[0] == CALLS, -part[1]))
    return Parts(rank, tuple(Part(*part) for part in ordered))


def _add(sums: dict[str, float], held: Sequence[Timed], begin: float, end: float) -> None:
    """All of the time from `begin` to `end` of one lane."""
    ordered = sorted(held, key=lambda span: span.start_us)
    sums[BEGIN] += ordered[0].start_us - begin
    sums[LAST] += end - ordered[-1].end_us
    spent = 0.0
    for span in ordered:
        spent += span.end_us - span.start_us
        sums[_what(span)] += span.end_us - span.start_us
    sums[BETWEEN] += ordered[-1].end_us - ordered[0].start_us - spent


def _what(span: Timed) -> str:
    match span.doing:
        case Doing.TILE.value:
            return TILES
        case Doing.WAIT.value:
            return f"wait in {span.where}"
        case Doing.MOVE.value:
            return COPIES
        case Doing.LAUNCH.value:
            return LAUNCHES
        case _:
            return ENDS
