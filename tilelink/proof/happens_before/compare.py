"""Every two accesses of a cell, one of them a write, are ordered; whoever reads finds what its call has written.

Per cell, in the order in which segments were walked: each access knows the last write before it, and each write knows all reads
since. All other pairs follow, because writes of a cell are a chain. The order may be any that is possible: a load that floats
up to an earlier wait (`Events.knows`) knows less, and what is possible with more knowledge is possible with less.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tilelink.proof.happens_before.events import Events
from tilelink.proof.happens_before.refuted import Refuted, Wrong
from tilelink.proof.happens_before.rows import EVERYTHING, Kind
from tilelink.proof.happens_before.walk import Walk
from tilelink.schedule.index import Ints


def compare(walk: Walk, assumed: frozenset[str] = frozenset()) -> None:
    """`assumed`: buffers whose readers are taken to find what their call wrote.

    Raises Refuted for the first pair that is in no order, or the first read that nothing was written for.
    """
    _Accesses(walk.events, walk).compare(assumed)


class _Accesses:
    """Accesses by cell, and in a cell as they were walked."""

    def __init__(self, events: Events, walk: Walk) -> None:
        self.events, self.clocks = events, walk.clocks
        at = np.flatnonzero(events.kind >= Kind.READ)
        at = at[np.argsort(walk.moment_of[events.segment[at]], kind="stable")]
        at = at[np.argsort(events.key[at], kind="stable")]
        self.at = at
        self.cell, self.kind, self.call = events.key[at], events.kind[at], events.call[at]
        self.time, self.turn = events.time[at], events.turn[at]
        self.clock = walk.clock_of[events.knows[at]]
        self.who = walk.clocks.turned(events.run[at] // events.calls, -self.turn)
        self.writes, self.here = self.kind >= Kind.EMPTY, np.arange(len(at))
        self.last = self._last_write()

    def _last_write(self) -> Ints:
        """The last write of the cell before each access; -1 where there is none."""
        if not len(self.at):
            return self.here
        new = np.ones(len(self.at), bool)
        new[1:] = self.cell[1:] != self.cell[:-1]
        start = np.maximum.accumulate(np.where(new, self.here, 0))
        last = np.full(len(self.at), -1)
        last[1:] = np.maximum.accumulate(np.where(self.writes, self.here, -1))[:-1]
        return np.where(last >= start, last, -1)

    def _next_write(self) -> Ints:
        many = len(self.at)
        following = np.full(many, many)
        following[:-1] = np.minimum.accumulate(np.where(self.writes, self.here, many)[::-1])[::-1][1:]
        same = (following < many) & (self.cell[np.minimum(following, many - 1)] == self.cell)
        return np.where(same, following, -1)

    def compare(self, assumed: frozenset[str]) -> None:
        if not len(self.at):
            return
        last, following = self.last, self._next_write()
        behind = self.here[last >= 0]
        self._ordered(last[behind], behind)
        before = self.here[~self.writes & (following >= 0)]
        self._ordered(before, following[before])
        reads = self.here[~self.writes]
        found = last[reads]
        lost = (found < 0) | (self.call[found] != self.call[reads]) | (self.kind[found] == Kind.EMPTY)
        if assumed:
            named = np.array([one.name in assumed for one in self.events.plan.rows], bool)
            lost &= ~named[self.events.row[self.at[reads]]]
        if lost.any():
            read, was = int(reads[lost][0]), int(found[lost][0])
            detail = (
                f"{self.events.key_name(int(self.cell[read]))} is {'of another call' if was >= 0 else 'not written'}"
            )
            if was >= 0 and self.kind[was] == Kind.EMPTY and self.call[was] == self.call[read]:
                detail = "it has been read, and so emptied, before"
            later = self._next_write()[read]
            if later >= 0 and self.call[later] == self.call[read] and self.kind[later] == Kind.WRITE:
                raise Refuted(Wrong.WRITTEN_LATER, *(self.events.place(int(self.at[one])) for one in (read, later)))
            raise Refuted(Wrong.NEVER_WRITTEN, self.events.place(int(self.at[read])), detail=detail)

    def _known(self, first: Ints, second: Ints) -> NDArray[np.bool_]:
        """Whether those of `second` know those of `first`."""
        known: NDArray[np.bool_] = self.who[first] == self.who[second]
        need = self.clocks.turned(self.who[first], self.turn[second])
        clock = self.clock[second]
        by = np.argsort(clock, kind="stable")
        for some in np.split(by, np.flatnonzero(np.diff(clock[by])) + 1) if len(by) else ():
            known[some] |= self.clocks[clock[some[0]]][need[some]] >= self.time[first[some]]
        return known

    def _ordered(self, first: Ints, second: Ints) -> None:
        known = self._known(first, second)
        if known.all():
            return
        bad = int(np.flatnonzero(~known)[0])
        one, other = int(first[bad]), int(second[bad])
        later, earlier = (self.events.place(int(self.at[place])) for place in (other, one))
        waits = self._waits_before(int(self.at[other]))
        if waits:  # what the later one has waited for, which should have told it of the earlier one
            later = replace(later, signal=self.events.plan.rows[int(self.events.row[waits[-1]])].name)
        raise Refuted(self._wrong(one, other), later, earlier, detail=self.events.key_name(int(self.cell[one])))

    def _wrong(self, first: int, second: int) -> Wrong:
        if self.writes[first] and self.writes[second]:
            here = (self.cell == self.cell[first]) & (self.call == self.call[first])
            in_turn = int((here & ~self.writes).sum()) >= int((here & self.writes).sum())  # a slot: each write is read
            once = self.call[first] == self.call[second] and not in_turn
            return Wrong.WRITTEN_BY_TWO if once else Wrong.OVERWRITTEN
        read, write = (second, first) if self.writes[first] else (first, second)
        if read == first or self.call[read] < self.call[write]:
            return Wrong.OVERWRITTEN if self.call[read] <= self.call[write] else Wrong.EARLY_READ
        before = int(
            self.last[write]
        )  # if the read is sure of an earlier write of its call, it is that which it is meant for
        meant = before >= 0 and self.call[before] == self.call[read]
        if meant and self._known(np.array([before]), np.array([read])).all():
            return Wrong.OVERWRITTEN
        return self._early(int(self.at[write]), int(self.at[read]))

    def _early(self, write: int, read: int) -> Wrong:
        """What is wrong with a read that may come too early: there is no wait for it, or what it awaits is raised too soon."""
        events, rows = self.events, self.events.plan.rows
        waits = self._waits_before(read)
        if not waits:
            return Wrong.NOT_AWAITED
        theirs = np.flatnonzero(events.run == events.run[write])
        awaited = {rows[events.row[one]].name for one in waits}
        raised = [one for one in theirs[events.raises[theirs]].tolist() if rows[events.row[one]].name in awaited]
        return Wrong.TOLD_EARLY if raised and raised[-1] < write else Wrong.EARLY_READ

    def _waits_before(self, access: int) -> list[int]:
        """Waits of the program of an access, in its call, that hold the access."""
        events, rows = self.events, self.events.plan.rows
        mine, here = np.flatnonzero(events.run == events.run[access]), rows[events.row[access]]
        before = mine[(events.kind[mine] == Kind.WAIT) & (mine < access)].tolist()
        return [one for one in before if not here.floats or rows[events.row[one]].covers & {here.name, *EVERYTHING}]
