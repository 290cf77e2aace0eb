"""What programs know of each other: a clock holds, for each program of each rank, how many of its raises are known.

A program's own progress is not in its clock, so that all programs that have waited for the same share one clock, and a join is
made once. Clocks are seen from the first ranks: one of `turn` is that of ranks which lie `turn` periods away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilelink.schedule.index import Ints

Clock = NDArray[np.signedinteger]


@dataclass(frozen=True, slots=True)
class Raise:
    """One raise of a word, as its owner sees it. `clock`: what the raisers knew; `programs` raised it at their `times`. Who knows
    a program at its time in `since` knows all that this raise tells of it: raises follow each other from then on.

    `turn`: the clock is to be turned by so much. `event`: the raise itself, the last one if several raise together.
    """

    clock: int
    turn: int
    programs: tuple[int, ...]
    times: tuple[int, ...]
    since: tuple[int, ...]
    call: int
    event: int

    @property
    def own(self) -> dict[int, int]:
        return dict(zip(self.programs, self.times, strict=True))


class Clocks:
    def __init__(self, programs: int, period: int, most: int) -> None:
        """`programs` of all ranks, `period`: of them before those of the next period begin, `most`: the latest time."""
        self.size, self.period = programs, period
        self.clocks: list[Clock] = [np.zeros(programs, np.int16 if most < 1 << 15 else np.int64)]

    def __getitem__(self, clock: int) -> Clock:
        return self.clocks[clock]

    def turned(self, programs: Ints, turn: int | Ints) -> Ints:
        """Programs as their own rank names them, that the owner of a word sees as `programs`."""
        return (programs + turn * self.period) % self.size

    def knows(self, one: Raise, programs: Ints, times: Ints) -> bool:
        """Whether whoever made the raise knew these programs at these times, or is them."""
        known = self.clocks[one.clock][self.turned(programs, one.turn)] >= times
        if known.all():
            return True
        own = one.own
        missing = zip(programs[~known].tolist(), times[~known].tolist(), strict=True)
        return all(own.get(program, -1) >= time for program, time in missing)

    def follows(self, one: Raise, other: Raise) -> bool:
        """The same for the raisers of another raise of the word."""
        clock, back, own = self.clocks[one.clock], one.turn * self.period, one.own
        return all(
            own.get(program, -1) >= time or clock[(program + back) % self.size] >= time
            for program, time in zip(other.programs, other.times, strict=True)
        )

    def joined(self, clock: int, raises: Sequence[Raise]) -> int:
        """`clock` and what was known at `raises`. Who knows a raise knows what its raisers knew, so those are skipped."""
        now = self.clocks[clock]
        news = [one for one in raises if not all(now[p] >= t for p, t in zip(one.programs, one.times, strict=True))]
        if not news:
            return clock
        turns: dict[int, set[int]] = {}
        for one in news:
            turns.setdefault(one.clock, set()).add(one.turn)
        new = now.copy()
        for known, some in turns.items():
            np.maximum(new, self._seen(self.clocks[known], sorted(some)), out=new)
        programs = [p for one in news for p in one.programs]
        times = np.array([t for one in news for t in one.times], new.dtype)
        np.maximum.at(new, programs, times)
        return self.added(new)

    def met(self, clocks: Sequence[int]) -> int:
        return clocks[0] if len(clocks) == 1 else self.added(np.maximum.reduce([self.clocks[one] for one in clocks]))

    def added(self, clock: Clock) -> int:
        self.clocks.append(clock)
        return len(self.clocks) - 1

    def _seen(self, clock: Clock, turns: list[int]) -> Clock:
        """The join of a clock as seen from several turns; neighbouring turns by doubling."""
        out: Clock | None = None
        while turns:
            first = turns[0]
            many = next((n for n, one in enumerate(turns) if one != first + n), len(turns))
            one, width = np.roll(clock, -first * self.period) if first else clock, 1
            while 2 * width <= many:
                one, width = np.maximum(one, np.roll(one, -width * self.period)), 2 * width
            if width < many:
                one = np.maximum(one, np.roll(one, -(many - width) * self.period))
            out, turns = one if out is None else np.maximum(out, one), turns[many:]
        assert out is not None
        return out
