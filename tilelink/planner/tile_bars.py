"""What one program of a tile loop does when: its tiles, and what it waits for in front of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tilelink.planner.cost import TileTimes


class Bar(NamedTuple):
    """A tile, by its place in the order of the loop. Its program is free from `free` on and begins it at `begin`; in us."""

    tile: int
    free: float
    begin: float
    end: float


def bars_of(tiles: TileTimes, program: int) -> Iterator[Bar]:
    """The tiles of `program`, in order. Where warpgroups take turns, a tile ends behind the begin of the next product."""
    free = tiles.begin_us + (tiles.late_us[program] if tiles.late_us else 0.0)
    for tile in range(program, len(tiles.ends_us), tiles.programs):
        end = float(tiles.ends_us[tile])
        begin = max(free, end - tiles.tile_us)
        yield Bar(tile, free, begin, end)
        free = end
