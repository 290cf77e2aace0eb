"""Words as they are raised and awaited. Which raises a wait waits for does not depend on the interleaving:

- a word that is set goes through growing values, and each raise knows the one before, so that the order is the only one;
- whichever raises a count is made of when it is awaited, they tell the same: who raises later knows what those before him tell
  of, if not the raises themselves (`counted`). A raise that others come right before tells of no more than the first of these.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from tilelink.proof.happens_before.added import Told
from tilelink.proof.happens_before.clocks import Clocks
from tilelink.proof.happens_before.events import Events
from tilelink.proof.happens_before.operations import Operations
from tilelink.proof.happens_before.refuted import Place, Refuted, Wrong
from tilelink.proof.happens_before.rows import Kind
from tilelink.schedule.index import Ints

_FIRST: Ints = np.zeros(1, np.int64)


@dataclass(slots=True)
class Word:
    """`raises`: the operations, of several that raise together the last one."""

    added: bool
    values: list[int] = field(default_factory=list)  # of a word that is set
    raises: list[int] = field(default_factory=list)
    awaited: set[int] = field(default_factory=set)

    def raises_for(self, until: int) -> Sequence[int]:
        """What who waits for `until` waits for: so many adds, or the set to the smallest value that is enough."""
        return self.raises[:until] if self.added else (self.raises[bisect_left(self.values, until)],)


class Words:
    """`amount` and `words` by number. `wrong`: the first word that is set as it must not be. What follows is walked all the
    same, as if it kept its value: a circle, or an access that is in no order, says more of a mistake."""

    def __init__(self, events: Events, operations: Operations, clocks: Clocks) -> None:
        self.events, self.operations, self.clocks = events, operations, clocks
        self.wrong: Refuted | None = None
        self.words = [Word(added) for added in operations.added]
        self.amount = [0] * len(operations.keys)
        self.clock_of: Ints = np.zeros(events.segments, np.int64)  # what each segment knows
        self._members: dict[int, list[int]] = {}  # of raises that several make together
        self._met: dict[int, int] = {}  # what those knew together

    def of_key(self, key: int) -> Word | None:
        number = bisect_left(self.operations.keys, key)
        known = number < len(self.operations.keys) and self.operations.keys[number] == key
        return self.words[number] if known and self.words[number].raises else None

    def latest(self, word: int, until: int) -> int:
        """The latest call that who waits for `until` waits for."""
        return int(self.operations.call[list(self.words[word].raises_for(until))].max())

    def told(self, raises: Sequence[int]) -> Told:
        ops = self.operations
        if len(raises) == 1:
            return self._told_by(raises[0])
        at = np.array(raises, np.int64)
        clocks, turns = self.clock_of[ops.segment[at]], ops.turn[at]
        of = np.arange(len(at))
        if self._members:
            members = [self._members.get(one, (one,)) for one in raises]
            clocks = np.array([self._met.get(one, clock) for one, clock in zip(raises, clocks.tolist(), strict=True)])
            of = np.repeat(of, [len(one) for one in members])
            at = np.array([one for some in members for one in some], np.int64)
        return Told(clocks, turns, of, ops.seen[at], ops.time[at], ops.since[at])

    def _told_by(self, one: int) -> Told:
        """The same of one raise, of which there are most: views of what operations have, where one program makes it."""
        ops, here = self.operations, slice(one, one + 1)
        members = self._members.get(one)
        if members is None:
            clocks = self.clock_of[ops.segment[here]]
            return Told(clocks, ops.turn[here], _FIRST[:1], ops.seen[here], ops.time[here], ops.since[here])
        at, clocks = np.array(members, np.int64), np.array([self._met[one]])
        of = np.zeros(len(at), np.int64)
        return Told(clocks, ops.turn[here], of, ops.seen[at], ops.time[at], ops.since[at])

    def together(self, last: int, members: list[int]) -> None:
        """Several raise at once, with the operation `last`."""
        clocks = sorted({int(self.clock_of[self.operations.segment[one]]) for one in members})
        self._members[last], self._met[last] = members, self.clocks.met(clocks)

    def put(self, operation: int) -> None:
        ops = self.operations
        number, kind, value = ops.word[operation], ops.kind[operation], ops.value[operation]
        word = self.words[number]
        if not word.raises:
            word.added = kind == Kind.ADD
        if word.added != (kind == Kind.ADD):
            name = self.events.key_name(ops.keys[number])
            raise Refuted(Wrong.SET_AND_ADDED, *self._both(operation, word), detail=name)
        if kind == Kind.SET:
            amount = self.amount[number]
            if value <= amount:
                detail = f"from {amount} to {value}"
                self.wrong = self.wrong or Refuted(Wrong.SET_BACK, *self._both(operation, word), detail=detail)
                return
            if word.raises and not self._follows(operation, word.raises[-1]):
                detail = f"to {amount} and {value}"
                self.wrong = self.wrong or Refuted(Wrong.SET_IN_NO_ORDER, *self._both(operation, word), detail=detail)
            word.values.append(value)
        self.amount[number] = value if kind == Kind.SET else self.amount[number] + 1
        word.raises.append(operation)

    def _follows(self, one: int, other: int) -> bool:
        """Whether the makers of a raise knew those of another raise of the word, or are them."""
        if not {one, other} & self._members.keys():
            return self._follows_one(one, other)
        before = self.told([other])
        return self.clocks.unaware(self.told([one]), before.programs, before.times) < 0

    def _follows_one(self, one: int, other: int) -> bool:
        """The same of raises by one program each."""
        ops = self.operations
        program, time = ops.seen.item(other), ops.time.item(other)
        if ops.seen.item(one) == program and ops.time.item(one) >= time:
            return True
        return self.clocks.knows(self.clock_of.item(ops.segment.item(one)), ops.turn.item(one), program, time)

    def place(self, operation: int) -> Place:
        return self.events.place(int(self.operations.event[operation]))

    def _both(self, operation: int, word: Word) -> list[Place]:
        return [self.place(one) for one in (operation, *word.raises[-1:])]

    def counted(self) -> None:
        """Each count that is awaited consists of the same raises in every interleaving: whoever raises later knows them."""
        for word in self.words:
            wanted = sorted(word.awaited) if word.added else []
            for now, then in pairwise([*wanted, len(word.raises)]):
                if now == then:
                    continue
                told = self.told(word.raises[:now])
                programs, first = np.unique(told.programs, return_inverse=True)
                times = np.zeros(len(programs), np.int64)
                np.maximum.at(times, first, told.since)
                late = self.clocks.unaware(self.told(word.raises[now:then]), programs, times)
                if late >= 0:
                    places = self.place(word.raises[now + late]), self.place(word.raises[now - 1])
                    raise Refuted(Wrong.ANY_COUNT, *places, detail=f"the first {now} are awaited")
