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

from tilelink.proof.happens_before.clocks import Clocks, Raise
from tilelink.proof.happens_before.events import Events
from tilelink.proof.happens_before.refuted import Place, Refuted, Wrong
from tilelink.proof.happens_before.rows import Kind


@dataclass(slots=True)
class Word:
    added: bool
    amount: int = 0
    values: list[int] = field(default_factory=list)  # of a word that is set
    raises: list[Raise] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)  # the latest call of the raises so far
    awaited: set[int] = field(default_factory=set)

    def latest(self, until: int) -> int:
        """The latest call that who waits for `until` waits for."""
        return self.calls[until - 1] if self.added else self.raises[bisect_left(self.values, until)].call

    def raises_for(self, until: int) -> Sequence[Raise]:
        """What who waits for `until` waits for: so many adds, or the set to the smallest value that is enough."""
        return self.raises[:until] if self.added else (self.raises[bisect_left(self.values, until)],)


class Words:
    """`wrong`: the first word that is set as it must not be. What follows is walked all the same, as if it kept its value: a
    circle, or an access that is in no order, says more of a mistake."""

    def __init__(self, events: Events, clocks: Clocks) -> None:
        self.events, self.clocks = events, clocks
        self.wrong: Refuted | None = None
        self.words: dict[int, Word] = {}

    def amount(self, key: int) -> int:
        word = self.words.get(key)
        return word.amount if word else 0

    def put(self, key: int, kind: Kind, value: int, new: Raise) -> None:
        word = self.words.setdefault(key, Word(kind is Kind.ADD))
        if word.added != (kind is Kind.ADD):
            raise Refuted(Wrong.SET_AND_ADDED, *self._both(new, word), detail=self.events.key_name(key))
        if kind is Kind.SET:
            if value <= word.amount:
                detail = f"from {word.amount} to {value}"
                self.wrong = self.wrong or Refuted(Wrong.SET_BACK, *self._both(new, word), detail=detail)
                return
            if word.raises and not self.clocks.follows(new, word.raises[-1]):
                detail = f"to {word.amount} and {value}"
                self.wrong = self.wrong or Refuted(Wrong.SET_IN_NO_ORDER, *self._both(new, word), detail=detail)
            word.values.append(value)
        word.amount = value if kind is Kind.SET else word.amount + 1
        word.raises.append(new)
        word.calls.append(max(new.call, word.calls[-1] if word.calls else 0))

    def _both(self, new: Raise, word: Word) -> list[Place]:
        return [self.events.place(one.event) for one in (new, *word.raises[-1:])]

    def counted(self) -> None:
        """Each count that is awaited consists of the same raises in every interleaving: whoever raises later knows them."""
        for word in self.words.values():
            wanted = sorted(word.awaited) if word.added else []
            for now, then in pairwise([*wanted, len(word.raises)]):
                need: dict[int, int] = {}
                for one in word.raises[:now]:
                    for program, time in zip(one.programs, one.since, strict=True):
                        need[program] = max(time, need.get(program, 0))
                programs, times = np.array(list(need)), np.array(list(need.values()))
                for late in word.raises[now:then]:
                    if not self.clocks.knows(late, programs, times):
                        places = self.events.place(late.event), self.events.place(word.raises[now - 1].event)
                        raise Refuted(Wrong.ANY_COUNT, *places, detail=f"the first {now} are awaited")
