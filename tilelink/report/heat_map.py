"""The order of tiles as a map over the output: a cell is a tile, its colour says when it is done.

Tiles of a segment are one group, which is drawn once and shown where the segment lies on each rank: ranks have one order, which
begins with another segment on each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilelink.ir.nodes import Axis, ComputeRole
from tilelink.planner.course import Tiles
from tilelink.planner.loop import Times
from tilelink.report.html import Html, el, table, timed

SHADES = 10  # of the colours, from early to late
_MOST_RANKS = 16  # small maps


@dataclass(frozen=True, slots=True)
class _Cell:
    """Tiles from `first` to `last` of the order at one place of the map, rows and columns counted in tiles of a segment."""

    row: int
    col: int
    first: int
    last: int
    tiles: int
    begin: float
    end: float
    there: float


@dataclass(frozen=True, eq=False)
class HeatMap:
    """A map of one tile loop. `cells` by the place of their segment in the order."""

    name: str
    tiles: Tiles
    cells: tuple[tuple[_Cell, ...], ...]
    high: int  # rows of a segment, and columns, in cells
    wide: int
    merged: tuple[int, int]  # tiles of a cell, along the major axis and the other one

    @property
    def role(self) -> ComputeRole:
        return self.tiles.loop.role


def heat_map(name: str, tiles: Tiles, most: int) -> HeatMap:
    """Of rank 0, with at most about `most` cells: neighbouring tiles are one where there are more."""
    role = tiles.loop.role
    major, minor = role.axis(role.order.major), role.axis(role.order.minor) if role.order.minor else None
    columns = minor.segments * minor.tiles if minor else 1
    by = _merged(major, columns, most)
    begins, ends, there = tiles.begins_us, tiles.times.ends_us, _there(tiles)
    found: list[dict[tuple[int, int], _Cell]] = [{} for _ in range(major.segments)]
    for position, (place, row, col) in enumerate(role.order.sequence(major.tiles, columns, major.segments)):
        if position >= len(ends):
            break
        row = major.tiles - 1 - row if major.descending else row
        if minor is not None and minor.segments > 1:
            col = role.order.minor_ranks.at(0, col // minor.tiles) * minor.tiles + col % minor.tiles
        at = row // by[0], col // by[1]
        begin, end, came = float(begins[position]), float(ends[position]), float(there[position])
        held = found[place].get(at)
        if held is None:
            found[place][at] = _Cell(*at, position, position, 1, begin, end, came)
        else:
            times = min(held.begin, begin), max(held.end, end), max(held.there, came)
            found[place][at] = _Cell(*at, held.first, position, held.tiles + 1, *times)
    cells = tuple(tuple(one.values()) for one in found)
    return HeatMap(name, tiles, cells, -(-major.tiles // by[0]), -(-columns // by[1]), by)


def _merged(major: Axis, columns: int, most: int) -> tuple[int, int]:
    """How many tiles a cell has along each axis."""
    by = [1, 1]
    while major.segments * -(-major.tiles // by[0]) * -(-columns // by[1]) > most:
        by[major.tiles // by[0] < columns // by[1]] *= 2
    return by[0], by[1]


def _there(tiles: Tiles) -> Times:
    """When all that a tile awaits is there; 0 where it awaits nothing."""
    found = tiles.times.ends_us * 0.0
    for times in tiles.there.values():
        found = found.clip(min=times)
    return found


def drawn(one: HeatMap, number: int, num_ranks: int) -> Html:
    """The map of rank 0, small ones of the other ranks, and a table of the segments."""
    segments = len(one.cells)
    first, last = _range(one)
    groups = [
        el("g", *(_cell(one, cell, first, last) for cell in cells), id=f"map{number}-{place}")
        for place, cells in enumerate(one.cells)
    ]
    rows = one.role.order.major == next(axis.name for axis in one.role.axes if not axis.reduction)
    size = (one.wide, one.high * segments) if rows else (one.high * segments, one.wide)
    major, minor = one.role.order.major, one.role.order.minor or "–"
    down, right = (major, minor) if rows else (minor, major)
    title = f"Tiles of {one.name} on rank 0 by when they are done: {down} down, {right} to the right"
    moved = [el("g", group, transform=_moved(one, place, 0, rows)) for place, group in enumerate(groups)]
    big = _svg(moved, size, "map", title)
    ranks = range(1, min(num_ranks, _MOST_RANKS)) if _turns(one, num_ranks) else range(0)
    small = [
        el(
            "figure",
            _svg(
                [el("use", href=f"#map{number}-{p}", transform=_moved(one, p, rank, rows)) for p in range(segments)],
                size,
                "map small",
                f"The same on rank {rank}",
            ),
            el("figcaption", f"rank {rank}"),
        )
        for rank in ranks
    ]
    legend = el(
        "p",
        f"done at {first:.1f} us ",
        *(el("span", "", class_=f"shade h{shade}", aria_hidden="true") for shade in range(SHADES)),
        f" {last:.1f} us; {down} runs down, {right} to the right",
        class_="legend",
    )
    both = el(
        "div",
        el("figure", big, el("figcaption", "rank 0")),
        el("div", *small, class_="small-maps") if small else "",
        class_="maps",
    )
    by = one.merged[0] * one.merged[1]
    note = el("p", f"A cell stands for up to {by} neighbouring tiles.", class_="note") if by > 1 else ""
    return el("div", el("h3", one.name), legend, both, note, _segments(one), class_="order")


def _turns(one: HeatMap, num_ranks: int) -> bool:
    """Whether the order of segments is another one on each rank."""
    order, minor = one.role.order, one.role.order.minor
    plain = not minor or one.role.axis(minor).segments == 1
    return len(one.cells) == num_ranks == order.ranks.num_ranks and num_ranks > 1 and plain


def _svg(content: list[Html], size: tuple[int, int], class_: str, label: str) -> Html:
    view = f"0 0 {size[0]} {size[1]}"
    return el("svg", *content, viewBox=view, preserveAspectRatio="none", class_=class_, role="img", aria_label=label)


def _moved(one: HeatMap, place: int, rank: int, rows: bool) -> str:
    segment = one.role.order.ranks.at(rank, place) if len(one.cells) > 1 else 0
    along = segment % len(one.cells) * one.high
    return f"translate(0 {along})" if rows else f"translate({along} 0)"


def _range(one: HeatMap) -> tuple[float, float]:
    ends = one.tiles.times.ends_us
    return float(ends.min()), float(ends.max())


def _cell(one: HeatMap, cell: _Cell, first: float, last: float) -> Html:
    shade = min(SHADES - 1, int(SHADES * (cell.end - first) / (last - first))) if last > first else 0
    major, minor = one.role.axis(one.role.order.major), one.role.order.minor
    where = f"{major.name} {cell.row * one.merged[0] * major.tile}"
    if minor:
        where += f", {minor} {cell.col * one.merged[1] * one.role.axis(minor).tile}"
    which = f"tile {cell.first}" if cell.tiles == 1 else f"{cell.tiles} tiles, {cell.first} to {cell.last}"
    there = f"; data there {cell.there:.3f}" if cell.there else ""
    title = f"{which}: {where}{there}; {cell.begin:.3f} to {cell.end:.3f} us"
    rows = one.role.order.major == next(axis.name for axis in one.role.axes if not axis.reduction)
    x, y = (cell.col, cell.row) if rows else (cell.row, cell.col)
    return el("rect", el("title", title), x=x, y=y, width=1, height=1, class_=f"h{shade}")


def _segments(one: HeatMap) -> Html:
    """Of each segment in the order of rank 0: when its data arrive and when its tiles run."""
    rows = list(_rows(one))
    heads = ("segment", "first tile", "tiles", "data arrive", "until", "first begins", "last is done")
    return table(f"Segments of {one.name} on rank 0, in their order", heads, rows, numbers=range(1, 7))


def _rows(one: HeatMap) -> Iterator[list[str]]:
    own = one.tiles.loop.own_place
    for place, cells in enumerate(one.cells):
        if not cells:
            continue
        segment = one.role.order.ranks.at(0, place) if len(one.cells) > 1 else 0
        there = [cell.there for cell in cells if cell.there]
        came = [timed(min(there)), timed(max(there))] if there else ["awaits nothing", ""]
        name = f"{segment}, own" if place == own else f"{segment}"
        begin, end = min(cell.begin for cell in cells), max(cell.end for cell in cells)
        count = sum(cell.tiles for cell in cells)
        yield [name, str(min(cell.first for cell in cells)), f"{count:,}", *came, timed(begin), timed(end)]
