"""What programs know of each other: a clock holds, for each program of each rank, how many of its raises are known.

A program's own progress is not in its clock, so that all programs that have waited for the same share one clock, and a join is
made once. Clocks are seen from the first ranks: one of `turn` is that of the ranks to which the turn takes them.

Of many programs, a clock is kept as what it was made of, and added up when that does not answer a question. Most do not need to
be: who reads has just waited for who wrote. Where some have to be, and programs are not thousands, all are from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tilelink.proof.happens_before.added import IN_A_ROW, Made, Told, latest
from tilelink.proof.happens_before.columns import Columns, Row
from tilelink.proof.happens_before.ended import Ended, FewPrograms
from tilelink.proof.happens_before.events import sorting
from tilelink.proof.happens_before.turns import Turns
from tilelink.schedule.index import Ints

SMALL = 1 << 10  # programs, of which clocks are added up at once
LARGE = 1 << 14  # of so many they are never; between, once questions have needed so many clocks added up
NEEDED = 32
FEW = 16  # programs that are asked for at once
SAMPLE = 256  # questions, of which the answers say whether it is worth while to ask all
NEVER = 1 << 62
BLOCKS = 8  # of programs next to each other, which are looked at by themselves
_NONE: Ints = np.zeros(0, np.int64)


def _alike(numbers: Ints) -> list[Ints]:
    """Where each number stands, which are not negative."""
    by = sorting(numbers)
    return np.split(by, np.flatnonzero(np.diff(numbers[by])) + 1) if len(by) else []


class Clocks:
    def __init__(self, turns: Turns, width: int, most: int) -> None:
        """`width`: programs of a rank, `most`: the latest time."""
        self.turns, self.width, self._many = turns, width, turns.ranks * width
        self._at_once = self._many <= SMALL
        self._made = [Made((), None)]
        self._begin = [0]  # of each clock the one that it was, before it learned of raises one by one
        self._depth = [0]  # clocks since then
        self._in_a_row: dict[int, tuple[dict[int, int], int]] = {}
        self.columns = Columns(turns, width, most, self._made)
        self.ends: Ended | None = None
        self._most, self._blocks = most, list[FewPrograms]()

    def __getitem__(self, clock: int) -> Row:
        """What is known of all programs, in the order of ranks."""
        return self.columns.values(self.columns[clock])

    def with_ends(self, group: Ints, calls: int) -> None:
        """Remember which programs end together (see `Ended`)."""
        self.ends = None if self._at_once else Ended(self.turns, self._made, group, calls)

    def _new(self, of: tuple[int, ...], told: Told | None) -> int:
        number = len(self._made)
        self._made.append(Made(of, told))
        self._begin.append(self._begin[of[0]] if len(of) == 1 else number)
        self._depth.append(self._depth[of[0]] + 1 if len(of) == 1 else 0)
        if self._at_once:
            self.columns.add_up(number, [number], list(of))
        return number

    # ---- what is learned ----
    def joined(self, clock: int, told: Told) -> int:
        """`clock` and what was known at the raises."""
        column = self.columns.of.get(clock)
        if column is not None and self.columns.known(column, told.programs, told.times).all():
            return clock
        return self._new((clock,), told)

    def met(self, clocks: Sequence[int]) -> int:
        some = tuple(dict.fromkeys(clocks))
        return some[0] if len(some) == 1 else self._new(some, None)

    def ended(self, clocks: Sequence[int], programs: Ints, times: Ints, calls: int) -> int:
        """What is known behind the ends of all programs of a rank that end together, in so many calls by now."""
        new = self._new(tuple(dict.fromkeys(clocks)), Told(_NONE, _NONE, programs * 0, programs, times, times))
        if self.ends is not None:
            self.ends.ends(new, programs, times, calls, self._learned(clocks))
        return new

    def _learned(self, clocks: Sequence[int]) -> Iterable[Told]:
        """The raises of which these clocks have learned one by one."""
        todo, seen, found = list(clocks), set(clocks), dict[int, Told]()
        while todo:
            of, told = self._made[todo.pop()]
            if told is not None:
                found[id(told)] = told
            if len(of) == 1 and of[0] not in seen:
                seen.add(of[0])
                todo.append(of[0])
        return found.values()

    # ---- what is known ----
    def turned(self, programs: Ints, turn: int | Ints) -> Ints:
        """Programs as their own rank names them, that the owner of a word sees as `programs`."""
        return self.turns.numbers(programs, turn, self.width)

    def seen(self, programs: Ints, turn: Ints) -> Ints:
        """The other way round."""
        return self.turns.numbers(programs, self.turns.back(turn), self.width)

    def knows(self, clock: int, turn: int, program: int, time: int) -> bool:
        """Whether `clock`, turned by `turn`, has a program of the owner of a word at this time."""
        here = int(self.turns.numbers(program, turn, self.width))
        told = (heard.get(here, -1) for heard, _ in self._hearings(clock))
        if any(one >= time for one in told):  # most often it has just heard so
            return True
        if self.ends is not None and self.ends.has(self._begin[clock], here, time):
            return True
        return bool(self.knows_all(clock, np.array([here]), np.array([time]))[0])

    def know(self, clocks: Ints, programs: Ints, times: Ints) -> NDArray[np.bool_]:
        """Whether each clock has the program beside it at the time beside it."""
        known = np.zeros(len(clocks), bool)
        if self.ends is not None and len(clocks):
            begins = np.array(self._begin)[clocks]
            for some in _alike(begins):  # of which there are few
                for those in (some[:: len(some) // SAMPLE], some) if len(some) > SAMPLE else (some,):
                    known[those] = self.ends.knows(int(begins[some[0]]), programs[those], times[those])
                    if not known[those].any():  # what is of the same call is asked otherwise
                        break
        rest = np.flatnonzero(~known)
        for some in (rest[those] for those in _alike(clocks[rest])):
            known[some] = self.knows_all(int(clocks[some[0]]), programs[some], times[some], begun=True)
        return known

    def knows_all(self, clock: int, programs: Ints, times: Ints, begun: bool = False) -> NDArray[np.bool_]:
        """Whether `clock` has each of these programs at its time; `begun`: the clock that it was at first has been asked."""
        if clock in self.columns.of:
            return self._added_up(clock, programs, times)
        begin = () if begun else (self._of_begin,)
        # the cheap ones first: what is told is looked for program by program
        few = len(programs) <= FEW
        first, *others = (self._told, *begin, self._of_ends) if few else (*begin, self._of_ends, self._told)
        known: NDArray[np.bool_] = first(clock, programs, times)
        for ask in (*others, self._of_few, self._added_up):
            if known.all():
                break
            left = np.flatnonzero(~known)
            known[left] = ask(clock, programs[left], times[left])
        return known

    def _added_up(self, clock: int, programs: Ints, times: Ints) -> NDArray[np.bool_]:
        column = self.columns[clock]
        if not self._at_once and self._many <= LARGE and len(self.columns.of) > NEEDED:
            self._at_once = True  # one after the other takes less than each when it is asked
            for number, (of, _) in enumerate(self._made):
                if number not in self.columns.of:
                    self.columns.add_up(number, [number], list(of))
        return self.columns.known(column, programs, times)

    def _of_ends(self, clock: int, programs: Ints, times: Ints) -> NDArray[np.bool_]:
        if self.ends is None:
            return np.zeros(len(programs), bool)
        return self.ends.knows(clock, programs, times)

    def _of_begin(self, clock: int, programs: Ints, times: Ints) -> NDArray[np.bool_]:
        return self._of_ends(self._begin[clock], programs, times)

    def _told(self, clock: int, programs: Ints, times: Ints) -> NDArray[np.bool_]:
        """What the raises that a clock has learned of one by one tell, the latest ones first."""
        left, before = latest(programs, times), self.columns.of.get(clock)
        for heard, of in self._hearings(clock):
            before = self.columns.of.get(of) if of is not None else None
            for program in heard if len(heard) == 1 else heard.keys() & left.keys():
                if left.get(program, NEVER) <= heard[program]:
                    del left[program]
            if not left:
                return np.ones(len(programs), bool)
        told = np.array([program not in left for program in programs.tolist()], bool)
        return told if before is None else told | self.columns.known(before, programs, times)

    def _hearings(self, clock: int) -> Iterator[tuple[dict[int, int], int | None]]:
        """`_heard` of clocks one before the other, up to one that is added up."""
        before: int | None = clock
        while before is not None and before not in self.columns.of:
            heard, before = self._heard(before)
            yield heard, before

    def _heard(self, clock: int) -> tuple[dict[int, int], int | None]:
        """Of which programs a clock has just heard at what time, and the clock before, if it is of one; of one in `IN_A_ROW`
        clocks, of which so many programs the last ones have."""
        of, told = self._made[clock]
        before = of[0] if len(of) == 1 else None
        if before is None or self._depth[clock] % IN_A_ROW:
            return told.heard if told is not None else {}, before
        found = self._in_a_row.get(clock)
        if found is None:
            heard, here, left = dict[int, int](), clock, IN_A_ROW
            while left:
                (here,), told = self._made[here]
                left -= 1
                for program, time in told.heard.items() if told is not None else ():
                    heard[program] = max(heard.get(program, time), time)
            found = self._in_a_row[clock] = heard, here
        return found

    def _of_few(self, clock: int, programs: Ints, times: Ints) -> NDArray[np.bool_]:
        """What is known of a few programs of each rank, and of those next to them."""
        known, places = np.zeros(len(programs), bool), programs % self.width
        left = np.arange(len(programs))
        for number in range(BLOCKS):
            if number == len(self._blocks):
                first = int(places[left].min())
                self._blocks.append(FewPrograms(self.turns, self._made, self.width, first, self._most))
            block = self._blocks[number]
            those = block.has(places[left])
            here, left = left[those], left[~those]
            if len(here):
                known[here] = block.knows(clock, programs[here], times[here])
            if not len(left):
                break
        return known

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
