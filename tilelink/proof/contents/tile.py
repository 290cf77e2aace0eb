"""What a tile in registers holds, for many positions at once: which value of the spec, of which rank, which elements.

Columns have an entry for each lane, which is one (rank, position) at which a step is done. A summand of a sum over ranks is the
value of the rank that has it; when all of them have been added, the tile holds the sum, which is one for all ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tilelink.schedule.index import Ints

Flags = NDArray[np.bool_]
Column = TypeVar("Column", Ints, Flags)
ANY_RANK = -1
LEAST_SCORE = -1e30  # with which a fold begins


class Term(NamedTuple):
    """A value of the spec; `summed`: the sum of those of all ranks, or of so many `ranks`, a group, whose first is the owner."""

    name: str
    summed: bool = False
    ranks: int = 0

    @property
    def is_partial(self) -> bool:
        """Whether it is a sum that others are still to be added to."""
        return self.ranks > 0

    def __str__(self) -> str:
        over = f"{self.ranks} ranks" if self.is_partial else "the ranks"
        return f"the sum of {self.name} over {over}" if self.summed else self.name


class Pieces(NamedTuple):
    """Where a loop that goes over a dimension once begins each round, from its first one on, and how far it gets in each."""

    start: Ints
    extent: Ints

    def like(self, other: Pieces | None) -> bool:
        return other is not None and all(
            len(a) == len(b) and bool((a == b).all()) for a, b in zip(self, other, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Tile:
    """Elements of `term` on rank `owner`, from `start` on, a column each for the dimensions of the value. Those below `skip` and
    from `extent` on, counted from `start`, are masked.

    `axes` says which dimension lies along each one of the tile, None where an element is repeated. `pieces`: along each
    dimension of the tile, if a loop goes over it. `offset`: how far the tile begins behind the address from which a user's
    function counts. `shape`: of the registers, if it is known.
    """

    term: Term
    axes: tuple[int | None, ...]
    owner: Ints
    start: tuple[Ints, ...]
    extent: tuple[Ints, ...]
    skip: tuple[Ints, ...]
    known: Flags
    pieces: tuple[Pieces | None, ...] = ()
    offset: tuple[Ints, ...] | None = None
    shape: tuple[int, ...] | None = None

    def at(self, lanes: Ints) -> Tile:
        return replace(
            self,
            owner=self.owner[lanes],
            start=tuple(one[lanes] for one in self.start),
            extent=tuple(one[lanes] for one in self.extent),
            skip=tuple(one[lanes] for one in self.skip),
            known=self.known[lanes],
            pieces=tuple(
                Pieces(*(one[..., lanes] if one.shape[1] > 1 else one for one in pieces)) if pieces else None
                for pieces in self.pieces
            ),
            offset=None if self.offset is None else tuple(one[lanes] for one in self.offset),
        )

    @property
    def some(self) -> Flags:
        """Whether the tile of a lane has elements."""
        found = self.known.copy()
        for one, before in zip(self.extent, self.skip, strict=True):
            found &= one > before
        return found

    def within(self, other: Tile) -> Tile:
        """Without the elements that `other` lacks, which begins where it does."""
        extent = tuple(map(np.minimum, self.extent, other.extent))
        skip = tuple(map(np.maximum, self.skip, other.skip))
        return replace(self, extent=extent, skip=skip, known=self.known & other.known)

    def turned(self) -> Tile:
        """Rows become columns."""
        pieces = self.pieces[::-1]
        offset = None if self.offset is None else self.offset[::-1]
        return replace(
            self, axes=self.axes[::-1], pieces=pieces, offset=offset, shape=self.shape[::-1] if self.shape else None
        )


@dataclass(frozen=True, slots=True)
class Zero:
    shape: tuple[int, ...]

    def at(self, lanes: Ints) -> Zero:
        return self


@dataclass(frozen=True, slots=True)
class Product:
    """The sum of the products of pairs of tiles, the columns of the left one with the rows of the right one."""

    pairs: tuple[tuple[Tile, Tile], ...]
    shape: tuple[int, ...]

    def at(self, lanes: Ints) -> Product:
        return replace(self, pairs=tuple((left.at(lanes), right.at(lanes)) for left, right in self.pairs))


@dataclass(frozen=True, slots=True)
class Summands:
    """The sum of the elements of `tile` on some ranks: how often those of each rank, a row for each lane."""

    tile: Tile
    times: NDArray[np.int16]

    def at(self, lanes: Ints) -> Summands:
        return Summands(self.tile.at(lanes), self.times[lanes])


@dataclass(frozen=True, slots=True)
class Row:
    """A row times its weight, where its id is one of so many `experts` from `first` on."""

    row: Tile
    weight: Tile
    ids: Tile
    experts: Ints
    first: Ints

    def at(self, lanes: Ints) -> Row:
        row, weight, ids = self.row.at(lanes), self.weight.at(lanes), self.ids.at(lanes)
        return Row(row, weight, ids, self.experts[lanes], self.first[lanes])


@dataclass(frozen=True, slots=True)
class Weighted:
    """The sum of rows."""

    terms: tuple[Row, ...]
    shape: tuple[int, ...]

    def at(self, lanes: Ints) -> Weighted:
        return Weighted(tuple(one.at(lanes) for one in self.terms), self.shape)


@dataclass(frozen=True, slots=True)
class Full:
    """The same number everywhere."""

    number: float
    shape: tuple[int, ...]

    def at(self, lanes: Ints) -> Full:
        return self


@dataclass(frozen=True, slots=True)
class Round:
    """Keys with their values that a fold has taken, in the lanes where it is `done`. Row i of queries sees key j of them where
    0 <= i + ahead - j, and below a `window` other than 0; `plain`: it sees all. `here`: so many keys exist."""

    done: Flags
    keys: Tile
    values: Tile
    ahead: Ints
    here: Ints
    plain: Flags
    window: Ints

    def at(self, lanes: Ints) -> Round:
        keys, values = self.keys.at(lanes), self.values.at(lanes)
        ahead, here = self.ahead[lanes], self.here[lanes]
        return Round(self.done[lanes], keys, values, ahead, here, self.plain[lanes], self.window[lanes])


@dataclass(frozen=True, slots=True)
class Folded:
    """One of the three tiles that a fold over keys and values carries on: number `which`. `numbers`: scale and cap of scores. In
    lanes that have taken nothing yet, `queries` say nothing."""

    which: int
    queries: Tile
    numbers: tuple[float, ...]
    rounds: tuple[Round, ...]

    def at(self, lanes: Ints) -> Folded:
        return replace(self, queries=self.queries.at(lanes), rounds=tuple(one.at(lanes) for one in self.rounds))

    @property
    def begun(self) -> Flags:
        """Lanes that have taken something."""
        found: Flags = np.logical_or.reduce([one.done for one in self.rounds])
        return found

    def empty(self, lanes: int) -> Folded:
        """Of so many lanes, before the first round."""
        first = np.zeros(lanes, np.int64)
        return replace(self, queries=self.queries.at(first), rounds=tuple(_not_done(one, lanes) for one in self.rounds))


@dataclass(frozen=True, slots=True)
class Share:
    """One of the three tiles of the state of a share of the own tokens, number `split`, for `queries` of the merge `out`."""

    which: int
    out: str
    queries: Tile
    split: Ints

    def at(self, lanes: Ints) -> Share:
        return replace(self, queries=self.queries.at(lanes), split=self.split[lanes])


@dataclass(frozen=True, slots=True)
class MergedStates:
    """One of the three tiles of a merge of states, for the elements at `place` of all of `out`: how often each state, a row for
    each lane, in the order of ranks and shares."""

    which: int
    out: str
    place: Tile
    times: NDArray[np.int16]

    def at(self, lanes: Ints) -> MergedStates:
        return replace(self, place=self.place.at(lanes), times=self.times[lanes])


@dataclass(frozen=True, slots=True)
class StateOf:
    """A part of the state of elements `first` .. `end` - 1 that the fold `out` goes over, of some rows of its result."""

    part: str
    out: str
    rows: Tile
    first: Ints
    end: Ints

    def at(self, lanes: Ints) -> StateOf:
        return replace(self, rows=self.rows.at(lanes), first=self.first[lanes], end=self.end[lanes])

    def like(self, other: StateOf) -> bool:
        """Whether it is of the same elements of the same rows."""
        columns = ((self.first, other.first), (self.end, other.end), (self.rows.start[0], other.rows.start[0]))
        return all(a is b or bool((a == b)[self.rows.some].all()) for a, b in columns)


@dataclass(frozen=True, slots=True)
class Place:
    """The number of the place in which a buffer of a rank lies."""

    buffer: str
    owner: Ints

    def at(self, lanes: Ints) -> Place:
        return Place(self.buffer, self.owner[lanes])


@dataclass(frozen=True, slots=True)
class Nothing:
    """No value of the spec. `why`: what is wrong with it, if anything is; else what it is made of has not been found yet."""

    why: str = ""

    def at(self, lanes: Ints) -> Nothing:
        return self


Held = Tile | Zero | Full | Product | Summands | Weighted | Folded | Share | MergedStates | StateOf | Place | Nothing


def merged(where: Flags, there: Held, elsewhere: Held) -> Held:
    """`there` in the lanes of `where`, one after the other, `elsewhere` in the others."""
    if where.all():
        return there
    if not where.any():
        return elsewhere
    if isinstance(there, Nothing) or isinstance(elsewhere, Nothing):
        wrong = [one for one in (there, elsewhere) if isinstance(one, Nothing)]
        return max(wrong, key=lambda one: len(one.why))
    if isinstance(there, Tile) and isinstance(elsewhere, Tile):
        same = (there.term, there.axes, there.pieces == ()) == (elsewhere.term, elsewhere.axes, elsewhere.pieces == ())
        if not same or not all(map(_alike, there.pieces, elsewhere.pieces)):
            return Nothing(f"it holds {there.term} on some ranks or tiles, and {elsewhere.term} on others")

        both = partial(_both, where)
        offset = None
        if there.offset is not None and elsewhere.offset is not None:
            offset = tuple(map(both, there.offset, elsewhere.offset))
        return replace(
            there,
            owner=both(there.owner, elsewhere.owner),
            start=tuple(map(both, there.start, elsewhere.start)),
            extent=tuple(map(both, there.extent, elsewhere.extent)),
            skip=tuple(map(both, there.skip, elsewhere.skip)),
            known=both(there.known, elsewhere.known),
            offset=offset,
        )
    if isinstance(there, Zero | Full) and there == elsewhere:
        return there
    if isinstance(there, Folded) and isinstance(elsewhere, Zero | Full):  # some have not begun
        elsewhere = there.empty(int((~where).sum())) if begins(there, elsewhere) else elsewhere
    elif isinstance(elsewhere, Folded) and isinstance(there, Zero | Full):
        there = elsewhere.empty(int(where.sum())) if begins(elsewhere, there) else there
    if isinstance(there, Folded) and isinstance(elsewhere, Folded):
        return _folded(where, there, elsewhere)
    if isinstance(there, StateOf) and isinstance(elsewhere, StateOf):
        rows = merged(where, there.rows, elsewhere.rows)
        if isinstance(rows, Tile) and (there.part, there.out) == (elsewhere.part, elsewhere.out):
            first, end = (_both(where, *pair) for pair in ((there.first, elsewhere.first), (there.end, elsewhere.end)))
            return replace(there, rows=rows, first=first, end=end)
    return Nothing("branches leave different things in it")


def _both(where: Flags, a: Column, b: Column) -> Column:
    """`a` in the lanes of `where`, `b` in the others."""
    out = np.empty(len(where), a.dtype)
    out[where], out[~where] = a, b
    return out


def _folded(where: Flags, there: Folded, elsewhere: Folded) -> Held:
    """Rounds of the one and of the other, of which one may have more."""
    queries = merged(where, there.queries, elsewhere.queries)
    if not isinstance(queries, Tile) or (there.which, there.numbers) != (elsewhere.which, elsewhere.numbers):
        return Nothing("branches leave different things in it")
    rounds = list[Round]()
    for place in range(max(len(there.rounds), len(elsewhere.rounds))):
        pair = [side.rounds[place] if place < len(side.rounds) else None for side in (there, elsewhere)]
        known = next(one for one in pair if one is not None)
        first, second = (
            one or _not_done(known, int(lanes.sum())) for one, lanes in zip(pair, (where, ~where), strict=True)
        )
        keys, values = merged(where, first.keys, second.keys), merged(where, first.values, second.values)
        if not (isinstance(keys, Tile) and isinstance(values, Tile)):
            return Nothing("branches leave different things in it")
        columns = dict[str, Ints | Flags]()
        for name in ("done", "ahead", "here", "plain", "window"):
            one, other = getattr(first, name), getattr(second, name)
            columns[name] = np.empty(len(where), one.dtype)
            columns[name][where], columns[name][~where] = one, other
        rounds.append(Round(keys=keys, values=values, **columns))  # type: ignore[arg-type]
    return Folded(there.which, queries, there.numbers, tuple(rounds))


def begins(folded: Folded, one: Zero | Full) -> bool:
    """Whether the fold can have begun with it."""
    return isinstance(one, Zero) if folded.which else isinstance(one, Full) and one.number == LEAST_SCORE


def _not_done(like: Round, lanes: int) -> Round:
    """A round of so many lanes, in none of which it is done."""
    first = np.zeros(lanes, np.int64)
    return replace(like.at(first), done=np.zeros(lanes, bool))


def _alike(a: Pieces | None, b: Pieces | None) -> bool:
    return a is b is None or (a is not None and a.like(b))
