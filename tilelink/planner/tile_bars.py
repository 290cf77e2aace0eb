"""When tiles of a loop begin, by when they are done, and what one program does when.

Where two warpgroups take turns, a tile has two parts: its product, behind the product before, and its epilogue, which runs while
the other warpgroup multiplies. Elsewhere all of a tile is its product.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tilelink.planner.cost import TileTimes
from tilelink.planner.loop import Times


class Bar(NamedTuple):
    """A tile, by its place in the order of the loop. Its program can multiply from `free` on; the product lasts from `begin` to
    `product`, and the tile is done at `end`. In us."""

    tile: int
    free: float
    begin: float
    product: float
    end: float


def begins_of(times: TileTimes, ready: Times, warpgroups: int) -> Times:
    """When the product of each tile begins. `ready`: from when on a tile may."""
    late = np.array(times.late_us) if times.late_us else np.zeros(times.programs)
    first, ends, programs = times.begin_us + late, times.ends_us, times.programs
    if warpgroups == 1:
        free = np.concatenate([first, ends])[: len(ends)] if len(ends) > programs else first[: len(ends)]
        whole: Times = np.maximum(free, ends - (times.tile_us if times.each_us is None else times.each_us))
        return whole
    found, done = np.zeros(len(ends)), first.copy()
    for start in range(0, len(ends), programs):
        row = slice(start, min(start + programs, len(ends)))
        size = row.stop - row.start
        before = start - warpgroups * programs  # the last tile of the same warpgroup
        free = ends[before : before + size] if before >= 0 else first[:size]
        found[row] = np.maximum(np.maximum(done[:size], free), ready[row])
        done[:size] = found[row] + times.tile_us
    return found


def bars_of(times: TileTimes, begins: Times, program: int, warpgroups: int) -> Iterator[Bar]:
    """The tiles of `program`, in order."""
    free = times.begin_us + (times.late_us[program] if times.late_us else 0.0)
    for tile in range(program, len(times.ends_us), times.programs):
        begin, end = float(begins[tile]), float(times.ends_us[tile])
        product = min(end, begin + times.tile_us) if warpgroups > 1 else end
        yield Bar(tile, free, begin, product, end)
        free = product
