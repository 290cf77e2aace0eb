"""Pipelined phases: the same events in another order, or by other programs.

The *head* of a position are its waits and loads up to its first product, before any store, move or raise: up to and with the
first step of the body that computes with a tile that was loaded, which is the loop over k of a matmul; of a fold, to the last
step that takes something into it. What an epilogue waits for and loads is never done ahead.

`Prefetch`: the head of position j + 1 comes before the rest of position j; with `defer`, notifies of j come behind the head of
j + 2 and before the rest of j + 1, where j + 1 has been computed. Nothing else changes, so this is an order of events.

`PingPong`: per program a loader does all heads, and two consumers do the rests in turn. Between them stand words of the program
(barriers in shared memory), which the rows get here: `begun` by the program for its three, `loaded` by the loader behind each
head for the consumer, `done` by each of the three behind its positions. That the loader runs only `places` loads ahead matters
for circles alone. It is taken at its strictest, one load: the head of j waits until the consumer of j - 1 has begun with it, so
until the rest of j - 3 is over. It learns nothing there, so that nothing is taken for granted which a longer ring does not give.

`Cooperative`: the same three, of which the consumers do each rest together, half of the rows each. That one of them does the
rests of even positions allows for more. The loader waits for the queries' place in shared memory, until j - 2 is over.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilelink.proof.happens_before.rows import ORDERS, Expanded, Kind, Rows
from tilelink.schedule.index import Ints
from tilelink.schedule.steps import FOLDS, Compute, Load, Notify, Order, Step, Sync
from tilelink.schedule.walk import steps_in

FAR = np.iinfo(np.int64).max


def head_of(body: tuple[Step, ...]) -> int:
    """How many steps of `body` the head is a part of."""
    folds = [at for at, step in enumerate(body) if any(map(_folds, steps_in((step,))))]
    if folds:
        return folds[-1] + 1
    loaded: set[str] = set()
    for number, step in enumerate(body):
        inner = list(steps_in((step,)))
        loaded |= {one.result for one in inner if isinstance(one, Load)}
        if any(isinstance(one, Compute) and loaded & set(one.operands) for one in inner):
            return number + 1
    return len(body)


def _folds(step: Step) -> bool:
    return isinstance(step, Compute) and step.op in FOLDS


def _position(rows: Rows, base: int, width: int) -> Ints:
    return (rows.order - base) // max(width, 1)


class _Heads:
    """Where the head of each position of each program ends."""

    def __init__(self, rows: list[Rows], base: int, width: int) -> None:
        self.base, self.width = base, width
        most = [
            max(int(column.max(initial=0)) for column in columns) + 1
            for columns in zip(*map(self._columns, rows), strict=True)
        ]
        self.most = most
        self.end = np.full(int(np.prod(most)), FAR)
        for one in rows:
            if not one.ahead:
                np.minimum.at(self.end, self._key(one), one.order)

    def _columns(self, rows: Rows) -> tuple[Ints, ...]:
        return rows.rank, rows.call, rows.program, _position(rows, self.base, self.width)

    def _key(self, rows: Rows) -> Ints:
        key = np.zeros(len(rows), np.int64)
        for column, many in zip(self._columns(rows), self.most, strict=True):
            key = key * many + column
        return key

    def split(self, rows: Rows) -> tuple[Rows, Rows]:
        head = rows.order < self.end[self._key(rows)]
        return rows.at(head), rows.at(~head)


def prefetched(rows: list[Rows], base: int, width: int, defer: bool) -> list[Rows]:
    """Three places of the width of a body for each position: of its head, of notifies, of a rest."""
    heads, out = _Heads(rows, base, width), []
    for one in rows:
        for number, part in enumerate(heads.split(one)):
            position = _position(part, base, width)
            place = 3 * position if number == 0 else 3 * position + 5
            if number == 1 and defer and isinstance(one.step, Notify):
                place = 3 * position + 7
            out.append(replace(part, order=part.order + (place - position) * width))
    return [one for one in out if len(one)]


AGENTS = ("loader", "even tiles", "odd tiles")


def in_ping_pong(
    out: Expanded, rows: list[Rows], role: str, mine: list[int], base: int, width: int, ahead: int
) -> tuple[list[Rows], list[int]]:
    """The rows of a phase of programs `mine`, and the programs that are new. The loader begins a position when the one `ahead`
    positions before is over, or earlier."""
    heads, programs = _Heads(rows, base, width), len(mine)
    new = [out.program(f"{role}.{one} ({agent})") for agent in AGENTS for one in range(programs)]
    locks = _Locks(out, rows, role, mine, new[0], base, width, ahead)
    found: list[Rows] = []
    loads = False  # whether what the loader does concerns others
    for one in rows:
        for number, part in enumerate(heads.split(one)):
            position = _position(part, base, width)
            loads |= number == 0 and len(part) > 0
            agent = position * 0 if number == 0 else 1 + position % 2
            program = part.program - mine[0] + new[0] + agent * programs
            order = part.order - base - position * width + locks.slot(position) + ORDERS
            found.append(replace(part, program=program, order=order))
    return [one for one in (*found, *locks.rows(loads)) if len(one)], new


class _Locks:
    """What keeps the three of a program together. A lane for each rank, call and program, and one for each position."""

    def __init__(
        self,
        out: Expanded,
        rows: list[Rows],
        role: str,
        mine: list[int],
        first: int,
        base: int,
        width: int,
        ahead: int,
    ) -> None:
        self.base, self.width, self.mine, self.first, self.programs = base, width, mine[0], first, len(mine)
        self.ahead = ahead
        self.words = {name: f"{name} of {role} {first}" for name in ("begun", "loaded", "done")}
        shapes = {"begun": (self.programs,), "loaded": (self.programs,), "done": (self.programs, len(AGENTS))}
        out.shapes.update({self.words[name]: shape for name, shape in shapes.items()})
        self.lane = np.arange(out.turns.period * out.calls * self.programs)
        self.rank, rest = np.divmod(self.lane, out.calls * self.programs)
        self.call, self.program = rest // self.programs + 1, rest % self.programs
        self.counts = np.zeros(len(self.lane), np.int64)
        for one in rows:
            run = (one.rank * out.calls + one.call - 1) * self.programs + one.program - self.mine
            np.maximum.at(self.counts, run, _position(one, base, width) + 1)

    def slot(self, position: Ints) -> Ints:
        """Where a position begins in the order of the three: a place, the body, a place."""
        return (position + 1) * (self.width + 2 * ORDERS)

    def _row(
        self, kind: Kind, name: str, of: Ints, who: Ints, order: Ints, value: Ints, agent: int | None = None
    ) -> Rows:
        index = (self.program[of],) if agent is None else (self.program[of], of * 0 + agent)
        rank, call, none = self.rank[of], self.call[of], of * 0
        name, step = self.words[name], Sync(Order.BARRIER)
        return Rows(kind, name, step, rank, call, who, order, none, rank, index, (), value, none + 1)

    def rows(self, loads: bool) -> list[Rows]:
        """Without `loads`, heads are empty: nobody learns from them, and what the loader waits for holds nobody up."""
        lane, counts = self.lane, self.counts
        position = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        of = np.repeat(lane, counts)
        before, behind = self.slot(position), self.slot(position) + ORDERS + self.width
        loader = self.first + self.program
        ends = self.slot(counts)
        loaded = (self.call[of] - 1) * counts[of] + position + 1
        done = (self.call - 1) * (counts + 1)  # so many positions and ends of calls before this call
        start, program = lane * 0 + self.base, self.mine + self.program
        consumer = loader[of] + (1 + position % 2) * self.programs
        found = [self._row(Kind.SET, "begun", lane, program, start, self.call)]
        if loads:
            found.append(self._row(Kind.SET, "loaded", of, loader[of], behind, loaded))
            found.append(self._row(Kind.WAIT, "loaded", of, consumer, before, loaded))
        for agent in range(len(AGENTS)):
            who, end = loader + agent * self.programs, done + counts + 1
            found.append(self._row(Kind.WAIT, "begun", lane, who, lane * 0, self.call))
            found.append(self._row(Kind.SET, "done", lane, who, ends, end, agent))
            found.append(self._row(Kind.WAIT, "done", lane, program, start + ORDERS, end, agent))
            if not loads:
                continue
            own = np.flatnonzero(position % 2 == agent - 1) if agent else lane[:0]
            over = done[of[own]] + position[own] + 1
            found.append(self._row(Kind.SET, "done", of[own], who[of[own]], behind[own], over, agent))
            later = own[own + self.ahead < len(of)]
            later = later[of[later + self.ahead] == of[later]]  # of the same program and call
            over, next_ = done[of[later]] + position[later] + 1, later + self.ahead
            found.append(self._row(Kind.BLOCK, "done", of[next_], loader[of[next_]], before[next_], over, agent))
        return found
