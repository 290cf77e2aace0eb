"""What programs know of each other: a clock holds, for each program of each rank, how many of its raises are known.

A program's own progress is not in its clock, so that all programs that have waited for the same share one clock, and a join is
made once. Clocks are seen from the first ranks: one of `turn` is that of ranks which lie `turn` periods away.

Clocks of many programs are kept as what they have that their parent has not. Some are kept as they are, so that others are soon
made from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilelink.schedule.index import Ints

Clock = NDArray[np.signedinteger]

LARGE = 1 << 14  # programs of a clock that is kept as what is new in it
FAR = 32  # clocks that may be made from one another
RECENT = 64  # clocks at hand


@dataclass(frozen=True, slots=True)
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


class Clocks:
    def __init__(self, programs: int, period: int, most: int) -> None:
        """`programs` of all ranks, `period`: of them before those of the next period begin, `most`: the latest time."""
        self.size, self.period = programs, period
        self.large = programs > LARGE
        zero: Clock = np.zeros(programs, np.int16 if most < 1 << 15 else np.int64)
        self._kept: dict[int, Clock] = {0: zero}
        self._recent: dict[int, Clock] = {}
        self._news: list[
            tuple[int, int, Ints, Clock]
        ] = []  # of large clocks: how far, the parent, where it is less, what is
        self._many = 1
        if self.large:
            self._news.append((0, 0, np.zeros(0, np.int64), zero[:0]))

    def __getitem__(self, clock: int) -> Clock:
        found = self._kept.get(clock)
        if found is None:
            found = self._recent.get(clock)
        return self._made(clock) if found is None else found

    def _made(self, clock: int) -> Clock:
        chain, at = [], clock
        while at not in self._kept and at not in self._recent:
            _, parent, where, values = self._news[at]
            chain.append((where, values))
            at = parent
        made = self[at].copy()
        for where, values in reversed(chain):
            made[where] = values
        self._remember(clock, made)
        return made

    def _remember(self, number: int, clock: Clock) -> None:
        self._recent[number] = clock
        if len(self._recent) > RECENT:
            del self._recent[next(iter(self._recent))]

    def _added(self, clock: Clock, parent: int) -> int:
        number, self._many = self._many, self._many + 1
        if not self.large:
            self._kept[number] = clock
            return number
        before = self[parent]
        where = np.flatnonzero(clock != before)
        far = self._news[parent][0] + 1
        if far == FAR or 2 * len(where) > len(clock):
            self._kept[number], far, where = clock, 0, where[:0]
        else:
            self._remember(number, clock)
        self._news.append((far, parent, where, clock[where]))
        return number

    def turned(self, programs: Ints, turn: int | Ints) -> Ints:
        """Programs as their own rank names them, that the owner of a word sees as `programs`."""
        return (programs + turn * self.period) % self.size

    def knows(self, clock: int, turn: int, program: int, time: int) -> bool:
        """Whether `clock`, turned by `turn`, has a program of the owner of a word at this time."""
        return bool(self[clock][(program + turn * self.period) % self.size] >= time)

    def unaware(self, told: Told, programs: Ints, times: Ints) -> int:
        """The first raise whose makers did not know these programs at these times, and are not them; -1: all did."""
        found = len(told.clocks)
        raises = np.arange(found)
        for clock, turns in told.pairs(raises):
            known = self[clock]
            for turn in turns:
                missing = np.flatnonzero(known[self.turned(programs, turn)] < times)
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

    def joined(self, clock: int, told: Told) -> int:
        """`clock` and what was known at the raises. Who knows a raise knows what its raisers knew, so those are skipped."""
        now = self[clock]
        if len(told.programs) == 1:
            return self._joined_one(clock, now, told)
        unknown = now[told.programs] < told.times
        if not unknown.any():
            return clock
        new = now
        news = told.of if len(told.of) == 1 else told.of[unknown]
        for known, turns in told.pairs(news):
            if known != clock or turns != [0]:
                new = self._maximum(new, self[known], turns)
        if new is now:
            new = now.copy()
        np.maximum.at(new, told.programs, told.times.astype(new.dtype))
        return self._added(new, clock)

    def _joined_one(self, clock: int, now: Clock, told: Told) -> int:
        """The same with a raise that one program has made."""
        program, time = told.programs.item(), told.times.item()
        if now[program] >= time:
            return clock
        known, turn = told.clocks.item(), told.turns.item()
        new = now.copy() if known == clock and not turn else self._maximum(now, self[known], [turn])
        new[program] = max(new[program], time)
        # who begins with little has learned nearly all of it from the raiser, whose clock is then nearer
        nearer = self.large and not turn and known != clock and self._far(new, known) < self._far(new, clock)
        return self._added(new, known if nearer else clock)

    def _far(self, one: Clock, other: int) -> int:
        return int(np.count_nonzero(one != self[other]))

    def _maximum(self, one: Clock, known: Clock, turns: list[int]) -> Clock:
        """A clock and another one as seen from several turns."""
        if len(turns) > 1:
            return np.maximum(one, self._seen(known, turns))
        back = turns[0] * self.period % self.size
        if not back:
            return np.maximum(one, known)
        new, front = np.empty_like(one), self.size - back
        np.maximum(one[:front], known[back:], out=new[:front])
        np.maximum(one[front:], known[:back], out=new[front:])
        return new

    def met(self, clocks: Sequence[int]) -> int:
        some = list(dict.fromkeys(clocks))
        return some[0] if len(some) == 1 else self._added(np.maximum.reduce([self[one] for one in some]), some[0])

    def ended(self, clocks: Sequence[int], programs: Ints, times: Ints) -> int:
        """What is known behind the ends of programs."""
        some = list(dict.fromkeys(clocks))
        new = np.maximum.reduce([self[one] for one in some])
        new[programs] = np.maximum(new[programs], times.astype(new.dtype))
        return self._added(new, some[0])

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
