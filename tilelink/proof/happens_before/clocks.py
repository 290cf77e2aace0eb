"""What programs know of each other: a clock holds, for each program of each rank, how many of its raises are known.

A program's own progress is not in its clock, so that all programs that have waited for the same share one clock, and a join is
made once. Clocks are seen from the first ranks: one of `turn` is that of the ranks to which the turn takes them.

Of many programs, a clock is kept as what it was made of, and added up when that does not answer a question. Most do not need to
be: who reads has just waited for who wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilelink.proof.happens_before.columns import Column, Columns, Row
from tilelink.proof.happens_before.turns import Turns
from tilelink.schedule.index import Ints

LARGE = 1 << 14  # programs, of which clocks are added up at once if there are fewer
IN_A_ROW = 64  # clocks, each of which adds to the one before: one of so many is kept added up
PATIENCE = 1 << 14  # raises that are looked at before a clock is added up
NEVER = 1 << 62
_NONE: Ints = np.zeros(0, np.int64)


def _latest(programs: Ints, times: Ints) -> dict[int, int]:
    """By program, the latest time."""
    by = np.argsort(times, kind="stable")
    return dict(zip(programs[by].tolist(), times[by].tolist(), strict=True))


@dataclass(frozen=True)
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
        return _latest(self.programs, self.times)

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


class _Made(NamedTuple):
    """What a clock is made of: other clocks, and raises."""

    of: tuple[int, ...]
    told: Told | None


class Clocks:
    def __init__(self, turns: Turns, width: int, most: int) -> None:
        """`width`: programs of a rank, `most`: the latest time."""
        self.turns, self.width, self.large = turns, width, turns.ranks * width > LARGE
        self.columns = Columns(turns, width, most)
        self._made = [_Made((), None)]
        self._begin = [0]  # of each clock the one that it was, before it learned of raises one by one
        self._added_up: dict[int, Column] = {0: self.columns.nothing}

    def __getitem__(self, clock: int) -> Row:
        """What is known of all programs, in the order of ranks."""
        return self.columns.values(self._column(clock))

    def _new(self, of: tuple[int, ...], told: Told | None) -> int:
        self._made.append(_Made(of, told))
        number = len(self._begin)
        self._begin.append(self._begin[of[0]] if len(of) == 1 else number)
        if not self.large:
            self._add_up(number, [number], list(of))
        return number

    # ---- what is learned ----
    def joined(self, clock: int, told: Told) -> int:
        """`clock` and what was known at the raises."""
        column = self._added_up.get(clock)
        if column is not None and self.columns.known(column, told.programs, told.times).all():
            return clock
        return self._new((clock,), told)

    def met(self, clocks: Sequence[int]) -> int:
        some = tuple(dict.fromkeys(clocks))
        return some[0] if len(some) == 1 else self._new(some, None)

    def ended(self, clocks: Sequence[int], programs: Ints, times: Ints) -> int:
        """What is known behind the ends of programs."""
        return self._new(tuple(dict.fromkeys(clocks)), Told(_NONE, _NONE, programs * 0, programs, times, times))

    # ---- what is known ----
    def turned(self, programs: Ints, turn: int | Ints) -> Ints:
        """Programs as their own rank names them, that the owner of a word sees as `programs`."""
        return self.turns.numbers(programs, turn, self.width)

    def seen(self, programs: Ints, turn: Ints) -> Ints:
        """The other way round."""
        return self.turns.numbers(programs, self.turns.back(turn), self.width)

    def knows(self, clock: int, turn: int, program: int, time: int) -> bool:
        """Whether `clock`, turned by `turn`, has a program of the owner of a word at this time."""
        here = np.array([self.turns.numbers(program, turn, self.width)])
        return bool(self.knows_all(clock, here, np.array([time]))[0])

    def knows_all(self, clock: int, programs: Ints, times: Ints) -> NDArray[np.bool_]:
        """Whether `clock` has each of these programs at its time."""
        if clock not in self._added_up and self._hears(clock, programs, times):
            return np.ones(len(programs), bool)
        return self.columns.known(self._column(clock), programs, times)

    def _hears(self, clock: int, programs: Ints, times: Ints) -> bool:
        """Whether the raises that a clock is made of tell of all these programs, the latest ones first."""
        begin = self._begin[clock]
        known = self.columns.known(self._column(begin), programs, times)
        left = _latest(programs[~known], times[~known])
        patience = PATIENCE
        while left and clock != begin and patience > 0:
            of, told = self._made[clock]
            heard = told.heard if told is not None else {}
            some = heard if len(heard) < len(left) else left
            patience -= len(some)
            for program in [one for one in some if heard.get(one, -1) >= left.get(one, NEVER)]:
                del left[program]
            (clock,) = of
        return not left

    def unaware(self, told: Told, programs: Ints, times: Ints) -> int:
        """The first raise whose makers did not know these programs at these times, and are not them; -1: all did."""
        found = len(told.clocks)
        raises = np.arange(found)
        for clock, turns in told.pairs(raises):
            for turn in turns:
                missing = np.flatnonzero(~self.knows_all(clock, self.turned(programs, turn), times))
                if not len(missing):
                    continue
                need = list(zip(programs[missing].tolist(), times[missing].tolist(), strict=True))
                for one in raises[(told.clocks == clock) & (told.turns == turn)].tolist():
                    mine = told.of == one
                    own = dict(zip(told.programs[mine].tolist(), told.times[mine].tolist(), strict=True))
                    if not all(own.get(program, -1) >= time for program, time in need):
                        found = min(found, one)
                        break
        return found if found < len(raises) else -1

    # ---- adding up ----
    def _column(self, clock: int) -> Column:
        """A clock is made of earlier ones, so that this ends."""
        todo = [clock]
        while todo:
            one = todo[-1]
            if one in self._added_up:
                todo.pop()
                continue
            parts, begins = self._parts(one)
            told = (self._made[part].told for part in parts)
            needed = set[int]().union(*(some.by for some in told if some is not None)).difference(self._added_up)
            if needed:
                todo.extend(sorted(needed, reverse=True))
            else:
                self._add_up(one, parts, begins)
        return self._added_up[clock]

    def _parts(self, clock: int) -> tuple[list[int], list[int]]:
        """Clocks that it is made of and that are not added up, itself among them, and those behind them that are."""
        todo, parts, begins = [clock], {clock}, set[int]()
        while todo:
            for one in self._made[todo.pop()].of:
                if one in self._added_up:
                    begins.add(one)
                elif one not in parts:
                    parts.add(one)
                    todo.append(one)
        return sorted(parts), sorted(begins)

    def _add_up(self, clock: int, parts: list[int], begins: list[int]) -> None:
        column = self.columns.all(self._added_up[one] for one in begins)
        in_a_row = len(begins) == 1 and all(len(self._made[one].of) == 1 for one in parts)
        step = IN_A_ROW if in_a_row else len(parts)
        for first in range(0, len(parts), step):
            some = parts[first : first + step]
            column = self._learned(column, [told for one in some if (told := self._made[one].told) is not None])
            if in_a_row:
                self._added_up[some[-1]] = column
        self._added_up[clock] = column

    def _learned(self, column: Column, several: list[Told]) -> Column:
        """The raises at once, as most of their makers knew the same, seen from other ranks. Who knows a raise knows what its
        makers knew, so those are skipped."""
        turns: dict[int, set[int]] = {}
        new = list[Told]()
        for told in {id(one): one for one in several}.values():
            known = self.columns.known(column, told.programs, told.times)
            if known.all():
                continue
            new.append(told)
            if len(told.clocks):
                for one, some in told.pairs(told.of if len(told.of) == 1 else told.of[~known]):
                    turns.setdefault(one, set()).update(some)
        if not new:
            return column
        seen = (self.columns.seen(self._added_up[one], sorted(some)) for one, some in turns.items())
        column = self.columns.all([column, *seen])
        programs, times = ([getattr(one, name) for one in new] for name in ("programs", "times"))
        return self.columns.having(column, np.concatenate(programs), np.concatenate(times))
