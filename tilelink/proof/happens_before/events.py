"""All rows as one table of events, sorted by program and place in it, and what each event is a part of.

Between two waits a program is one *segment*: it knows the same everywhere in it. The *time* of an event is the number of the
next raise of its program; who knows that raise knows the event. A *run* is a program in one call.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from tilelink.ir.enums import Protocol
from tilelink.proof.happens_before.refuted import Place
from tilelink.proof.happens_before.regions import Grid, cells_of, grid_of, located, sizes_of
from tilelink.proof.happens_before.rows import EVERYTHING, Expanded, Kind, Rows
from tilelink.proof.happens_before.turns import STILL
from tilelink.schedule.index import Ints


@dataclass(frozen=True, slots=True)
class _Words:
    """A signal, or what says of the cells of a buffer that they have come, with keys from `first` on."""

    name: str
    first: int
    grid: Grid | None  # none: a signal


@dataclass(frozen=True, slots=True)
class Boxes:
    """What of a buffer is accessed, as seen from the first ranks, the rank being the first dimension. The cells of `grid` are
    elements that are all in the same boxes. Box i is that of the accesses with key `first` + i."""

    name: str
    first: int
    grid: Grid
    starts: list[Ints]
    stops: list[Ints]

    def cells(self, boxes: Ints) -> tuple[Ints, Ints]:
        """For each cell of each of these boxes, the number of the box among them and of the cell."""
        return cells_of(self.grid, [one[boxes] for one in self.starts], [one[boxes] for one in self.stops])

    def cell_name(self, cell: int) -> str:
        return _named(self.name, self.grid, cell)


def _named(name: str, grid: Grid, cell: int) -> str:
    (owner, _), *box = grid.box(cell)
    return f"{name}[{', '.join(str(a) if b == a + 1 else f'{a} : +{b - a}' for a, b in box)}]@{owner}"


def _sorted(columns: tuple[Ints, ...]) -> tuple[Ints, NDArray[np.bool_]]:
    """The order that sorts combinations of values, equal ones as they stand, and where in it another one begins."""
    by = np.lexsort(columns)
    new = np.ones(len(by), bool)
    new[1:] = np.logical_or.reduce([one[by][1:] != one[by][:-1] for one in columns])
    return by, new


def sorting(numbers: Ints) -> Ints:
    """The order that sorts numbers which are not negative, equal ones as they stand. Numbers of 16 bits are sorted fast."""
    small = not len(numbers) or int(numbers.max()) < 1 << 16
    return np.argsort(numbers.astype(np.uint16) if small else numbers, kind="stable")


def grouped(*columns: Ints) -> tuple[Ints, Ints]:
    """Where each combination of values stands first, and how often it stands there."""
    by, new = _sorted(columns)
    begins = np.flatnonzero(new)
    return by[begins], np.diff(np.append(begins, len(by)))


def numbered(*columns: Ints) -> tuple[Ints, Ints]:
    """Where each combination of values stands first, and the number of the one at each place."""
    by, new = _sorted(columns)
    numbers = np.empty(len(by), np.int64)
    numbers[by] = np.cumsum(new) - 1
    return by[new], numbers


class Events:
    """Columns: `key` is a word, or the box of an access; `turn`: of the memory, from the first ranks; `row`, `lane`: where
    it comes from. `size`: how many events there are, of which an access of several cells is several."""

    def __init__(self, plan: Expanded) -> None:
        self.plan, self.calls, self.width = plan, plan.calls, len(plan.programs)
        self.ranks, self.period = plan.schedule.num_ranks, plan.turns.period
        self.runs = self.period * self.width * self.calls
        self.words: list[_Words] = []
        self.boxes: list[Boxes] = []
        self.size = 0
        self._columns: list[tuple[Ints, ...]] = []
        self._gather()
        columns = [np.concatenate(one) for one in zip(*self._columns, strict=True)] if self._columns else []
        run, order, kind, key, value, many, turn, row, lane = columns or [np.zeros(0, np.int64)] * 9
        by = np.argsort(run * (int(order.max(initial=0)) + 1) + order, kind="stable")
        self.run, self.kind, self.key, self.value, self.many = (one[by] for one in (run, kind, key, value, many))
        self.turn, self.row, self.lane = turn[by], row[by], lane[by]
        self.call = self.run % self.calls + 1
        self._time()
        self._segments()
        self._readers()

    # ---- keys ----
    def _gather(self) -> None:
        protocols = {one.name: one.protocol for one in self.plan.schedule.buffers}
        by_name: dict[str, list[tuple[int, Rows]]] = {}
        for number, rows in enumerate(self.plan.rows):
            if len(rows):
                by_name.setdefault(rows.name, []).append((number, rows))
        self.keys = 0  # of words
        for name, some in by_name.items():
            if name in protocols:
                self._boxes(name, protocols[name], some)
            else:
                self._words(name, some)

    def _folded(self, rows: Rows) -> tuple[Ints, list[Ints], list[Ints]]:
        """The turn of the memory, and the place there as seen from the first ranks, the rank being the first dimension."""
        owner, turn = rows.owner % self.period, rows.owner // self.period
        shape = self.plan.shapes[rows.name]
        turns, back = self.plan.turns, self.plan.turns.back(turn)
        stops = rows.stop or tuple(one + 1 for one in rows.start)
        start = [
            a if by == STILL else turns.place(a, b - a, by, extent, back)
            for a, b, by, extent in zip(rows.start, stops, turns.along(rows.name, len(shape)), shape, strict=True)
        ]
        stop = [low + b - a for low, a, b in zip(start, rows.start, rows.stop, strict=True)] if rows.stop else []
        return turn, [owner, *start], [owner + 1, *stop]

    def _put(self, rows: Rows, number: int, kind: Kind, key: Ints, turn: Ints, lane: Ints, later: int = 0) -> None:
        run = (rows.rank * self.width + rows.program) * self.calls + rows.call - 1
        none = np.zeros(len(key), np.int64)
        value = rows.value[lane] if len(rows.value) else rows.call[lane]
        many = rows.many[lane] if len(rows.many) else none + 1
        order = rows.order[lane] + later
        self._columns.append((run[lane], order, none + kind, key, value, many, turn[lane], none + number, lane))

    def _words(self, name: str, some: list[tuple[int, Rows]]) -> None:
        shape = self.plan.shapes[name]
        for number, rows in some:
            turn, start, _ = self._folded(rows)
            key = start[0]
            for one, extent in zip(start[1:], shape, strict=True):
                key = key * extent + one
            self._put(rows, number, rows.kind, key + self.keys, turn, np.arange(len(rows)))
            self.size += len(rows)
        self.words.append(_Words(name, self.keys, None))
        self.keys += self.period * prod(shape)

    def _boxes(self, name: str, protocol: Protocol, some: list[tuple[int, Rows]]) -> None:
        folded = [self._folded(rows) for _, rows in some]
        starts, stops = (
            [np.concatenate(one) for one in zip(*(box[side] for box in folded), strict=True)] for side in (1, 2)
        )
        first = self.boxes[-1].first + len(self.boxes[-1].starts[0]) if self.boxes else 0
        distinct, number_of = numbered(*starts, *stops)
        starts, stops = ([one[distinct] for one in ends] for ends in (starts, stops))
        boxes = Boxes(name, first, grid_of(starts, stops), starts, stops)
        self.boxes.append(boxes)
        done = 0
        for (number, rows), (turn, start, stop) in zip(some, folded, strict=True):
            lanes = np.arange(len(rows))
            keys = first + number_of[done : done + len(rows)]
            self._put(rows, number, rows.kind, keys, turn, lanes)
            lamport = protocol is Protocol.LAMPORT and rows.kind is Kind.READ and not rows.bytes_alone
            if lamport:
                self._put(rows, number, Kind.EMPTY, keys, turn, lanes, 1)
            self.size += int(sizes_of(boxes.grid, start, stop).sum()) * (2 if lamport else 1)
            done += len(rows)
            if protocol is Protocol.SIMPLE or rows.bytes_alone:
                continue
            lane, cell = cells_of(boxes.grid, start, stop)
            kind, later = (Kind.WAIT, -1) if rows.kind is Kind.READ else (Kind.SET, 1)
            self._put(rows, number, kind, cell + self.keys, turn, lane, later)
            self.size += len(lane)
        if protocol is not Protocol.SIMPLE:
            self.words.append(_Words(name, self.keys, boxes.grid))
            self.keys += boxes.grid.size

    # ---- time and knowledge ----
    def _time(self) -> None:
        self.raises = (self.kind == Kind.ADD) | (self.kind == Kind.SET)
        total = np.bincount(self.run[self.raises], minlength=self.runs).reshape(-1, self.calls)
        of_others = np.cumsum(total.sum(1)) - total.sum(1)  # raises of the programs before, in all calls
        before = np.cumsum(self.raises) - self.raises - of_others[self.run // self.calls]
        self.time = before + self.call  # the end of a call counts as a raise
        follows = np.zeros(len(self.run), bool)  # right behind another raise of the run: it tells of nothing new
        follows[1:] = self.raises[1:] & self.raises[:-1] & (self.run[1:] == self.run[:-1])
        here = np.arange(len(self.run))
        self.since = self.time[np.maximum.accumulate(np.where(follows, 0, here))] if len(here) else self.time
        self.end_time: list[int] = (np.cumsum(total, 1) + np.arange(1, self.calls + 1)).ravel().tolist()

    def _segments(self) -> None:
        """The first wait of a run for a value of a word opens a segment; later ones learn nothing new."""
        waits = np.flatnonzero(self.kind == Kind.WAIT)
        kept = self.kind == Kind.BLOCK
        kept[waits[grouped(self.run[waits], self.key[waits], self.value[waits])[0]]] = True
        self.waits = kept
        self.segment = self.run + np.cumsum(kept)
        opened = np.bincount(self.run[kept], minlength=self.runs)
        self.first_segment = np.arange(self.runs) + np.cumsum(opened) - opened
        self.segments = self.runs + int(kept.sum())

    def _readers(self) -> None:
        """`knows`: the segment whose knowledge an event has; of a load, that behind the latest wait that covers it."""
        self.knows = self.segment.copy()
        waits, rows = np.flatnonzero(self.kind == Kind.WAIT), self.plan.rows
        for name in {one.name for one in rows if one.floats}:
            covering = np.array([one.covers == EVERYTHING or name in one.covers for one in rows], bool)
            found = waits[covering[self.row[waits]]]
            of_name = np.array([one.floats and one.name == name and one.kind is Kind.READ for one in rows], bool)
            loads = np.flatnonzero(of_name[self.row])
            latest = np.searchsorted(found, loads) - 1
            wait = np.where(latest >= 0, np.append(found, 0)[latest], -1)
            own = (wait >= 0) & (self.run[np.maximum(wait, 0)] == self.run[loads])
            self.knows[loads] = np.where(own, self.segment[np.maximum(wait, 0)], self.first_segment[self.run[loads]])

    # ---- facts ----
    def place(self, event: int) -> Place:
        """What an event is, seen from the ranks whose memory the first ranks have."""
        return self.plan.place(self.plan.rows[int(self.row[event])], int(self.lane[event]), int(self.turn[event]))

    def key_name(self, key: int) -> str:
        """A word, in elements if it is that of packets."""
        which, cell = located([one.first for one in self.words], key)
        one = self.words[which]
        if one.grid is not None:
            return _named(one.name, one.grid, cell)
        word = np.unravel_index(cell, (self.period, *self.plan.shapes[one.name]))
        return f"{one.name}[{', '.join(str(place) for place in word[1:])}]@{word[0]}"
