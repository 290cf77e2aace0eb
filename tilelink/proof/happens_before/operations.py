"""Waits and raises of all programs, in the order of each: what is walked."""

from __future__ import annotations

import numpy as np

from tilelink.proof.happens_before.events import Events, grouped
from tilelink.proof.happens_before.rows import Kind
from tilelink.schedule.index import Ints


class Operations:
    """Those that raise a word together raise it once a segment, behind all of the segment: `count` of `many`.

    Columns that are walked are lists, those that are looked up for many at once are arrays.
    `word`: the number of the word; `keys` and `added` hold the key of each word and whether it is added to.
    `pair`: a number for the word and the value that a wait is for. `seen`: the program, as the owner of the word sees it.
    `plain`: an addition by itself, to a word that has no other raises.
    """

    def __init__(self, events: Events) -> None:
        chosen = events.waits | (events.raises & (events.many == 1))
        together = np.flatnonzero(events.raises & (events.many != 1))[::-1]
        many = np.ones(len(events.run), np.int64)
        lasts, counts = grouped(*(one[together] for one in (events.segment, events.key, events.turn, events.many)))
        chosen[together[lasts]] = True
        many[together[lasts]] = counts
        at = np.flatnonzero(chosen)
        self.event = at
        self.begin: list[int] = np.searchsorted(events.run[at], np.arange(events.runs + 1)).tolist()
        keys, word = np.unique(events.key[at], return_inverse=True)
        self.keys: list[int] = keys.tolist()
        kind, value = events.kind[at], events.value[at]
        self.added: list[bool] = (np.bincount(word[kind == Kind.ADD], minlength=len(keys)) > 0).tolist()
        others = np.bincount(word[(kind == Kind.SET) | (events.many[at] != 1)], minlength=len(keys))
        plain = (kind == Kind.ADD) & (others[word] == 0)
        self.kind: list[int] = kind.tolist()
        self.word: list[int] = word.tolist()
        self.value: list[int] = value.tolist()
        self.count: list[int] = many[at].tolist()
        self.many: list[int] = events.many[at].tolist()
        self.plain: list[bool] = plain.tolist()
        self.pairs, self.pair = self._pairs(np.flatnonzero(kind <= Kind.BLOCK), word, value)
        program, self.turn = events.run[at] // events.calls, events.turn[at]
        turns = events.plan.turns
        self.seen: Ints = turns.numbers(program, turns.back(self.turn), events.width)
        self.time, self.since, self.call, self.segment = (
            one[at] for one in (events.time, events.since, events.call, events.segment)
        )

    @staticmethod
    def _pairs(waits: Ints, word: Ints, value: Ints) -> tuple[int, list[int]]:
        pair = np.zeros(len(word), np.int64)
        values, place = np.unique(value[waits], return_inverse=True)
        pairs, pair[waits] = np.unique(word[waits] * max(len(values), 1) + place, return_inverse=True)
        return len(pairs), pair.tolist()
