"""All programs once, in an order that is possible. Only waits and raises are walked; the outcome is what each segment knows.

One order gives the happens-before relation of every interleaving, because which raises a wait waits for does not depend on the
interleaving (see `words`). Ranks 0..period - 1 are walked in lock step with their images: what rank r does at rank `at` is what
rank r - period * turn does at rank at % period, with turn = at // period, and it knows the same, seen from so far away.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from tilelink.proof.happens_before.clocks import Clocks, Raise
from tilelink.proof.happens_before.events import Events, grouped
from tilelink.proof.happens_before.refuted import Refuted, Wrong
from tilelink.proof.happens_before.rows import Kind
from tilelink.proof.happens_before.words import Words


@dataclass(slots=True)
class _Run:
    """A program in one call: its next operation, its segment, its clock."""

    operation: int
    segment: int
    clock: int


@dataclass(slots=True)
class _Group:
    """Those of a rank that raise a word together in a call: the last of `many` does it for all."""

    many: int
    count: int = 0
    clocks: set[int] = field(default_factory=set)
    times: dict[int, int] = field(default_factory=dict)
    since: dict[int, int] = field(default_factory=dict)


class Walk:
    """`clock_of` and `moment_of` each segment: what it knows, and when it was walked."""

    def __init__(self, events: Events) -> None:
        self.events, self.calls, self.width = events, events.calls, events.width
        self.clocks = Clocks(events.ranks * events.width, events.period * events.width, max(events.end_time, default=0))
        self.words = Words(events, self.clocks)
        self.clock_of = np.zeros(events.segments, np.int64)
        self.moment_of = np.zeros(events.segments, np.int64)
        self.moment = 0
        self.forward = True  # no call waits for what a later one does
        self._operations()
        self.state = [_Run(0, 0, 0) for _ in range(events.runs)]
        self.memo: dict[tuple[int, int, int], int] = {}
        self.waiting: dict[int, list[int]] = {}
        self.groups: dict[tuple[int, int, int, int], _Group] = {}
        self.ready: deque[int] = deque()
        self.left: dict[tuple[int, int, int], int] = {}  # programs of a launch that have not ended
        self.done: dict[tuple[int, int, int], int] = {}  # the clocks with which launches end; -1: the call before
        self.launch_of = {one: number for number, (programs, _) in enumerate(events.plan.launches) for one in programs}
        self.last_of = {last: number for number, (_, last) in enumerate(events.plan.launches)}

    def walked(self) -> Walk:
        for rank in range(self.events.period):
            self._call(rank, 0, 0)
        while self.ready:
            self._advance(self.ready.popleft())
        if self.waiting:
            self._stuck()
        return self

    def _stuck(self) -> None:
        """Raises Refuted: a wait that nobody is left to answer, or else waits that stand behind each other."""
        pending: set[int] = set()
        for run, state in enumerate(self.state):
            left = range(max(state.operation, self.begin[run]), self.begin[run + 1])
            pending |= {self.operations[one][1] for one in left if self.operations[one][0] > Kind.BLOCK}
        stuck = [run for runs in self.waiting.values() for run in runs]
        alone = [run for key, runs in self.waiting.items() if key not in pending for run in runs]
        places = [self.events.place(self.event[self.state[run].operation]) for run in (alone or stuck)[:2]]
        wrong = Wrong.NEVER_RAISED if alone else Wrong.CIRCLE
        raise Refuted(wrong, *places[: 1 if alone else 2], detail=f"{len(stuck)} programs never go on")

    def _operations(self) -> None:
        """Waits and raises as lists. Those that raise together raise once a segment and word, behind all of the segment."""
        events = self.events
        chosen = events.waits | (events.raises & (events.many == 1))
        together = np.flatnonzero(events.raises & (events.many != 1))[::-1]
        count = np.ones(len(events.run), np.int64)
        lasts, counts = grouped(*(one[together] for one in (events.segment, events.key, events.turn, events.many)))
        chosen[together[lasts]] = True
        count[together[lasts]] = counts
        at = np.flatnonzero(chosen)
        self.event: list[int] = at.tolist()
        self.begin: list[int] = np.searchsorted(events.run[at], np.arange(events.runs + 1)).tolist()
        columns = [events.kind, events.key, events.value, events.many, count, events.turn, events.time, events.since]
        self.operations = list(zip(*(one[at].tolist() for one in columns), strict=True))

    # ---- calls and launches ----
    def _run(self, rank: int, program: int, call: int) -> int:
        return (rank * self.width + program) * self.calls + call

    def _call(self, rank: int, call: int, clock: int) -> None:
        self.done[rank, call, -1] = clock
        if not self.events.plan.launches:
            self._caller(rank, call)
        for number in range(len(self.events.plan.launches)):
            self._launch(rank, call, number)

    def _launch(self, rank: int, call: int, number: int) -> None:
        """Start a launch if all that it stands behind has ended."""
        launches = self.events.plan.schedule.launches
        here = launches[number]
        before = [n for n, one in enumerate(launches[:number]) if one.stream == here.stream or one.stream in here.joins]
        if (rank, call, number) in self.left or not all((rank, call, one) in self.done for one in before):
            return
        programs, last = self.events.plan.launches[number]
        clock = self.clocks.met([self.done[rank, call, one] for one in (-1, *before)])
        self.left[rank, call, number] = len(programs)
        for program in programs:
            self._start(self._run(rank, program, call), clock)
        if not programs:
            self._start(self._run(rank, last, call), clock)

    def _caller(self, rank: int, call: int) -> None:
        launches = range(len(self.events.plan.launches))
        clocks = [self.done[rank, call, one] for one in (*launches, -1)]
        self._start(self._run(rank, self.width - 1, call), self.clocks.met(clocks))

    def _start(self, run: int, clock: int) -> None:
        self.state[run] = _Run(self.begin[run], int(self.events.first_segment[run]), clock)
        self._enter(self.state[run])
        self.ready.append(run)

    def _enter(self, state: _Run) -> None:
        self.moment += 1
        self.clock_of[state.segment], self.moment_of[state.segment] = state.clock, self.moment

    def _ended(self, run: int) -> Raise:
        end = (self.events.end_time[run],)
        return Raise(self.state[run].clock, 0, (run // self.calls,), end, end, 0, 0)

    def _finish(self, run: int) -> None:
        place, call = divmod(run, self.calls)
        rank, program = divmod(place, self.width)
        if program in self.launch_of:
            number = self.launch_of[program]
            self.left[rank, call, number] -= 1
            if not self.left[rank, call, number]:
                programs, last = self.events.plan.launches[number]
                runs = [self._run(rank, one, call) for one in programs]
                clock = np.maximum.reduce([self.clocks[one] for one in {self.state[run].clock for run in runs}])
                clock = clock.copy()
                clock[[one // self.calls for one in runs]] = [self.events.end_time[one] for one in runs]
                self._start(self._run(rank, last, call), self.clocks.added(clock))
        elif program in self.last_of:
            self.done[rank, call, self.last_of[program]] = self.clocks.joined(self.state[run].clock, [self._ended(run)])
            for later in range(len(self.events.plan.launches)):
                self._launch(rank, call, later)
            if all((rank, call, one) in self.done for one in range(len(self.events.plan.launches))):
                self._caller(rank, call)
        elif call + 1 < self.calls:
            self._call(rank, call + 1, self.clocks.joined(self.state[run].clock, [self._ended(run)]))

    # ---- programs ----
    def _advance(self, run: int) -> None:
        state, end = self.state[run], self.begin[run + 1]
        while state.operation < end:
            kind, key, value, many, count, turn, time, since = self.operations[state.operation]
            if kind <= Kind.BLOCK:
                if self.words.amount(key) < value:
                    self.waiting.setdefault(key, []).append(run)
                    return
                if value > 0:
                    self.forward &= self.words.words[key].latest(value) <= run % self.calls + 1
                    if kind == Kind.WAIT:
                        self._learn(state, key, value)
                state.segment += 1
                self._enter(state)
            else:
                self._raise(run, Kind(kind), key, value, many, count, turn, time, since)
            state.operation += 1
        self._finish(run)

    def _learn(self, state: _Run, key: int, value: int) -> None:
        memo = state.clock, key, value
        if memo not in self.memo:
            word = self.words.words[key]
            word.awaited.add(value)
            self.memo[memo] = self.clocks.joined(state.clock, word.raises_for(value))
        state.clock = self.memo[memo]

    def _raise(
        self, run: int, kind: Kind, key: int, value: int, many: int, count: int, turn: int, time: int, since: int
    ) -> None:
        program, call, event = run // self.calls, run % self.calls + 1, self.event[self.state[run].operation]
        clock, times, sinces = self.state[run].clock, {program: time}, {program: since}
        if many != 1:
            group = self.groups.setdefault((program // self.width, call, key, turn), _Group(many))
            group.count += count
            group.clocks.add(clock)
            group.times[program], group.since[program] = time, since
            if group.many != many or group.count > many:
                detail = f"{group.count} for the last of {' and '.join(map(str, sorted({many, group.many})))}"
                raise Refuted(Wrong.TOO_MANY, self.events.place(event), detail=detail)
            if group.count < many:
                return
            clock, times, sinces = self.clocks.met(sorted(group.clocks)), group.times, group.since
        seen = tuple((one - turn * self.clocks.period) % self.clocks.size for one in times)  # by the owner of the word
        new = Raise(clock, turn, seen, tuple(times.values()), tuple(sinces.values()), call, event)
        self.words.put(key, kind, value, new)
        self.ready.extend(self.waiting.pop(key, ()))
