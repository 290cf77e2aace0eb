"""What the programs of a tile loop do on average, all of them and not only the one that ends last: tiles, waits by exchange, and
nothing more to do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilelink.planner.course import Tiles
from tilelink.planner.loop import Times, last_ends

_SEEN = 1e-6  # us


@dataclass(frozen=True, slots=True)
class Shares:
    """Means over the programs of a loop, in us, which add up to `whole_us`: from its begin until its last tile is done.
    `late_us`: programs still have tiles of the loop before. `waits`: by exchange. `held_us`: a warpgroup ends its tile before it
    can multiply again. `rest_us`: behind the last product of a program, its epilogue and the wait for slower programs."""

    whole_us: float
    late_us: float
    tiles_us: float
    waits: tuple[tuple[str, float], ...]
    held_us: float
    rest_us: float


def shares_of(tiles: Tiles) -> Shares:
    """Of one tile loop."""
    times, programs, turns = tiles.times, tiles.times.programs, tiles.loop.role.warpgroups > 1
    begins, count = tiles.begins_us, len(times.ends_us)
    done = np.minimum(times.ends_us, begins + times.tile_us) if turns else times.ends_us
    first = times.begin_us + (np.array(times.late_us) if times.late_us else np.zeros(programs))
    free = np.concatenate([first, done])[:count] if count > programs else first[:count]
    waited = np.maximum(0.0, begins - free)
    by, left = dict[str, float](), waited.copy()
    for name, there in _latest_first(tiles):
        here = np.where(there > free + _SEEN, left, 0.0)
        by[name] = float(here.sum()) / programs
        left -= here
    end = float(times.ends_us.max())
    last = last_ends(done, programs, first)
    return Shares(
        end - times.begin_us,
        float((first - times.begin_us).mean()),
        float((done - begins).sum()) / programs,
        tuple((name, us) for name, us in by.items() if us > _SEEN),
        float(left.sum()) / programs,
        float((end - last).mean()),
    )


def _latest_first(tiles: Tiles) -> list[tuple[str, Times]]:
    """Exchanges that tiles await; of each tile's wait the one whose data come last is the reason."""
    if len(tiles.awaited) < 2:
        return list(tiles.awaited.items())
    latest = np.maximum.reduce(list(tiles.awaited.values()))
    return [(name, np.where(there >= latest, there, 0.0)) for name, there in tiles.awaited.items()]
