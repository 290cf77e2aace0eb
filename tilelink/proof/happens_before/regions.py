"""Boxes of elements as cells of a grid that has just the lines that the boxes need.

Regions of one buffer start and end at few places along each dimension. Between two neighbouring ones of these, elements are
all in the same regions: they are one interval of the grid, and a region is a box of its cells.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from math import prod

import numpy as np

from tilelink.schedule.index import Ints


@dataclass(frozen=True, slots=True)
class Grid:
    """`lines` of each dimension, ascending; the first dimension is the rank."""

    lines: tuple[Ints, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(max(len(one) - 1, 0) for one in self.lines)

    @property
    def size(self) -> int:
        return prod(self.shape)

    def box(self, cell: int) -> tuple[tuple[int, int], ...]:
        """The elements of a cell: from, and up to but not, along each dimension."""
        places = np.unravel_index(cell, self.shape)
        return tuple((int(one[at]), int(one[at + 1])) for one, at in zip(self.lines, places, strict=True))


def grid_of(starts: list[Ints], stops: list[Ints]) -> Grid:
    """The grid for boxes: an array of starts and one of stops for each dimension."""
    return Grid(tuple(np.unique(np.concatenate(both)) for both in zip(starts, stops, strict=True)))


def _spans(grid: Grid, starts: list[Ints], stops: list[Ints]) -> tuple[list[Ints], list[Ints]]:
    """The first interval of each box along each dimension, and how many intervals it has there."""
    low = [np.searchsorted(lines, one) for lines, one in zip(grid.lines, starts, strict=True)]
    many = [np.searchsorted(lines, one) - first for lines, one, first in zip(grid.lines, stops, low, strict=True)]
    return low, many


def sizes_of(grid: Grid, starts: list[Ints], stops: list[Ints]) -> Ints:
    """How many cells each box has."""
    sizes: Ints = np.prod(np.stack(_spans(grid, starts, stops)[1]), axis=0)
    return sizes


def cells_of(grid: Grid, starts: list[Ints], stops: list[Ints]) -> tuple[Ints, Ints]:
    """For each cell of each box, the number of the box and of the cell."""
    low, many = _spans(grid, starts, stops)
    counts = np.prod(np.stack(many), axis=0)
    box = np.repeat(np.arange(len(counts)), counts)
    first, step = np.zeros(len(counts), np.int64), 1
    for one, extent in zip(reversed(low), reversed(grid.shape), strict=True):
        first, step = first + one * step, step * extent
    cell = first[box]
    several = [number for number, length in enumerate(many) if (length != 1).any()]
    if several:
        rest = np.arange(len(box)) - np.repeat(np.cumsum(counts) - counts, counts)
        for number in reversed(several):
            place = rest
            if number != several[0]:
                rest, place = np.divmod(rest, many[number][box])
            cell += place * prod(grid.shape[number + 1 :])
    return box, cell


def located(first: list[int], key: int) -> tuple[int, int]:
    """Which of several grids, that begin at the keys `first`, has the key, and which cell of it is meant."""
    which = bisect_right(first, key) - 1
    return which, key - first[which]
