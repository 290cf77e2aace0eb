"""All programs once, in an order that is possible. Only waits and raises are walked; the outcome is what each segment knows.

One order gives the happens-before relation of every interleaving, because which raises a wait waits for does not depend on the
interleaving (see `words`). Ranks 0..period - 1 are walked in lock step with their images: what rank r does at rank `at` is what
the rank that turn = at // period takes to r does at rank at % period, and it knows the same, seen from there (`turns`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from tilelink.proof.happens_before.added import Told
from tilelink.proof.happens_before.clocks import Clocks
from tilelink.proof.happens_before.events import Events
from tilelink.proof.happens_before.flights import FLIGHTS, IN_ORDER
from tilelink.proof.happens_before.operations import Operations
from tilelink.proof.happens_before.refuted import Refuted, Wrong
from tilelink.proof.happens_before.rows import Kind
from tilelink.proof.happens_before.words import Words
from tilelink.schedule.index import Ints


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
    members: list[int] = field(default_factory=list)


class Walk:
    """`clock_of` and `moment_of` each segment: what it knows, and when it was walked."""

    def __init__(self, events: Events) -> None:
        self.events, self.calls, self.width = events, events.calls, events.width
        self.clocks = Clocks(events.plan.turns, events.width, max(events.end_time, default=0))
        self.clocks.with_ends(self._groups(), self.calls)
        self.operations = Operations(events)
        self.words = Words(events, self.operations, self.clocks)
        self.clock_of = self.words.clock_of
        self.moment_of: Ints = np.zeros(events.segments, np.int64)
        self.moment = 0
        self.forward = True  # no call waits for what a later one does
        self.state = [_Run(0, 0, 0) for _ in range(events.runs)]
        self.memo: dict[tuple[int, int], int] = {}
        self.told: dict[int, Told] = {}
        self.latest = [0] * self.operations.pairs  # the latest call that raises what is awaited, once that is known
        self.waiting: dict[int, list[int]] = {}
        self.groups: dict[tuple[int, int, int, int], _Group] = {}
        self.ready: deque[int] = deque()
        self.left: dict[tuple[int, int, int], int] = {}  # programs of a launch that have not ended
        self.done: dict[tuple[int, int, int], int] = {}  # the clocks with which launches end; -1: the call before
        self.launch_of = {one: number for number, (programs, _) in enumerate(events.plan.launches) for one in programs}
        self.last_of = {last: number for number, (_, last) in enumerate(events.plan.launches)}

    def _groups(self) -> Ints:
        """Of each program of a rank, a number of those that end together."""
        group = np.zeros(self.width, np.int64)
        for number, (programs, last) in enumerate(self.events.plan.launches):
            group[programs], group[last] = 2 * number + 1, 2 * number + 2
        return group

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
        ops = self.operations
        for run, state in enumerate(self.state):
            left = range(max(state.operation, ops.begin[run]), ops.begin[run + 1])
            pending |= {ops.word[one] for one in left if ops.kind[one] > Kind.BLOCK}
        stuck = [run for runs in self.waiting.values() for run in runs]
        alone = [run for word, runs in self.waiting.items() if word not in pending for run in runs]
        places = [self.words.place(self.state[run].operation) for run in (alone or stuck)[:2]]
        wrong = Wrong.NEVER_RAISED if alone else Wrong.CIRCLE
        raise Refuted(wrong, *places[: 1 if alone else 2], detail=f"{len(stuck)} programs never go on")

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
        clocks = [self.done[rank, call, one] for one in (-1, *before)]
        if here.stream == IN_ORDER and call:  # a queue of puts, which goes on from call to call
            clocks.append(self.done[rank, call - 1, number])
        clock = self.clocks.met(clocks)
        self.left[rank, call, number] = len(programs)
        for program in programs:
            self._start(self._run(rank, program, call), clock)
        if not programs:
            self._start(self._run(rank, last, call), clock)

    def _caller(self, rank: int, call: int) -> None:
        launches = self.events.plan.schedule.launches
        ended = [number for number, one in enumerate(launches) if one.stream not in FLIGHTS]
        clocks = [self.done[rank, call, one] for one in (*ended, -1)]
        self._start(self._run(rank, self.width - 1, call), self.clocks.met(clocks))

    def _start(self, run: int, clock: int) -> None:
        self.state[run] = _Run(self.operations.begin[run], int(self.events.first_segment[run]), clock)
        self._enter(self.state[run])
        self.ready.append(run)

    def _enter(self, state: _Run) -> None:
        self.moment += 1
        self.clock_of[state.segment], self.moment_of[state.segment] = state.clock, self.moment

    def _ended(self, runs: list[int]) -> int:
        """What is known behind the ends of runs."""
        programs, times = np.array(runs) // self.calls, np.array([self.events.end_time[one] for one in runs])
        return self.clocks.ended([self.state[one].clock for one in runs], programs, times, runs[0] % self.calls + 1)

    def _finish(self, run: int) -> None:
        place, call = divmod(run, self.calls)
        rank, program = divmod(place, self.width)
        if program in self.launch_of:
            number = self.launch_of[program]
            self.left[rank, call, number] -= 1
            if not self.left[rank, call, number]:
                programs, last = self.events.plan.launches[number]
                runs = [self._run(rank, one, call) for one in programs]
                self._start(self._run(rank, last, call), self._ended(runs))
        elif program in self.last_of:
            self.done[rank, call, self.last_of[program]] = self._ended([run])
            for later in range(len(self.events.plan.launches)):
                self._launch(rank, call, later)
            if all((rank, call, one) in self.done for one in range(len(self.events.plan.launches))):
                self._caller(rank, call)
        elif call + 1 < self.calls:
            self._call(rank, call + 1, self._ended([run]))

    # ---- programs ----
    def _advance(self, run: int) -> None:
        ops, state, amount = self.operations, self.state[run], self.words.amount
        kind, word, value, plain, pair = ops.kind, ops.word, ops.value, ops.plain, ops.pair
        words, waiting, latest, memo = self.words.words, self.waiting, self.latest, self.memo
        call, clock, end = run % self.calls + 1, state.clock, ops.begin[run + 1]
        for one in range(state.operation, end):
            at = word[one]
            if plain[one]:
                words[at].raises.append(one)
                amount[at] += 1
                if at in waiting:
                    self.ready.extend(waiting.pop(at))
            elif kind[one] <= Kind.BLOCK:
                until = value[one]
                if amount[at] < until:
                    state.operation = one
                    waiting.setdefault(at, []).append(run)
                    return
                if until > 0:
                    awaited = pair[one]
                    if not latest[awaited]:
                        latest[awaited] = self.words.latest(at, until)
                    if latest[awaited] > call:
                        self.forward = False
                    if kind[one] == Kind.WAIT:
                        if (clock, awaited) not in memo:
                            memo[clock, awaited] = self._learned(clock, awaited, at, until)
                        state.clock = clock = memo[clock, awaited]
                state.segment += 1
                self._enter(state)
            else:
                self._raise(run, one)
        state.operation = end
        self._finish(run)

    def _learned(self, clock: int, awaited: int, number: int, until: int) -> int:
        word = self.words.words[number]
        word.awaited.add(until)
        told = self.told.get(awaited)
        if told is None:
            told = self.told[awaited] = self.words.told(word.raises_for(until))
        return self.clocks.joined(clock, told)

    def _raise(self, run: int, operation: int) -> None:
        ops = self.operations
        word, many = ops.word[operation], ops.many[operation]
        if many != 1:
            rank, call, turn = run // self.calls // self.width, run % self.calls, int(ops.turn[operation])
            group = self.groups.setdefault((rank, call, word, turn), _Group(many))
            group.count += ops.count[operation]
            group.members.append(operation)
            if group.many != many or group.count > many:
                detail = f"{group.count} for the last of {' and '.join(map(str, sorted({many, group.many})))}"
                raise Refuted(Wrong.TOO_MANY, self.words.place(operation), detail=detail)
            if group.count < many:
                return
            self.words.together(operation, group.members)
        self.words.put(operation)
        if word in self.waiting:
            self.ready.extend(self.waiting.pop(word))
