"""The proof: every interleaving of all ranks, with any skew, in any number of calls, from one walk through a few of them.

1. *Expand*: each step once, for all ranks, calls and positions (`expand`, `events`).
2. *Walk*: what synchronises, in one order that is possible; what each segment knows (`walk`, `words`, `clocks`).
3. *Compare*: accesses of one cell, one of them a write, are ordered, and reads find what this call wrote (`compare`).
Ranks that are alike are walked once (`ranks`), and a few calls stand for all (`calls`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod

from tilelink.proof.happens_before.any_order import AnyOrder, merged
from tilelink.proof.happens_before.calls import call_period, steady
from tilelink.proof.happens_before.compare import compare
from tilelink.proof.happens_before.crossings import check_crossings
from tilelink.proof.happens_before.events import Events
from tilelink.proof.happens_before.expand import expanded
from tilelink.proof.happens_before.flights import with_flights
from tilelink.proof.happens_before.lanes import Tables, by_call, looked_up_by_call
from tilelink.proof.happens_before.loops import widened
from tilelink.proof.happens_before.meetings import with_meetings
from tilelink.proof.happens_before.ranks import alone, rank_turns
from tilelink.proof.happens_before.refuted import Refutation, Refuted, Wrong
from tilelink.proof.happens_before.renumbered import renumbered
from tilelink.proof.happens_before.rows import Expanded
from tilelink.proof.happens_before.turns import Turns
from tilelink.proof.happens_before.walk import Walk
from tilelink.proof.happens_before.whole import with_whole_loads
from tilelink.schedule.index import Number
from tilelink.schedule.instance import instantiated, with_indices
from tilelink.schedule.memory import Region
from tilelink.schedule.printing import in_a_line
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import Move
from tilelink.schedule.walk import all_steps


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found, and from what: ranks 0..`rank_period` - 1 in `calls` calls, `events` events.

    `call_period`: after so many calls all is the same again, so that these calls stand for any number; 0: they stand for
    themselves.
    """

    refutation: Refutation | None
    ranks: int
    rank_period: int
    call_period: int
    calls: int
    events: int = 0

    @property
    def proved(self) -> bool:
        return self.refutation is None

    def __str__(self) -> str:
        if self.refutation is not None:
            return f"refuted: {self.refutation}"
        few = "rank 0 stands" if self.rank_period == 1 else f"ranks 0 to {self.rank_period - 1} stand"
        ranks = f"{few} for {self.ranks}" if self.rank_period < self.ranks else f"each of {self.ranks} ranks"
        calls = (
            f"any number of calls, of which {self.calls} stand for all" if self.call_period else f"{self.calls} calls"
        )
        return f"proved for {calls}; {ranks}; {self.events} events"


def check(
    schedule: Schedule, tables: Mapping[str, object] | Sequence[Mapping[str, object]] | None = None, calls: int = 0
) -> Refutation | None:
    """None if no interleaving goes wrong, else why. See `checked`."""
    return checked(schedule, tables, calls).refutation


def checked(
    schedule: Schedule,
    tables: Mapping[str, object] | Sequence[Mapping[str, object]] | None = None,
    calls: int = 0,
    symmetric: bool = True,
    assumed: frozenset[str] = frozenset(),
) -> Outcome:
    """The proof of `schedule` in `calls` calls, or any number of them (0).

    `tables`: integer arrays by name that indices look up, -1 where there is no entry; the same in every call, or a sequence
    of one set a call, which makes the number of calls. `symmetric`: ranks that are alike may be walked once. `assumed`: buffers
    whose readers are taken to find what their call wrote (see `all_tables`).
    """
    found = ordered(schedule, tables, calls, symmetric, assumed)
    unlike = unlike_move(schedule)
    return replace(found, refutation=unlike) if unlike is not None else found


def unlike_move(schedule: Schedule) -> Refutation | None:
    """A move whose target is of another shape than its source: targets are filled with all that sources hold."""
    for step in all_steps(instantiated(schedule)):
        if isinstance(step, Move) and [*map(_sides, step.source)] != [*map(_sides, step.target)]:
            return Refutation(Wrong.MALFORMED, (), f"{in_a_line(step)}: source and target differ in shape")
    return None


def _sides(region: Region) -> list[Number]:
    """Extents, without the dimensions along which a region is one place; rows of parts, one behind the other, are rows."""
    *lead, last = region.extent
    if all(isinstance(extent, int) for extent in lead):
        lead = [prod(extent for extent in lead if isinstance(extent, int))]
    return [extent for extent in (*lead, last) if extent != 1]


def ordered(
    schedule: Schedule,
    tables: Mapping[str, object] | Sequence[Mapping[str, object]] | None = None,
    calls: int = 0,
    symmetric: bool = True,
    assumed: frozenset[str] = frozenset(),
) -> Outcome:
    """The same for a schedule whose moves may touch more of their source than of their target."""
    known, each = by_call(tables if isinstance(tables, Mapping) else list(tables or []))
    calls = len(tables) if each and tables else calls
    try:
        schedule = widened(with_meetings(with_flights(instantiated(schedule))))
    except Refuted as refuted:
        return Outcome(refuted.refutation, schedule.num_ranks, schedule.num_ranks, 0, 0)
    if each and known:
        schedule = with_indices(schedule, looked_up_by_call)
    again = 0 if calls else call_period(schedule)
    outcome = Outcome(None, schedule.num_ranks, schedule.num_ranks, again, calls or 2 * again + 1)
    if not calls and not again:
        return replace(outcome, refutation=Refutation(Wrong.UNLIKE, ()))
    free = AnyOrder(schedule)
    turns = rank_turns(schedule, free) if symmetric else alone(schedule)
    if symmetric and turns.period > 1:
        for other in (schedule, *renumbered(schedule)):
            if found := _of_fewer(other, known, outcome, turns, assumed):
                return found
    return _of(schedule, known, replace(outcome, rank_period=turns.period), turns, free, assumed)


def _of_fewer(
    schedule: Schedule, tables: Tables, outcome: Outcome, turns: Turns, assumed: frozenset[str]
) -> Outcome | None:
    """The same of a schedule that knows less of orders, or loads more, if fewer ranks stand for all of it and it is proved."""
    whole = with_whole_loads(schedule)
    for one in (schedule, *((whole.schedule,) if whole is not None else ())):
        free = AnyOrder(one)
        fewer = rank_turns(one, free)
        if fewer.period == turns.period:
            continue
        with suppress(Refuted):
            if whole is not None and one is whole.schedule:
                expanded(whole.loads, tables, 1, alone(schedule))  # those that it makes are in bounds on each rank
            found = _of(one, tables, replace(outcome, rank_period=fewer.period), fewer, free, assumed)
            if found.proved:
                return found
    return None


def _of(
    schedule: Schedule, tables: Tables, outcome: Outcome, turns: Turns, free: AnyOrder, assumed: frozenset[str]
) -> Outcome:
    try:
        plan = expanded(schedule, tables, outcome.calls, turns)
    except Refuted as refuted:
        return replace(outcome, refutation=refuted.refutation)
    few = merged(plan, free)
    found = _walked(few, outcome, assumed)
    return found if found.proved or few is plan else _walked(plan, outcome, assumed)  # which says where


def _walked(plan: Expanded, outcome: Outcome, assumed: frozenset[str]) -> Outcome:
    try:
        check_crossings(plan)
        events = Events(plan)
        outcome = replace(outcome, events=events.size)
        walk = Walk(events).walked()
        compare(walk, assumed)
        if walk.words.wrong:
            raise walk.words.wrong
        walk.words.counted()
        if outcome.call_period:
            steady(walk, outcome.call_period)
    except Refuted as refuted:
        return replace(outcome, refutation=refuted.refutation)
    return outcome
