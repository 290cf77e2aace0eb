"""What clocks that are made of other clocks come to: a column each, which is added up when it is asked for.

A column has a place for each rank. It is seen from another rank by a turn, and two of them are joined by their maximum, whatever
that is of what they hold.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilelink.proof.happens_before.turns import Turns
from tilelink.schedule.index import Ints

Column = NDArray[np.int32]

IN_A_ROW = 64  # clocks, each of which adds to the one before: one of so many is kept added up


def latest(programs: Ints, times: Ints) -> dict[int, int]:
    """By program, the latest time."""
    found = dict[int, int]()
    for program, time in zip(programs.tolist(), times.tolist(), strict=True):
        if found.get(program, -1) < time:
            found[program] = time
    return found


@dataclass(eq=False)  # not frozen: a walk makes thousands
class Told:
    """Raises of a word, as its owner sees them: `clocks`, to be turned by `turns`, are what raisers knew.

    Raise `of` was made by `programs` at their `times`. Who knows a program at its time in `since` knows all that this raise
    tells of it: raises follow each other from then on.
    """

    clocks: Ints
    turns: Ints
    of: Ints
    programs: Ints
    times: Ints
    since: Ints

    @cached_property
    def by(self) -> frozenset[int]:
        """The clocks, each once."""
        return frozenset(self.clocks.tolist())

    @cached_property
    def heard(self) -> dict[int, int]:
        return latest(self.programs, self.times)

    def pairs(self, some: Ints) -> Iterator[tuple[int, list[int]]]:
        """The clocks of some raises, and the turns of each, ascending."""
        if len(self.clocks) == 1 or len(some) == 1:
            one = some[0]
            yield self.clocks.item(one), [self.turns.item(one)]
            return
        turns: dict[int, list[int]] = {}
        for clock, turn in sorted(set(zip(self.clocks[some].tolist(), self.turns[some].tolist(), strict=True))):
            turns.setdefault(clock, []).append(turn)
        yield from turns.items()


class Made(NamedTuple):
    """What a clock is made of: other clocks, and raises."""

    of: tuple[int, ...]
    told: Told | None


class AddedUp(ABC):
    """A kind of columns, and those of the clocks that are added up. `made`: what each clock is made of, which grows."""

    def __init__(self, turns: Turns, made: Sequence[Made]) -> None:
        self.turns, self.made = turns, made
        self.of: dict[int, Column] = {0: np.zeros(turns.ranks, np.int32)}
        self._order: dict[int, Ints] = {}

    @abstractmethod
    def maximum(self, one: Column, other: Column) -> Column: ...

    @abstractmethod
    def learned(self, column: Column, clocks: list[int]) -> Column:
        """The column, and what was learned at these clocks. The clocks of their raises are added up."""

    def told(self, clocks: list[int]) -> list[Told]:
        """The raises that were learned of at these clocks, each once."""
        return [*{id(told): told for one in clocks if (told := self.made[one].told) is not None}.values()]

    def joined(self, column: Column, raises: Iterable[tuple[Told, Ints]]) -> Column:
        """The column, and what those knew who made some of the raises of each word."""
        turns: dict[int, set[int]] = {}
        for told, some in raises:
            if len(told.clocks):
                for clock, those in told.pairs(some):
                    turns.setdefault(clock, set()).update(those)
        return self.all([column, *(self.seen(self.of[clock], sorted(those)) for clock, those in turns.items())])

    def all(self, columns: Iterable[Column]) -> Column:
        return reduce(self.maximum, columns)

    # ---- adding up ----
    def __getitem__(self, clock: int) -> Column:
        """A clock is made of earlier ones, so that this ends."""
        todo = [clock]
        while todo:
            one = todo[-1]
            if one in self.of:
                todo.pop()
                continue
            parts, begins = self._parts(one)
            # many programs begin behind one end of a launch, whose parts are gone through once
            if joins := [part for part in parts[:-1] if len(self.made[part].of) > 1]:
                todo.extend(reversed(joins))
                continue
            told = (self.made[part].told for part in parts)
            needed = set[int]().union(*(some.by for some in told if some is not None)).difference(self.of)
            if needed:
                todo.extend(sorted(needed, reverse=True))
            else:
                self.add_up(one, parts, begins)
        return self.of[clock]

    def _parts(self, clock: int) -> tuple[list[int], list[int]]:
        """Clocks that it is made of and that are not added up, itself among them, and those behind them that are."""
        todo, parts, begins = [clock], {clock}, set[int]()
        while todo:
            for one in self.made[todo.pop()].of:
                if one in self.of:
                    begins.add(one)
                elif one not in parts:
                    parts.add(one)
                    todo.append(one)
        return sorted(parts), sorted(begins)

    def add_up(self, clock: int, parts: list[int], begins: list[int]) -> None:
        column = self.all(self.of[one] for one in begins)
        in_a_row = len(begins) == 1 and all(len(self.made[one].of) == 1 for one in parts)
        step = IN_A_ROW if in_a_row else len(parts)
        for first in range(0, len(parts), step):
            some = parts[first : first + step]
            column = self.learned(column, some)
            if in_a_row:
                self.of[some[-1]] = column
        self.of[clock] = column

    # ---- seen from other ranks ----
    def seen(self, column: Column, turns: list[int]) -> Column:
        """The join of a column as seen from several turns, ascending: inside of blocks, then from block to block."""
        if len(turns) == 1:
            return self._turned(column, turns[0])
        inner = self.turns.inner
        inside: dict[int, list[int]] = {}
        for turn in turns:
            inside.setdefault(turn // inner, []).append(turn % inner)
        blocks: dict[tuple[int, ...], list[int]] = {}
        for block, some in inside.items():
            blocks.setdefault(tuple(some), []).append(block)
        each = (self._circle(self._circle(column, some, 1), of, inner) for some, of in blocks.items())
        return reduce(self.maximum, each)

    def _circle(self, column: Column, turns: Sequence[int], unit: int) -> Column:
        """The same along one circle, of which a step is a turn of `unit`; neighbours by doubling."""
        out: Column | None = None
        while turns:
            first = turns[0]
            many = next((n for n, one in enumerate(turns) if one != first + n), len(turns))
            one, width = self._turned(column, first * unit), 1
            while 2 * width <= many:
                one, width = self.maximum(one, self._turned(one, width * unit)), 2 * width
            if width < many:
                one = self.maximum(one, self._turned(one, (many - width) * unit))
            out, turns = one if out is None else self.maximum(out, one), turns[many:]
        assert out is not None
        return out

    def _turned(self, column: Column, turn: int) -> Column:
        if not turn:
            return column
        order = self._order.get(turn)
        if order is None:
            order = self._order[turn] = self.turns.numbers(np.arange(self.turns.ranks), turn)
        return column.take(order, axis=0, mode="clip")  # faster than column[order]
