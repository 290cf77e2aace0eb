"""What is known of each program of each rank: how many of its raises. Of most ranks, most clocks know one of a few things. So a
*row* holds what is known of the programs of a rank, each once, and a *column* the number of a row for each rank.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tilelink.proof.happens_before.added import AddedUp, Column, Made, Told
from tilelink.proof.happens_before.turns import Turns
from tilelink.schedule.index import Ints

Row = NDArray[np.signedinteger]

FEW = 16  # rows, which are joined as they are, and not each pair of them once


class Columns(AddedUp):
    def __init__(self, turns: Turns, width: int, most: int, made: Sequence[Made] = ()) -> None:
        """`width`: programs of a rank, `most`: the latest time."""
        super().__init__(turns, made)
        self.width = width
        self._rows: Row = np.zeros((FEW, width), np.int16 if most < 1 << 15 else np.int64)
        self._row_of: dict[bytes, int] = {self._rows[0].tobytes(): 0}
        self._joined: dict[tuple[int, int], int] = {}  # a few at a time
        self._pairs = _Pairs()  # many at a time
        self._raised: dict[tuple[int, int, int], int] = {}

    def values(self, column: Column) -> Row:
        """What is known of all programs, in the order of ranks."""
        return self._rows[column].reshape(-1)

    def known(self, column: Column, programs: Ints, times: Ints) -> NDArray[np.bool_]:
        """Whether each of these programs is known at its time."""
        ranks, places = np.divmod(programs, self.width)
        found: NDArray[np.bool_] = self._rows[column[ranks], places] >= times
        return found

    # ---- rows ----
    def _row(self, row: Row) -> int:
        key = row.tobytes()
        found = self._row_of.get(key)
        if found is None:
            found = self._row_of[key] = len(self._row_of)
            if found == len(self._rows):
                self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
            self._rows[found] = row
        return found

    def _join(self, one: int, other: int) -> int:
        pair = (one, other) if one < other else (other, one)
        found = self._joined.get(pair)
        if found is None:
            found = self._joined[pair] = self._row(np.maximum(self._rows[one], self._rows[other]))
        return found

    def _raise(self, row: int, place: int, time: int) -> int:
        """The row with one more program."""
        key = row, place, time
        found = self._raised.get(key)
        if found is None:
            new = self._rows[row].copy()
            new[place] = max(int(new[place]), time)
            found = self._raised[key] = self._row(new)
        return found

    # ---- columns ----
    def maximum(self, one: Column, other: Column) -> Column:
        where = np.flatnonzero(one != other)
        if not len(where):
            return one
        new, a, b = one.copy(), one[where], other[where]
        if len(where) <= FEW:
            for at, left, right in zip(where.tolist(), a.tolist(), b.tolist(), strict=True):
                new[at] = self._join(left, right)
            return new
        pairs = np.minimum(a, b).astype(np.int64) << 32 | np.maximum(a, b)
        joined = self._pairs.values(pairs)
        missing = np.flatnonzero(joined < 0)
        if len(missing):
            some, which = np.unique(pairs[missing], return_inverse=True)
            made = self._join_all(some >> 32, some & 0xFFFFFFFF)
            self._pairs.put(some, made)
            joined[missing] = made[which]
        new[where] = joined
        return new

    def _join_all(self, a: Ints, b: Ints) -> Column:
        """The joins of rows, of which one most often knows all that the other one does."""
        left, right = self._rows[a], self._rows[b]
        rows = np.maximum(left, right)
        made = np.where((rows == left).all(1), a, np.where((rows == right).all(1), b, -1)).astype(np.int32)
        for new in np.flatnonzero(made < 0).tolist():
            made[new] = self._row(rows[new])
        return made

    def learned(self, column: Column, clocks: list[int]) -> Column:
        """The raises at once, as most of their makers knew the same, seen from other ranks. Who knows a raise knows what its
        makers knew, so those are skipped."""
        new, raises = list[Told](), list[tuple[Told, Ints]]()
        for told in self.told(clocks):
            known = self.known(column, told.programs, told.times)
            if not known.all():
                new.append(told)
                raises.append((told, told.of if len(told.of) == 1 else told.of[~known]))
        if not new:
            return column
        column = self.joined(column, raises)
        programs, times = ([getattr(one, name) for one in new] for name in ("programs", "times"))
        return self.having(column, np.concatenate(programs), np.concatenate(times))

    def having(self, column: Column, programs: Ints, times: Ints) -> Column:
        """The column that has these programs as well."""
        new = column.copy()
        if len(programs) <= FEW:
            for program, time in zip(programs.tolist(), times.tolist(), strict=True):
                rank, place = divmod(program, self.width)
                new[rank] = self._raise(int(new[rank]), place, time)
            return new
        by = np.argsort(programs, kind="stable")
        ranks, places = np.divmod(programs[by], self.width)
        for some in np.split(np.arange(len(by)), np.flatnonzero(np.diff(ranks)) + 1):
            rank, row = ranks[some[0]], self._rows[new[ranks[some[0]]]].copy()
            np.maximum.at(row, places[some], times[by][some].astype(row.dtype))
            new[rank] = self._row(row)
        return new


_EMPTY = -1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing


class _Pairs:
    """A hash table from numbers that are not negative to numbers, which is asked for many at once. Open addressing, at most half
    full."""

    def __init__(self) -> None:
        self._bits, self._many = 10, 0
        self._keys: Ints = np.full(1 << self._bits, _EMPTY)
        self._found: Column = np.full(1 << self._bits, _EMPTY, np.int32)

    def _places(self, keys: Ints) -> Ints:
        """Where each key is, or is to be."""
        mask = len(self._keys) - 1
        places = ((keys.astype(np.uint64) * _GOLDEN) >> np.uint64(64 - self._bits)).astype(np.int64)
        left = np.flatnonzero((self._keys[places] != keys) & (self._keys[places] != _EMPTY))
        while len(left):
            places[left] = (places[left] + 1) & mask
            there = self._keys[places[left]]
            left = left[(there != keys[left]) & (there != _EMPTY)]
        return places

    def values(self, keys: Ints) -> Column:
        """-1 where there is none."""
        return self._found[self._places(keys)]

    def put(self, keys: Ints, values: Column) -> None:
        """Distinct keys that are not there."""
        while 2 * (self._many + len(keys)) > len(self._keys):
            self._grow()
        self._many += len(keys)
        while len(keys):
            places = self._places(keys)
            _, first = np.unique(places, return_index=True)  # of several for one place the first has it
            self._keys[places[first]], self._found[places[first]] = keys[first], values[first]
            rest = np.ones(len(keys), bool)
            rest[first] = False
            keys, values = keys[rest], values[rest]

    def _grow(self) -> None:
        there = self._keys != _EMPTY
        keys, found = self._keys[there], self._found[there]
        self._bits, self._many = self._bits + 1, 0
        self._keys = np.full(1 << self._bits, _EMPTY)
        self._found = np.full(1 << self._bits, _EMPTY, np.int32)
        self.put(keys, found)
