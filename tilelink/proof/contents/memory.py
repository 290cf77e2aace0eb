"""What lies in buffers: for each cell between two borders of accesses, which value, of which rank, and where in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

import numpy as np

from tilelink.proof.contents.tile import ANY_RANK, Flags, Term, Tile
from tilelink.proof.contents.values import Gather
from tilelink.schedule.index import Ints

UNKNOWN, SEVERAL, EMPTY = 0, -1, -2  # no label, several of them, no cells
_MOST_DIMS = 4  # of a value


@dataclass(eq=False)
class Access:
    """A box of `buffer` on rank `at` for each lane: from `start` on, as far as it lies in the buffer. `version`: how often the
    place has been used before, where places are used several times a call."""

    buffer: str
    at: Ints
    start: tuple[Ints, ...]
    low: tuple[Ints, ...]
    high: tuple[Ints, ...]
    version: Ints
    turn: Ints | None = None  # see `alike`; None where the box is not the image of another one
    cells: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # of all lanes, one behind the other
    many: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # cells of each lane

    def __len__(self) -> int:
        return len(self.at)

    @cached_property
    def sizes(self) -> tuple[Ints, ...]:
        """Elements of the box that lie in the buffer."""
        return tuple(b - a for a, b in zip(self.low, self.high, strict=True))


@dataclass(frozen=True, slots=True)
class View:
    """How a value lies in a buffer: which of its dimensions lies along each dimension of the buffer, None: none does."""

    term: Term
    axes: tuple[int | None, ...]
    dims: int  # of the value


class Labels:
    """Kinds of cells: (view, owner, how far the element of the value is from that of the buffer), from 1 on."""

    def __init__(self) -> None:
        self.views: list[View] = []
        self._numbers: dict[tuple[int, ...], int] = {}
        self._rows: list[tuple[int, ...]] = [(-1,) * (2 + _MOST_DIMS)]
        self._table: Ints | None = None

    def view(self, view: View) -> int:
        if view not in self.views:
            self.views.append(view)
        return self.views.index(view)

    def of(self, view: int, owner: Ints, offset: Iterable[Ints]) -> Ints:
        """The label of each lane."""
        columns = [owner, *offset]
        code = np.zeros(len(owner), np.int64)
        for column in columns:
            if len(column) and (low := column.min()) != (high := column.max()):
                code = code * (int(high) - int(low) + 1) + (column - low)
                code = np.unique(code, return_inverse=True)[1]
        _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
        numbers = [self.number((view, *(int(column[lane]) for column in columns))) for lane in first]
        return np.array(numbers, np.int64)[inverse]

    def number(self, row: tuple[int, ...]) -> int:
        found = self._numbers.get(row)
        if found is None:
            found = self._numbers[row] = len(self._rows)
            self._rows.append(row + (0,) * (2 + _MOST_DIMS - len(row)))
            self._table = None
        return found

    @property
    def table(self) -> Ints:
        if self._table is None:
            self._table = np.array(self._rows, np.int64)
        return self._table


class Memory:
    """The cells of all buffers on all ranks. Borders are those of `accesses`."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], ranks: int, accesses: Iterable[Access]) -> None:
        self.shapes, self.ranks, self.labels = shapes, ranks, Labels()
        self.gathers: tuple[Gather, ...] = ()
        self.all_ranks = ranks  # `ranks` of them are looked at
        self.borders: dict[str, list[Ints]] = {}
        self.versions: dict[str, Ints] = {}
        self.cells: dict[str, Ints] = {}
        self.progress = 0  # cells that have been found
        of: dict[str, list[Access]] = {}
        for access in accesses:
            of.setdefault(access.buffer, []).append(access)
        for name, shape in shapes.items():
            found = of.get(name, [])
            self.borders[name] = [
                _unique([np.array([0, size]), *(one for a in found for one in (a.low[dim], a.high[dim]))], size)
                for dim, size in enumerate(shape)
            ]
            self.versions[name] = _unique(
                [np.zeros(1, np.int64) if not found else found[0].version[:1]] + [one.version for one in found]
            )
            counts = [len(one) - 1 for one in self.borders[name]]
            self.cells[name] = np.zeros(len(self.versions[name]) * ranks * prod(counts), np.int64)
            for access in found:
                self._locate(access, counts)

    def _locate(self, access: Access, counts: list[int]) -> None:
        base = np.searchsorted(self.versions[access.buffer], access.version) * self.ranks + access.at
        first, many = [], []
        for border, low, high in zip(self.borders[access.buffer], access.low, access.high, strict=True):
            a, b = np.searchsorted(border, low), np.searchsorted(border, high)
            first.append(a)
            many.append(np.maximum(b - a, 0))
        total = np.ones(len(access), np.int64)
        for one in many:
            total = total * one
        access.many = total
        if (total == 1).all():
            for a, count in zip(first, counts, strict=True):
                base = base * count + a
            access.cells = base
            return
        lanes = np.repeat(np.arange(len(access)), total)
        rest = np.arange(len(lanes)) - np.repeat(np.cumsum(total) - total, total)
        place = base[lanes]
        inner = total[lanes]
        for a, more, count in zip(first, many, counts, strict=True):
            inner = inner // np.maximum(more[lanes], 1)
            place = place * count + a[lanes] + rest // inner
            rest = rest % inner
        access.cells = place

    def cells_of(self, access: Access) -> Access:
        """Each cell of the boxes, as a box."""
        borders, shape = self.borders[access.buffer], [len(one) - 1 for one in self.borders[access.buffer]]
        lanes = np.repeat(np.arange(len(access)), access.many)
        rest, numbers = access.cells, list[Ints]()
        for count in reversed(shape):
            numbers.insert(0, rest % count)
            rest = rest // count
        low = tuple(border[number] for border, number in zip(borders, numbers, strict=True))
        high = tuple(border[number + 1] for border, number in zip(borders, numbers, strict=True))
        found = Access(access.buffer, access.at[lanes], low, low, high, access.version[lanes])
        found.cells, found.many = access.cells, np.ones(len(lanes), np.int64)
        return found

    def read(self, access: Access) -> Ints:
        """The label of each lane, or UNKNOWN, SEVERAL, EMPTY."""
        found = self.cells[access.buffer][access.cells]
        if len(found) == len(access) and (access.many == 1).all():
            return found
        out = np.full(len(access), EMPTY, np.int64)
        there = access.many > 0
        if there.any():
            edges = (np.cumsum(access.many) - access.many)[there]
            out[there] = _one_of(found, edges)
            for gather in self._gathers_in(access.buffer) if (out == SEVERAL).any() else ():
                one = _one_of(self._gathered(found, gather), edges)
                out[there] = np.where(out[there] == SEVERAL, one, out[there])
        return out

    def _gathers_in(self, buffer: str) -> list[Gather]:
        """All, first those of which a buffer has the name: parts of one source may make several."""
        return sorted(self.gathers, key=lambda one: -len(one.name) * f"{buffer}_".startswith(f"{one.name}_"))

    def _gathered(self, labels: Ints, gather: Gather) -> Ints:
        """Parts of `gather.source` as elements of `gather.value`."""
        each, where = np.unique(labels, return_inverse=True)
        found = each.copy()
        for place in np.flatnonzero(each > UNKNOWN):
            number, owner, *offset = (int(one) for one in self.labels.table[each[place]])
            view = self.labels.views[number]
            if view.term == Term(gather.source) and owner >= 0:
                whole = self.labels.view(replace(view, term=Term(gather.value)))
                offset[gather.dim] += (owner + gather.by) % self.all_ranks * gather.size
                for dim, before in enumerate(gather.cut):
                    offset[dim] -= before
                found[place] = self.labels.number((whole, ANY_RANK, *offset))
        gathered: Ints = found[where.reshape(labels.shape)]
        return gathered

    def write(self, access: Access, labels: Ints, known: Flags) -> Flags:
        """Put `labels` where they are known; lanes in which another one lies there already."""
        lanes = np.repeat(np.arange(len(access)), access.many)
        wrong = np.zeros(len(access), bool)
        chosen = known[lanes]
        place, label = access.cells[chosen], labels[lanes][chosen]
        cells = self.cells[access.buffer]
        before = cells[place]
        free = before == UNKNOWN
        if free.any():
            cells[place[free]] = label[free]
            self.progress += int(free.sum())
        wrong[lanes[chosen][cells[place] != label]] = True
        return wrong

    def _kinds(self, labels: Ints, dims: tuple[int, ...]) -> set[tuple[Term, tuple[int | None, ...], int]]:
        numbers = np.unique(self.labels.table[np.unique(labels[labels > UNKNOWN]), 0])
        views = [self.labels.views[number] for number in numbers]
        return {(view.term, tuple(view.axes[dim] for dim in dims), view.dims) for view in views}

    def tile(self, access: Access, labels: Ints, dims: tuple[int, ...]) -> Tile | str:
        """What lies in the boxes of `access`, as a tile of the dimensions `dims` of the buffer; or why it is no tile."""
        known = (labels > 0) | (labels == EMPTY)
        kinds = self._kinds(labels, dims)
        # some lanes have parts, some what is made of several
        for gather in self._gathers_in(access.buffer) if len(kinds) > 1 else ():
            labels = self._gathered(labels, gather)
            kinds = self._kinds(labels, dims)
        if not kinds:
            return ""
        if len(kinds) > 1:
            return f"different values lie there: {', '.join(sorted(str(term) for term, _, _ in kinds))}"
        rows = self.labels.table[np.maximum(labels, 0)]
        views = [self.labels.views[number] for number in np.unique(rows[:, 0]) if number >= 0]
        ((term, axes, count),) = kinds
        start, extent, skip = [], [], []
        for dim in range(count):
            along = np.full(len(access), -1)
            for number, view in enumerate(self.labels.views):
                if view in views:
                    along[rows[:, 0] == number] = view.axes.index(dim) if dim in view.axes else -1
            first, size, before = (
                rows[:, 2 + dim].copy(),
                np.ones(len(access), np.int64),
                np.zeros(len(access), np.int64),
            )
            for number in np.unique(along[known]):
                if number >= 0:
                    here = along == number
                    first[here] += access.start[number][here]
                    size[here] = (access.high[number] - access.start[number])[here]
                    before[here] = (access.low[number] - access.start[number])[here]
            start.append(first)
            extent.append(size)
            skip.append(before)
        for size in access.sizes:  # an empty box has no elements, whatever lies there
            for one in extent:
                one[(size == 0) | (labels == EMPTY)] = 0
        return Tile(term, axes, rows[:, 1], tuple(start), tuple(extent), tuple(skip), known)


def split(access: Access, parts: int) -> Access | None:
    """The parts of each box along its first dimension, part by part; None where it has none."""
    size = access.sizes[0]
    if (size % parts != 0).any() or any((a > b).any() for a, b in zip(access.low, access.start, strict=True)):
        return None
    lanes: Ints = np.repeat(np.arange(len(access)), parts)
    number: Ints = np.tile(np.arange(parts), len(access))
    rows: Ints = size[lanes] // parts
    first: Ints = access.low[0][lanes] + number * rows
    low = (first, *(one[lanes] for one in access.low[1:]))
    high = (first + rows, *(one[lanes] for one in access.high[1:]))
    turn = None if access.turn is None else access.turn[lanes]
    version: Ints = access.version[lanes]
    return Access(access.buffer, access.at[lanes], low, low, high, version, turn)


def _one_of(labels: Ints, edges: Ints) -> Ints:
    """Of the labels from each edge to the next one: UNKNOWN if one is, SEVERAL if they differ, or the one that all are."""
    least, most = np.minimum.reduceat(labels, edges), np.maximum.reduceat(labels, edges)
    return np.where(least == UNKNOWN, UNKNOWN, np.where(least == most, least, SEVERAL))


def _unique(columns: list[Ints], most: int | None = None) -> Ints:
    found = np.unique(np.concatenate([np.asarray(one, np.int64).ravel() for one in columns]))
    return found if most is None else found[(found >= 0) & (found <= most)]
