"""Shadow memory: for each cell of memory, the accesses with which a later access may be in conflict.

A cell is at most 4 bytes, and as small as the smallest element that was accessed in its region. It holds the number of an
interned *state*: a set of `Record`s. An access maps the few distinct numbers of the cells it touches to new ones; what it
does to a state is remembered in its `Entry`, so that most accesses take one look-up, whatever their size.

A record leaves a state when a later access of the cell comes after it and is in conflict with all that it would be in
conflict with: whoever comes after the later one comes after it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tilelink.emulator.events import Access, Kind, Scope, Via
    from tilelink.emulator.memory import Buffer
    from tilelink.emulator.place import Place
    from tilelink.emulator.races.clocks import Agent, Clock, TaskClocks

_CELL_BYTES = 4

Cells = int | slice | NDArray[np.int64]


class Role(IntEnum):
    """What an access can be in conflict with.

    Signals and polls are indivisible, and in conflict with data; with each other only where a scope is too narrow. A put without
    a signal, of what atomics have stored, is made of words of 8 bytes, each of which is whole and may say of which call it is:
    with words it is in no conflict, whenever it reads and lands, but with data. Any other put is data.
    """

    READ = 0
    WRITE = 1
    POLL = 2  # an atomic or volatile read of a word
    SIGNAL = 3  # an atomic write of a word
    PUT = 4  # a write of words by a put
    TAKEN = 5  # a read of words that are put

    @property
    def indivisible(self) -> bool:
        return self in (Role.POLL, Role.SIGNAL)

    def conflicts(self, other: Role) -> bool:
        return other in _CONFLICTS[self]

    def replaces(self, other: Role) -> bool:
        """Whether every role in conflict with `other` is in conflict with this one, too."""
        return _CONFLICTS[other] <= _CONFLICTS[self]


_CONFLICTS = {
    Role.READ: {Role.WRITE, Role.SIGNAL, Role.PUT},
    Role.WRITE: set(Role),
    Role.POLL: {Role.WRITE},
    Role.SIGNAL: {Role.READ, Role.WRITE},
    Role.PUT: {Role.READ, Role.WRITE},
    Role.TAKEN: {Role.WRITE},
}


@dataclass(slots=True, eq=False)
class Record:
    """The accesses of one agent at one time, from one place and in one role."""

    number: int  # of the event of the first of them
    task: TaskClocks
    agent: Agent
    component: int
    time: int
    role: Role
    kind: Kind
    via: Via
    place: Place
    scope: Scope  # to whom a signal or a poll is indivisible
    call: int  # the operator call, as far as that can be told


@dataclass(slots=True, eq=False)
class Entry:
    """A record and what it makes of a state, by the number of the state."""

    record: Record
    after: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Present:
    """The entries of one agent at one time, by what tells its accesses apart."""

    task: TaskClocks
    time: int
    entries: dict[int, Entry] = field(default_factory=dict)


class Entries:
    """Entries of the accesses that agents have at their present times. Bounded: an older time of a component is forgotten."""

    def __init__(self) -> None:
        self._present: dict[int, _Present] = {}  # by component

    def of(self, task: TaskClocks, agent: Agent) -> dict[int, Entry]:
        """Those of `agent` at its present time, to look up and to add to."""
        component, time = task.component(agent), task.times[agent]
        found = self._present.get(component)
        if found is None or found.time != time or found.task is not task:
            found = self._present[component] = _Present(task, time)
        return found.entries

    def forget_states(self) -> None:
        """The numbers of states have changed: forget what an access makes of each."""
        for present in self._present.values():
            for entry in present.entries.values():
                entry.after.clear()


class States:
    """Sets of records by number; 0 is the empty one."""

    def __init__(self) -> None:
        self.sets: list[tuple[Record, ...]] = [()]
        self._numbers: dict[tuple[Record, ...], int] = {(): 0}

    def number(self, records: tuple[Record, ...]) -> int:
        found = self._numbers.get(records)
        if found is None:
            found = self._numbers[records] = len(self.sets)
            self.sets.append(records)
        return found


@dataclass(slots=True, eq=False)
class Region:
    """Contiguous memory. `words` holds what was released through words in it: by address, then by rank and scope."""

    start: int
    end: int
    shift: int  # a cell is 1 << shift bytes
    states: NDArray[np.int32]
    buffer: Buffer | None
    words: dict[int, dict[tuple[int, Scope], Clock]] = field(default_factory=dict)

    def cells(self, access: Access) -> Cells:
        """The touched cells: an index, a slice or an array of indices; makes the cells smaller if it has to."""
        if access.addresses.size == 1:
            self._refine((access.start - self.start) | (access.end - self.start))
            first = (access.start - self.start) >> self.shift
            behind = (access.end - self.start) >> self.shift
            return first if behind == first + 1 else slice(first, behind)
        self._refine((access.start - self.start) | access.item_bytes)
        index: NDArray[np.int64] = (access.addresses.view(np.int64) - self.start) >> self.shift
        parts = access.item_bytes >> self.shift
        return index if parts == 1 else np.add.outer(index, np.arange(parts)).ravel()

    def address(self, cells: Cells, position: int) -> int:
        """Of the `position`-th of `cells`."""
        match cells:
            case int():
                cell = cells
            case slice():
                cell = cells.start + position
            case _:
                cell = int(cells[position])
        return self.start + (cell << self.shift)

    def touched_words(self, access: Access) -> list[int]:
        """Addresses of words that something was released through, among those touched."""
        if not self.words:
            return []
        if access.addresses.size == 1:
            if access.start in self.words:
                return [access.start]
            return [word for word in self.words if access.start <= word < access.end]
        return [address for address in access.addresses.tolist() if address in self.words]

    def _refine(self, offsets: int) -> None:
        """Make cells so small that all offsets with these bits are at the start of one."""
        while offsets & ((1 << self.shift) - 1):
            self.shift -= 1
            self.states = np.repeat(self.states, 2)


class Memory:
    """The regions touched so far; they do not overlap. One that overlaps others swallows them."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._regions: dict[int, Region] = {}
        self._last: Region | None = None

    def region(self, access: Access) -> Region:
        """The region of an access that lies in one buffer."""
        last = self._last
        if last is not None and last.start <= access.start and access.end <= last.end:
            return last
        region = self._last = self._find(access.start, access.end) or self._add(access)
        region.buffer = region.buffer or access.buffer  # what a stream touched first may get a name later
        return region

    def regions(self) -> list[Region]:
        return list(self._regions.values())

    def _find(self, start: int, end: int) -> Region | None:
        place = bisect_right(self._starts, start) - 1
        if place < 0:
            return None
        region = self._regions[self._starts[place]]
        return region if end <= region.end else None

    def _add(self, access: Access) -> Region:
        buffer = access.buffer
        start, end = (buffer.start, buffer.end) if buffer else (access.start, access.end)
        behind = bisect_left(self._starts, end)
        ahead = max(0, bisect_right(self._starts, start) - 1)
        old = [self._regions[place] for place in self._starts[ahead:behind] if self._regions[place].end > start]
        begin, last = min([start, *(r.start for r in old)]), max([end, *(r.end for r in old)])
        sizes = (access.item_bytes, start - begin, last - begin, *(1 << r.shift for r in old))
        shift = min(_lowest_bit(size) for size in (*sizes, *(r.start - begin for r in old), _CELL_BYTES))
        region = Region(begin, last, shift, np.zeros((last - begin) >> shift, np.int32), buffer)
        for swallowed in old:
            first, factor = (swallowed.start - begin) >> shift, 1 << (swallowed.shift - shift)
            spread = np.repeat(swallowed.states, factor)
            region.states[first : first + spread.size] = spread
            region.words |= swallowed.words
            region.buffer = region.buffer or swallowed.buffer
            self._starts.remove(swallowed.start)
            del self._regions[swallowed.start]
        insort(self._starts, begin)
        self._regions[begin] = region
        assert all(self._regions[one].end <= other for one, other in pairwise(self._starts[max(0, ahead - 1) :]))
        return region


def _lowest_bit(size: int) -> int:
    """Index of the lowest bit that is set; that of a whole cell for 0."""
    return (size & -size).bit_length() - 1 if size else _CELL_BYTES.bit_length() - 1
