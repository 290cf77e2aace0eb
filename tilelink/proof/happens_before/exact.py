"""Signals for which a wait may compare for equality: no word passes a value before all who wait for that value have seen it.

A wait means "at least". Some targets compare for equality, which is the same if whoever raises a word beyond a value knows all
waits for that value. Waits follow from the raises that they wait for, so a later raise knows the waits for smaller values, too:
of a count, the first so many raises are the same in every interleaving (`words`), and each later one knows them.

That holds in any number of calls by the induction of `calls`: who raises a word does so in every period of calls, and knows what
it has known before.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tilelink.proof.happens_before.calls import call_period, steady
from tilelink.proof.happens_before.events import Events
from tilelink.proof.happens_before.expand import expanded
from tilelink.proof.happens_before.loops import widened
from tilelink.proof.happens_before.ranks import rank_turns
from tilelink.proof.happens_before.refuted import Refuted
from tilelink.proof.happens_before.rows import Kind
from tilelink.proof.happens_before.walk import Walk
from tilelink.proof.happens_before.words import Word
from tilelink.schedule.index import Ints
from tilelink.schedule.instance import instantiated
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import Wait


def exact_signals(schedule: Schedule) -> frozenset[str]:
    """Signals whose waits may all compare for equality. None where that is not shown: of a schedule with tables, whose entries
    are not known, and of one whose order is refuted."""
    period_of_calls = call_period(schedule)
    if schedule.tables or not period_of_calls:
        return frozenset()
    boxes = widened(instantiated(schedule))
    try:
        walk = Walk(Events(expanded(boxes, {}, 2 * period_of_calls + 1, rank_turns(boxes)))).walked()
        walk.words.counted()
        steady(walk, period_of_calls)
    except Refuted:
        return frozenset()
    return frozenset(signal.name for signal in schedule.signals) - _passed_early(walk)


def _passed_early(walk: Walk) -> frozenset[str]:
    """Signals of which some word may pass a value that somebody still waits for, or never has it."""
    events = walk.events
    rows = events.plan.rows
    of_signal = np.array([isinstance(one.step, Wait) for one in rows], bool)
    at = np.flatnonzero((events.kind <= Kind.BLOCK) & of_signal[events.row])
    at = at[np.lexsort((events.value[at], events.key[at]))]
    first = np.flatnonzero(np.diff(events.key[at], prepend=-1))
    return frozenset(
        rows[int(events.row[some[0]])].name for some in np.split(at, first[1:]) if len(some) and not _exact(walk, some)
    )


def _exact(walk: Walk, waits: Ints) -> bool:
    """`waits` for one word, by value."""
    events = walk.events
    word = walk.words.of_key(int(events.key[waits[0]])) or Word(added=True)
    values = events.value[waits]
    if values[0] < 0:
        return False  # it is over at once, and no word is less than 0
    by_value = np.split(waits, np.flatnonzero(np.diff(values)) + 1)
    ends = [_raises_up_to(word, int(events.value[some[0]])) for some in by_value]
    if None in ends:
        return False
    counts = [one for one in ends if one is not None]
    for some, (now, then) in zip(by_value, pairwise([*counts, len(word.raises)]), strict=True):
        programs, times = _awaiting(events, some)
        later = word.raises[now:then] if word.added else word.raises[now : now + 1]
        if later and walk.clocks.unaware(walk.words.told(later), programs, times) >= 0:
            return False
    return True


def _raises_up_to(word: Word, value: int) -> int | None:
    """How many raises bring a word to `value`; None where it is never so much."""
    if word.added or value == 0:
        return value
    return word.values.index(value) + 1 if value in word.values else None


def _awaiting(events: Events, waits: Ints) -> tuple[Ints, Ints]:
    """Programs that wait, and the latest time at which each does."""
    programs, inverse = np.unique(events.run[waits] // events.calls, return_inverse=True)
    times = np.zeros(len(programs), np.int64)
    np.maximum.at(times, inverse, events.time[waits])
    return programs, times
