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


def cells_of(grid: Grid, starts: list[Ints], stops: list[Ints]) -> tuple[Ints, Ints]:
    """For each cell of each box, the number of the box and of the cell."""
    low = [np.searchsorted(lines, one) for lines, one in zip(grid.lines, starts, strict=True)]
    many = [np.searchsorted(lines, one) - first for lines, one, first in zip(grid.lines, stops, low, strict=True)]
    counts = np.prod(np.stack(many), axis=0)
    box = np.repeat(np.arange(len(counts)), counts)
    rest = np.arange(len(box)) - np.repeat(np.cumsum(counts) - counts, counts)
    cell, step = np.zeros(len(box), np.int64), 1
    for first, length, extent in zip(reversed(low), reversed(many), reversed(grid.shape), strict=True):
        if (length == 1).all():
            cell += first[box] * step
        else:
            rest, place = np.divmod(rest, length[box])
            cell += (first[box] + place) * step
        step *= extent
    return box, cell


def located(first: list[int], key: int) -> tuple[int, int]:
    """Which of several grids, that begin at the keys `first`, has the key, and which cell of it is meant."""
    which = bisect_right(first, key) - 1
    return which, key - first[which]
