"""What a program of a kernel does to global memory, in its order; memory in which addresses are known and data are not.

A trace is a list of events. The same program is traced as it is written (the IR before any pass) and as it is compiled; values
that a peer or another program would provide come from a `Memory` that both traces share, so that both take the same branches.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

STORAGE_BITS = 44  # of an address: what lies below is an offset in one allocation
_ENOUGH = 1 << 20  # what a word holds that nobody compares with one number: later than any call, more than any count
_ANY_INT = 6  # of data that are integers: the number of the call, say


class Kind(Enum):
    """An event. Whoever reads after a WAIT, or wrote before a RAISE, does so in this order for other programs and ranks."""

    WAIT = "wait"  # an acquiring access of a word
    RAISE = "notify"  # a releasing one
    BOTH = "count"  # both at once, as where programs count up
    WORD = "word"  # a relaxed access of a word
    LOAD = "load"
    STORE = "store"
    FENCE = "proxy fence"
    BARRIER = "barrier"
    DRAIN = "wait for bulk stores"

    @property
    def acquires(self) -> bool:
        return self in (Kind.WAIT, Kind.BOTH)

    @property
    def releases(self) -> bool:
        return self in (Kind.RAISE, Kind.BOTH)


@dataclass(frozen=True, slots=True)
class Box:
    """Elements that a descriptor names: `rows` x `cols` of `size` bytes from `first`, a row each `stride` bytes of a tensor whose
    first element lies at `base`."""

    base: int
    stride: int
    size: int
    row: int
    col: int
    rows: int
    cols: int

    @property
    def first(self) -> int:
        return self.base + self.row * self.stride + self.col * self.size

    def covers(self, points: np.ndarray) -> np.ndarray:
        row, rest = np.divmod(points - self.base, self.stride)
        col = rest // self.size
        inside = (row >= self.row) & (row < self.row + self.rows)
        return points[inside & (col >= self.col) & (col < self.col + self.cols)]


@dataclass(frozen=True, slots=True)
class Event:
    """`where`: the addresses that are touched, or the box of a descriptor; `text`: the operation, as it is written there."""

    kind: Kind
    text: str
    where: np.ndarray | Box | None = None
    descriptor: bool = False  # through the asynchronous proxy

    @property
    def point(self) -> int:
        """One address that stands for all."""
        if self.where is None:
            return 0
        return self.where.first if isinstance(self.where, Box) else int(self.where.flat[0])

    def covered(self, points: np.ndarray) -> np.ndarray:
        """Those of `points`, which are sorted, that are touched."""
        if isinstance(self.where, Box):
            return self.where.covers(points)
        if self.where is None:
            return points[:0]
        return points[np.isin(points, self.where)]


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A tensor that is loaded and stored by tiles: `block` elements of `size` bytes, rows `stride` bytes apart."""

    base: int
    stride: int
    size: int
    block: tuple[int, int]

    def box(self, row: int, col: int, block: tuple[int, int] | None = None) -> Box:
        rows, cols = block or self.block
        return Box(self.base, self.stride, self.size, row, col, rows, cols)


@dataclass(slots=True)
class Memory:
    """Allocations by number. `constant` are those that nobody writes during a call; `tables` hold the addresses of one
    allocation on all ranks. Words take the values that let their readers go on; `seen` has them for the trace after this one.
    """

    constant: set[int] = field(default_factory=set)
    tables: dict[int, tuple[int, ...]] = field(default_factory=dict)
    seen: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    taken: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def is_constant(self, where: np.ndarray | Box) -> bool:
        first = where.first if isinstance(where, Box) else int(where.flat[0])
        number = first >> STORAGE_BITS
        return number in self.constant or number in self.tables

    def load(self, where: np.ndarray) -> np.ndarray:
        """Integers at these addresses."""
        numbers = where >> STORAGE_BITS
        found = np.full(where.shape, _ANY_INT, np.int64)
        for number in np.unique(numbers):
            table = self.tables.get(int(number))
            if table is not None:
                here = numbers == number
                index = (where[here] & ((1 << STORAGE_BITS) - 1)) // 8
                found[here] = np.array(table)[np.minimum(index, len(table) - 1)]
        return found

    def again(self) -> Memory:
        """The same memory for another trace, in which words have the values of this one."""
        return Memory(self.constant, self.tables, self.seen)

    def next_word(self, address: int) -> tuple[int, bool]:
        """(value, whether an earlier trace has set it) of the word for the next access of it."""
        number = self.taken[address]
        self.taken[address] += 1
        known = self.seen.get(address, [])
        if number < len(known):
            return known[number], True
        self.seen[address].append(_ENOUGH)
        return _ENOUGH, False

    def set_word(self, address: int, number: int, value: int) -> None:
        self.seen[address][number] = value
