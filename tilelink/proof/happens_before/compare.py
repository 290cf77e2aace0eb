"""Every two accesses of a cell, one of them a write, are ordered; whoever reads finds what its call has written.

Per cell, in the order in which segments were walked: each access knows the last write before it, and each write knows all reads
since. All other pairs follow, because writes of a cell are a chain. The order may be any that is possible: a load that floats
up to an earlier wait (`Events.knows`) knows less, and what is possible with more knowledge is possible with less.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from tilelink.proof.happens_before.events import Boxes, Events, grouped, numbered, sorting
from tilelink.proof.happens_before.refuted import Refuted, Wrong
from tilelink.proof.happens_before.rows import EVERYTHING, Kind
from tilelink.proof.happens_before.walk import Walk
from tilelink.schedule.index import Ints


def compare(walk: Walk, assumed: frozenset[str] = frozenset()) -> None:
    """`assumed`: buffers whose readers are taken to find what their call wrote.

    Raises Refuted for the first pair that is in no order, or the first read that nothing was written for.
    """
    events = walk.events
    at = _once(events)
    at = at[np.argsort(walk.moment_of[events.segment[at]], kind="stable")]
    firsts = np.array([one.first for one in events.boxes])
    whose = np.searchsorted(firsts, events.key[at], side="right") - 1
    accesses = [_Accesses(walk, boxes, at[whose == number]) for number, boxes in enumerate(events.boxes)]
    for one in accesses:
        one.behind_writes()
    for one in accesses:
        one.before_writes()
    for one in accesses:
        if one.boxes.name not in assumed:
            one.written()


def _once(events: Events) -> Ints:
    """Accesses, of which reads of one box behind the same waits and before the same raise are one, unless they empty it."""
    emptied = np.isin(events.key, events.key[events.kind == Kind.EMPTY])
    plain = (events.kind == Kind.READ) & ~emptied
    reads = np.flatnonzero(plain)
    first, _ = grouped(*(one[reads] for one in (events.key, events.turn, events.knows, events.segment, events.time)))
    kept = (events.kind >= Kind.READ) & ~plain
    kept[reads[first]] = True
    return np.flatnonzero(kept)


_NOBODY = -1  # no program: who several readers are


class _Readers:
    """Accesses of a buffer, of which reads that are alike are one. `first`: of each, as numbers of accesses; `several`: whether
    they are of several programs."""

    def __init__(self, walk: Walk, walked: Ints) -> None:
        events = walk.events
        kind, alone = events.kind[walked], np.arange(len(walked))
        since = np.cumsum(kind != Kind.READ)
        # what is emptied as it is read has one reader
        plain = (kind == Kind.READ) & ~np.any(kind == Kind.EMPTY)
        columns = (events.key, events.turn, events.call, walk.clock_of[events.knows])
        first, number = numbered(np.where(plain, -1, alone), since, *(one[walked] for one in columns))
        by = np.argsort(first, kind="stable")  # as they were walked
        place = np.empty_like(by)
        place[by] = np.arange(len(by))
        self.first, group = first[by], place[number]
        members = np.argsort(group, kind="stable")
        self.many = np.bincount(group, minlength=len(first))
        self.begins = np.cumsum(self.many) - self.many
        self.who = walk.clocks.seen(events.run[walked] // events.calls, events.turn[walked])[members]
        self.time, self.event = events.time[walked][members], walked[members]
        others = self.who != np.repeat(self.who[self.begins], self.many) if len(walked) else self.who > 0
        self.several = np.bincount(group[members][others], minlength=len(first)) > 0

    def of(self, accesses: Ints) -> tuple[Ints, Ints]:
        """All that are in `accesses`: which of these, and number."""
        many = self.many[accesses]
        which = np.repeat(np.arange(len(accesses)), many)
        member = np.arange(len(which)) + np.repeat(self.begins[accesses] - np.cumsum(many) + many, many)
        return which, member


class _Accesses:
    """Accesses of the cells of a buffer: by cell, and in a cell as they were walked. `walked`: its events, as they were walked;
    `which` of them an access belongs to. Columns are of events.

    Reads of one box that know the same, with no write of the buffer between them, are one event: the first of them. What comes
    before them they know all or none, but for what a program did itself, which counts for nobody here; what comes behind them
    has to know each of them (`readers`).
    """

    def __init__(self, walk: Walk, boxes: Boxes, walked: Ints) -> None:
        self.events, self.clocks, self.boxes = walk.events, walk.clocks, boxes
        events = self.events
        self.readers = _Readers(walk, walked)
        several, walked = self.readers.several, walked[self.readers.first]
        self.walked = walked
        self.kind, self.call = events.kind[walked], events.call[walked]
        self.turn = events.turn[walked]
        self.clock = walk.clock_of[events.knows[walked]]
        self.who, self.time = walk.clocks.seen(events.run[walked] // events.calls, self.turn), events.time[walked]
        self.who[several] = _NOBODY
        which, cell = boxes.cells(events.key[walked] - boxes.first)
        by = sorting(cell)
        self.which, self.cell = which[by], cell[by]
        self.writes, self.here = (self.kind >= Kind.EMPTY)[self.which], np.arange(len(by))
        self.last = self._last_write()

    def _last_write(self) -> Ints:
        """The last write of the cell before each access; -1 where there is none."""
        if not len(self.here):
            return self.here
        new = np.ones(len(self.here), bool)
        new[1:] = self.cell[1:] != self.cell[:-1]
        start = np.maximum.accumulate(np.where(new, self.here, 0))
        last = np.full(len(self.here), -1)
        last[1:] = np.maximum.accumulate(np.where(self.writes, self.here, -1))[:-1]
        return np.where(last >= start, last, -1)

    def _next_write(self) -> Ints:
        many = len(self.here)
        following = np.full(many, many)
        following[:-1] = np.minimum.accumulate(np.where(self.writes, self.here, many)[::-1])[::-1][1:]
        same = (following < many) & (self.cell[np.minimum(following, many - 1)] == self.cell)
        return np.where(same, following, -1)

    def _event(self, access: int) -> int:
        return int(self.walked[self.which[access]])

    def behind_writes(self) -> None:
        """Each access knows the last write before it."""
        behind = self.here[self.last >= 0]
        self._ordered(self.last[behind], behind)

    def before_writes(self) -> None:
        """Each write knows the reads since the write before."""
        reads = self.here[~self.writes]
        following = self._next_write()[reads] if len(reads) else reads
        one, other = reads[following >= 0], following[following >= 0]
        first, second = self.which[one], self.which[other]
        # most pairs differ in nothing but the cell and the program that writes
        alike, number = numbered(first, self.clock[second], self.turn[second])
        rest = np.flatnonzero(~self._all_known(first[alike], second[alike])[number])
        rest = rest[~self._all_known(first[rest], second[rest], own=True)]
        if len(rest):
            bad = rest[:1]
            _, readers = self.readers.of(first[bad])
            unknown = readers[~self._readers_known(readers, np.repeat(second[bad], len(readers)), own=True)]
            self._refute(int(one[bad[0]]), int(other[bad[0]]), int(self.readers.event[unknown[0]]))

    def written(self) -> None:
        """Each read finds what its call has written."""
        reads = self.here[~self.writes]
        found = self.last[reads]
        writer = self.which[found]
        lost = (found < 0) | (self.call[writer] != self.call[self.which[reads]]) | (self.kind[writer] == Kind.EMPTY)
        if not lost.any():
            return
        read, was = int(reads[lost][0]), int(found[lost][0])
        detail = f"{self.boxes.cell_name(int(self.cell[read]))} is {'of another call' if was >= 0 else 'not written'}"
        call = self.call[self.which[read]]
        if was >= 0 and self.kind[self.which[was]] == Kind.EMPTY and self.call[self.which[was]] == call:
            detail = "it has been read, and so emptied, before"
        later = int(self._next_write()[read])
        if later >= 0 and self.call[self.which[later]] == call and self.kind[self.which[later]] == Kind.WRITE:
            raise Refuted(Wrong.WRITTEN_LATER, *(self.events.place(self._event(one)) for one in (read, later)))
        raise Refuted(Wrong.NEVER_WRITTEN, self.events.place(self._event(read)), detail=detail)

    def _all_known(self, first: Ints, second: Ints, *, own: bool = False) -> NDArray[np.bool_]:
        """Whether those of `second` know each reader of those of `first`, both as numbers of events; `own`: or are it."""
        pair, readers = self.readers.of(first)
        found = np.ones(len(first), bool)
        found[pair[~self._readers_known(readers, second[pair], own=own)]] = False
        return found

    def _readers_known(self, readers: Ints, second: Ints, *, own: bool) -> NDArray[np.bool_]:
        known = self._know(second, self.readers.who[readers], self.readers.time[readers])
        return known | (self.readers.who[readers] == self.who[second]) if own else known

    def _known(self, first: Ints, second: Ints) -> NDArray[np.bool_]:
        """Whether those of `second` know those of `first`, or are of the same program, both as numbers of events."""
        known: NDArray[np.bool_] = self.who[first] == self.who[second]
        others = np.flatnonzero(~known)
        known[others] = self._know(second[others], self.who[first[others]], self.time[first[others]])
        return known

    def _know(self, events: Ints, who: Ints, time: Ints) -> NDArray[np.bool_]:
        """Whether events know programs at a time."""
        return self.clocks.know(self.clock[events], self.clocks.turned(who, self.turn[events]), time)

    def _ordered(self, first: Ints, second: Ints) -> None:
        known = self._known(self.which[first], self.which[second])
        if not known.all():
            bad = int(np.flatnonzero(~known)[0])
            self._refute(int(first[bad]), int(second[bad]))

    def _refute(self, one: int, other: int, reader: int | None = None) -> NoReturn:
        """The second access does not know the first one, or a reader of it."""
        first = self._event(one) if reader is None else reader
        later, earlier = self.events.place(self._event(other)), self.events.place(first)
        waits = self._waits_before(self._event(other))
        if waits:  # what the later one has waited for, which should have told it of the earlier one
            later = replace(later, signal=self.events.plan.rows[int(self.events.row[waits[-1]])].name)
        raise Refuted(self._wrong(one, other), later, earlier, detail=self.boxes.cell_name(int(self.cell[one])))

    def _wrong(self, first: int, second: int) -> Wrong:
        call, other_call = (int(self.call[self.which[one]]) for one in (first, second))
        if self.writes[first] and self.writes[second]:
            here = (self.cell == self.cell[first]) & (self.call[self.which] == call)
            in_turn = int((here & ~self.writes).sum()) >= int((here & self.writes).sum())  # a slot: each write is read
            once = call == other_call and not in_turn
            return Wrong.WRITTEN_BY_TWO if once else Wrong.OVERWRITTEN
        (read, of_read), (write, of_write) = (first, call), (second, other_call)
        if self.writes[first]:
            (read, of_read), (write, of_write) = (second, other_call), (first, call)
        if read == first or of_read < of_write:
            return Wrong.OVERWRITTEN if of_read <= of_write else Wrong.EARLY_READ
        before = int(self.last[write])  # if the read is sure of an earlier write of its call, it is meant for that one
        meant = before >= 0 and self.call[self.which[before]] == of_read
        if meant and self._known(self.which[[before]], self.which[[read]]).all():
            return Wrong.OVERWRITTEN
        return self._early(self._event(write), self._event(read))

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
