"""Columns of a few numbers for each rank, which are added up fast: of calls that have ended, and of some programs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tilelink.proof.happens_before.added import AddedUp, Column, Made, Told
from tilelink.proof.happens_before.turns import Turns
from tilelink.schedule.index import Ints


class _Small(AddedUp):
    """Columns of `many` numbers for each rank."""

    def __init__(self, turns: Turns, made: Sequence[Made], many: int, most: int) -> None:
        super().__init__(turns, made)
        self.of[0] = np.zeros((turns.ranks, many), np.int16 if most < 1 << 15 else np.int64)

    def maximum(self, one: Column, other: Column) -> Column:
        return np.maximum(one, other)

    def learned(self, column: Column, clocks: list[int]) -> Column:
        several = self.told(clocks)
        column = self.joined(column, ((one, np.arange(len(one.clocks))) for one in several))
        return self.having(column, clocks, several)

    @abstractmethod
    def having(self, column: Column, clocks: list[int], told: Iterable[Told]) -> Column:
        """The column, and what these clocks were told themselves."""


class Ended(_Small):
    """In how many calls programs are known to have ended together: those of a launch, what stands behind them, and who calls.

    Who knows such an end knows all that each of them did before, and what they have heard of others of their rank. What is
    long ago is known so, most often, and of all programs of a rank at once.
    """

    def __init__(self, turns: Turns, made: Sequence[Made], group: Ints, calls: int) -> None:
        """`group`: of each program of a rank, the number of those that it ends with."""
        groups = 1 << int(group.max()).bit_length()  # rows of so many are turned several times as fast as others
        super().__init__(turns, made, groups, calls)
        self.group = group
        self.at: dict[int, tuple[int, int, int]] = {}  # by clock, what it is the end of: rank, group and how many calls
        # of programs of the rank, the time that the end of a group in so many calls tells of
        self.times: Ints = np.zeros((turns.period, groups, calls + 1, len(group)), np.int64)

    def ends(self, clock: int, programs: Ints, times: Ints, calls: int, told: Iterable[Told]) -> None:
        """`clock` is that behind the end of all `programs` of a group at `times`, of which some were `told` of raises."""
        rank, place = divmod(programs.item(0), len(self.group))
        group = self.group.item(place)
        self.at[clock] = rank, group, calls
        here = self.times[rank, group, calls]
        for some, at in ((programs, times), *((one.programs, one.times) for one in told)):
            ranks, places = np.divmod(some, len(self.group))
            own = ranks == rank
            np.maximum.at(here, places[own], at[own])

    def knows(self, clock: int, programs: Ints, times: Ints) -> NDArray[np.bool_]:
        """Whether an end of which the clock knows tells of these programs at their times."""
        ranks, places = np.divmod(programs, len(self.group))
        calls, alike, groups = self[clock][ranks], ranks % self.turns.period, self.group[places]
        known: NDArray[np.bool_] = (
            self.times[alike, groups, calls[np.arange(len(ranks)), groups], places] >= times
        )  # by the end of their own
        left = np.flatnonzero(~known)
        if len(left):
            every = np.arange(calls.shape[1])
            known[left] = self.times[alike[left, None], every, calls[left], places[left, None]].max(1) >= times[left]
        return known

    def has(self, clock: int, program: int, time: int) -> bool:
        """Whether an end of which the clock knows tells of this program at its time."""
        rank, place = divmod(program, len(self.group))
        times, calls = self.times[rank % self.turns.period], self[clock][rank]
        return any(times.item(group, call, place) >= time for group, call in enumerate(calls.tolist()))

    def having(self, column: Column, clocks: list[int], told: Iterable[Told]) -> Column:
        ends = [self.at[one] for one in clocks if one in self.at]
        if ends:
            column = column.copy()
            for rank, group, calls in ends:
                column[rank, group] = max(column[rank, group], calls)
        return column


class FewPrograms(_Small):
    """What is known of programs `first`, ... of each rank, `MANY` of them."""

    MANY = 8

    def __init__(self, turns: Turns, made: Sequence[Made], width: int, first: int, most: int) -> None:
        super().__init__(turns, made, self.MANY, most)
        self.width, self.first = width, first

    def has(self, places: Ints) -> NDArray[np.bool_]:
        return (places >= self.first) & (places < self.first + self.MANY)

    def knows(self, clock: int, programs: Ints, times: Ints) -> NDArray[np.bool_]:
        """Whether the clock has these programs, which are among them, at their times."""
        ranks, places = np.divmod(programs, self.width)
        found: NDArray[np.bool_] = self[clock][ranks, places - self.first] >= times
        return found

    def having(self, column: Column, clocks: list[int], told: Iterable[Told]) -> Column:
        new = False
        for one in told:
            ranks, places = np.divmod(one.programs, self.width)
            here = np.flatnonzero(self.has(places))
            if len(here):
                column, new = column if new else column.copy(), True
                np.maximum.at(column, (ranks[here], places[here] - self.first), one.times[here].astype(column.dtype))
        return column
