"""When the tiles of a loop are done: program by program, each tile after what it waits for.

Tiles go to programs in turn, so that the k-th tiles of all programs are one row of an array: a row is one vector
operation, and a loop costs as many as a program has tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tilelink.ir.nodes import Axis, ComputeRole, Exchange
from tilelink.ir.order import Nest

Times = NDArray[np.float64]
Index = NDArray[np.int64]


class Positions:
    """For each launch position: place of its segment in the order of segments, rows in the segment, and tile along the other
    axis."""

    def __init__(self, place: Index, first_row: Index, end_row: Index, column: Index, segments: int) -> None:
        self.place = place
        self.column = column
        self.first_row = first_row
        self.end_row = end_row
        self.segments = segments
        self._chunks: dict[tuple[int, int], Index] = {}
        self._groups: dict[tuple[int, int], tuple[Index, Index, Index]] = {}

    def last_chunk(self, exchange: Exchange) -> Index:
        """The last chunk of a part that the tile touches."""
        key = exchange.chunk_rows, exchange.chunks
        if key not in self._chunks:
            self._chunks[key] = np.minimum((self.end_row - 1) // key[0], key[1] - 1)
        return self._chunks[key]

    def latest(self, exchange: Exchange, ends: Times) -> Times:
        """The latest of `ends` for each (place, chunk) of the exchange."""
        key = exchange.chunk_rows, exchange.chunks
        if key not in self._groups:
            group = self.place * exchange.chunks + self.last_chunk(exchange)
            order = np.argsort(group, kind="stable")
            found, starts = np.unique(group[order], return_index=True)
            self._groups[key] = order, starts, found
        order, starts, found = self._groups[key]
        latest = np.zeros(self.segments * exchange.chunks)
        latest[found] = np.maximum.reduceat(ends[order], starts)
        return latest.reshape(self.segments, exchange.chunks)

    def shifted(self, rows: int) -> Positions:
        """Rows counted through all segments of `rows` rows, in one part."""
        first = self.place * rows
        return Positions(self.place, first + self.first_row, first + self.end_row, self.column, self.segments)


def positions(role: ComputeRole) -> Positions:
    """Launch positions of a role, as `TileOrder.at` has them."""
    order, major = role.order, role.axis(role.order.major)
    minor = role.axis(order.minor) if order.minor else None
    columns = minor.segments * minor.tiles if minor else 1
    return _positions(order.nest, order.late, order.group, major, columns, role.num_tiles)


@lru_cache(maxsize=512)
def _positions(nest: Nest, late: bool, group: int, major: Axis, columns: int, tiles: int) -> Positions:
    position = np.arange(tiles)
    segments = major.segments
    if nest is Nest.RANK_MAJOR:
        place, rest = np.divmod(position, major.tiles * columns)
        stage, rest = np.divmod(rest, group * columns)
        rows = np.minimum(group, major.tiles - stage * group)
    elif not late:
        stage, rest = np.divmod(position, segments * group * columns)
        rows = np.minimum(group, major.tiles - stage * group)
        place, rest = np.divmod(rest, rows * columns)
    else:
        visit, rest = np.divmod(position, group * columns)
        stage, place = np.divmod(visit + 1, segments)
        place = np.where(stage == 0, visit, np.where(stage == major.tiles // group, segments - 1, place))
        stage = stage - (place == segments - 1)
        rows = np.full_like(stage, group)
    first = (stage * group + rest % rows) * major.tile
    return Positions(place, first, np.minimum(first + major.tile, major.extent), rest // rows, segments)


@dataclass(slots=True)
class Loop:
    """One run of a loop: `ends[position]` is when a tile is done.

    `ready`: from when on a tile may start. `late`: when what own tiles add after their matmul is there, asked for when
    the first own tile of a row of programs has come so far; `own` says which tiles these are. The last `cut` tiles are as many
    `pieces` each, of `piece_us`.
    Where `warpgroups` take tiles in turns, `tile_us` is that of the product: the next one begins when it is done, and what is
    behind it, `behind_us` and what own tiles add, or `pieces_us` of other ones, is done meanwhile. What own tiles add is bound
    by memory or links, so that of two tiles of a program one has it after the other.
    """

    programs: int
    begin: float | Times  # of each program
    tile_us: float
    own_extra_us: float  # after the matmul of an own tile
    cut: int = 0
    pieces: int = 2
    piece_us: float = 0.0
    warpgroups: int = 1
    behind_us: float = 0.0
    pieces_us: float = 0.0
    each_us: Times | None = None  # of each tile, where these are not alike; by one warpgroup, without own tiles

    def run(
        self,
        ready: Times,
        own: NDArray[np.bool_],
        late: Callable[[Times, Index], Times],
        stages: Index | None = None,
    ) -> Times:
        """`stages`: of each own tile, a number that grows with what `late` depends on, so that `late` is asked for all tiles of
        one stage at once; None where it is asked for each row of programs."""
        if self.warpgroups > 1:
            return self._in_turns(ready, own, late)
        whole = len(ready) - self.cut
        ends, now = np.zeros(len(ready)), np.full(self.programs, self.begin)
        for first, end in self._batches(whole, own, stages):
            found = self._rows(now, ready[first:end], own[first:end], ends, first, late)
            size = min(self.programs, end - first)
            now[:size] = found[-size:] if (end - first) % self.programs == 0 else now[:size]
        if self.cut:
            pieces = self._pieces(np.repeat(ready[whole:], self.pieces), now)
            ends[whole:] = pieces.reshape(-1, self.pieces).max(axis=1)
        return ends

    def _batches(self, whole: int, own: NDArray[np.bool_], stages: Index | None) -> Iterator[tuple[int, int]]:
        """Whole rows of programs that can be computed at once: without own tiles, or with own tiles of one stage."""
        mine = np.flatnonzero(own[:whole])
        if not len(mine):
            yield 0, whole
            return
        rows = mine // self.programs
        if stages is None:
            begins = np.unique(rows)
        else:  # a row is of the latest stage of its tiles, or of one before
            latest = np.maximum.accumulate(stages[mine])
            begins = np.unique(rows[np.flatnonzero(np.diff(latest, prepend=-1) > 0)])
        with_own = np.zeros(-(-whole // self.programs), dtype=bool)
        with_own[rows] = True
        starts = np.zeros(len(with_own) + 1, dtype=bool)
        starts[begins], starts[0], starts[-1] = True, True, True
        starts[1:-1] |= with_own[1:] != with_own[:-1]
        at = np.flatnonzero(starts) * self.programs
        yield from zip(at[:-1].tolist(), [*at[1:-1].tolist(), whole], strict=True)

    def _rows(
        self,
        now: Times,
        ready: Times,
        own: NDArray[np.bool_],
        ends: Times,
        first: int,
        late: Callable[[Times, Index], Times],
    ) -> Times:
        """Ends of tiles from position `first` on, also written into `ends`: a tile begins when the one before is done, so that
        the latest of what has been waited for so far, and the time of all tiles since, is when it is done."""
        size, width = len(ready), self.programs
        count = -(-size // width)
        filled = np.full(count * width, -np.inf)
        filled[:size] = ready
        begins = filled.reshape(count, width)
        mine = np.flatnonzero(own)
        if not len(mine):
            steps, each = self._steps(first, size)
            latest = np.maximum(np.maximum.accumulate(begins - steps + each, axis=0), now)
            ends[first : first + size] = (latest + steps).ravel()[:size]
            return ends[first : first + size]
        # the first row tells when what `late` looks at is done
        ends[first : first + min(width, size)] = (np.maximum(now, begins[0]) + self.tile_us)[: min(width, size)]
        there = late(ends, mine + first)
        times = np.full(count * width, self.tile_us)
        times[mine] += self.own_extra_us
        least = filled + self.tile_us
        least[mine] = np.maximum(least[mine], there) + self.own_extra_us
        passed = np.cumsum(times.reshape(count, width), axis=0)
        latest = np.maximum(np.maximum.accumulate(least.reshape(count, width) - passed, axis=0), now)
        ends[first : first + size] = (latest + passed).ravel()[:size]
        return ends[first : first + size]

    def _steps(self, first: int, size: int) -> tuple[Times, Times | float]:
        """[row, program]: what all tiles of the program up to there take, and what each does."""
        count = -(-size // self.programs)
        if self.each_us is None:
            return np.asarray(np.arange(1, count + 1)[:, None] * self.tile_us), self.tile_us
        filled = np.zeros(count * self.programs)
        filled[:size] = self.each_us[first : first + size]
        each = filled.reshape(count, self.programs)
        return np.cumsum(each, axis=0), each

    def _in_turns(self, ready: Times, own: NDArray[np.bool_], late: Callable[[Times, Index], Times]) -> Times:
        ends = np.zeros(len(ready))
        product = np.full(self.programs, self.begin)  # the last one of each program
        adds = product.copy()  # until then an own tile of the program adds parts
        free = [product.copy() for _ in range(self.warpgroups)]
        behind, mine = self.behind_us + self.pieces_us, np.flatnonzero(own)
        # rows of programs without own tiles, whole ones
        begun = (int(mine[0]) if len(mine) else len(ready)) // self.programs * self.programs
        if begun:
            ends[:begun] = self._products(ready[:begun]) + behind
            product = ends[begun - self.programs : begun] - behind
            for number in range(max(0, begun // self.programs - self.warpgroups), begun // self.programs):
                free[number % self.warpgroups] = ends[number * self.programs : (number + 1) * self.programs].copy()
        for first in range(begun, len(ready), self.programs):
            row = slice(first, min(first + self.programs, len(ready)))
            size = row.stop - first
            group = free[first // self.programs % self.warpgroups]
            product[:size] = np.maximum(np.maximum(product[:size], group[:size]), ready[row]) + self.tile_us
            ends[row] = product[:size] + behind
            mine = np.flatnonzero(own[row])
            if len(mine):
                at = mine + first
                ends[at] -= self.pieces_us
                ends[at] = np.maximum(np.maximum(ends[at], late(ends, at)), adds[mine]) + self.own_extra_us
                adds[mine] = ends[at]
            group[:size] = ends[row]
        return ends

    def _products(self, ready: Times) -> Times:
        """When products of two warpgroups in turns are done: of each tile after what it waits for, after the product before, and
        after all of the tile before that, which the same warpgroup computes."""
        assert self.warpgroups == 2, "each other tile of a program is one warpgroup's"
        count = len(ready) // self.programs
        pairs = -(-count // 2)
        one, two = self.tile_us, max(2 * self.tile_us, self.tile_us + self.behind_us + self.pieces_us)
        rows = np.full((2 * pairs, self.programs), -np.inf)
        rows[:count] = ready.reshape(count, self.programs)
        begins = rows.reshape(pairs, 2, self.programs)
        passed = np.arange(pairs)[:, None] * two
        first = np.maximum.accumulate(begins[:, 0] - passed, axis=0) + passed  # as if only every other tile were there
        second = np.maximum.accumulate(begins[:, 1] - passed, axis=0) + passed
        done = np.empty_like(begins)
        done[:, 0] = first + one
        done[1:, 0] = np.maximum(done[1:, 0], second[:-1] + 2 * one)
        done[:, 1] = np.maximum(second + one, first + 2 * one)
        return np.asarray(done.reshape(2 * pairs, self.programs)[:count].ravel())

    def _pieces(self, ready: Times, now: Times) -> Times:
        ends = np.zeros(len(ready))
        for first in range(0, len(ready), self.programs):
            row = slice(first, min(first + self.programs, len(ready)))
            size = row.stop - first
            ends[row] = np.maximum(now[:size], ready[row]) + self.piece_us
            now[:size] = ends[row]
        return ends


def last_ends(ends: Times, programs: int, begin: float | Times) -> Times:
    """When each program has done its last tile, those without a tile at `begin`."""
    found, number = np.array(np.broadcast_to(begin, programs)), np.arange(min(programs, len(ends)))
    found[: len(number)] = ends[number + (len(ends) - 1 - number) // programs * programs]
    return found
