"""A schedule as rows: each step is evaluated once, for all ranks, calls and positions for which it is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tilelink.ir.enums import Protocol
from tilelink.proof.happens_before.lanes import Flags, Lanes, Tables
from tilelink.proof.happens_before.pipelining import head_of, in_ping_pong, prefetched
from tilelink.proof.happens_before.refuted import Refuted, Wrong
from tilelink.proof.happens_before.rows import NOTIFIES, ORDERS, READS, WAITS, WRITES, Block, Expanded, Kind, Rows
from tilelink.proof.happens_before.turns import Turns
from tilelink.schedule.index import Index, Ints, Number, names_in, rank, replaced
from tilelink.schedule.memory import Buffer, Memory, Region
from tilelink.schedule.ranges import ANYTHING, Range, range_of
from tilelink.schedule.roles import Launch, Phase, PingPong, Plain, Prefetch, Role, Schedule, Sms, Who
from tilelink.schedule.steps import Call, For, If, Load, Move, Notify, Step, Store, Wait
from tilelink.schedule.walk import read, written


def expanded(schedule: Schedule, tables: Tables, calls: int, turns: Turns) -> Expanded:
    """What ranks 0..period - 1 do in calls 1..`calls`. Raises Refuted for what has no meaning on any rank."""
    return _Expansion(schedule, tables, Expanded(schedule, calls, turns)).all()


class _Expansion:
    def __init__(self, schedule: Schedule, tables: Tables, out: Expanded) -> None:
        self.schedule, self.tables, self.out = schedule, tables, out
        self.buffers: dict[str, Buffer] = {one.name: one for one in schedule.buffers}
        self.signals = [one.name for one in schedule.signals]
        out.shapes = {name: schedule.shapes[name] for name in (*self.buffers, *self.signals)}
        self.entries = {
            name: Range(min(int(one.min()), 0), int(one.max())) if one.size else Range(0, 0)
            for name, one in tables.items()
        }
        number = np.arange(out.turns.period * out.calls)
        names: dict[str, int | Ints] = {"rank": number // out.calls, "call": number % out.calls + 1, "tile": number * 0}
        self.each = Lanes(names, number * 0, number * 0)  # a lane for each rank and call
        self.ahead = False  # whether waits and loads belong to the head of a position
        self.in_order = True  # whether a Move is done in the order of a stream, and its loads do not float

    def all(self) -> Expanded:
        for buffer in self.schedule.buffers:
            shared, outside = buffer.memory is Memory.SYMMETRIC, buffer.memory in (Memory.INPUT, Memory.OUTPUT)
            if (buffer.for_caller and not shared) or (
                buffer.protocol is not Protocol.SIMPLE and (outside or buffer.for_caller)
            ):
                raise Refuted(Wrong.MALFORMED, detail=f"{buffer.name} cannot be given by, or to, the caller")
        for number, launch in enumerate(self.schedule.launches):
            self._launch(number, launch)
        caller = self.out.program("the caller")
        lanes = replace(self.each, program=self.each.program + caller)
        self.in_order = True
        for buffer in self.schedule.buffers:
            if buffer.memory is Memory.OUTPUT or buffer.for_caller:
                shape = self.out.shapes[buffer.name]
                whole = Region(buffer.name, (0,) * len(shape), shape)
                self._access(Kind.READ, Call("caller", (), (whole,)), whole, lanes)
        return self.out

    # ---- who ----
    def _launch(self, number: int, launch: Launch) -> None:
        programs: list[int] = []
        host = launch.roles[-1] if launch.roles else None
        for role in launch.roles:
            if role.inside and (host is None or not isinstance(host.engine, Sms) or host.inside):
                detail = (
                    f"warps of {role.name} are in no programs: the last role of its launch has none of its own on SMs"
                )
                raise Refuted(Wrong.MALFORMED, detail=detail)
            mine = [self.out.program(f"{role.name}.{one}") for one in range(role.programs)]
            if not mine:
                raise Refuted(Wrong.NO_PROGRAM, detail=f"role {role.name}")
            programs += mine
            self.in_order = not isinstance(role.engine, Sms)
            base = 0
            for phase in role.phases:
                if phase.who is not Who.LAST:
                    base, more = self._phase(role, phase, mine, base)
                    programs += more
        last = self.out.program(f"the last of launch {number}")
        base = 0
        for role in launch.roles:
            self.in_order = not isinstance(role.engine, Sms)
            for phase in role.phases:
                if phase.who is Who.LAST:
                    base, _ = self._phase(role, replace(phase, pipelining=Plain()), [last], base)
        self.out.launches.append((programs, last))

    def _phase(self, role: Role, phase: Phase, mine: list[int], base: int) -> tuple[int, list[int]]:
        """Rows of a phase whose order begins at `base`; where it ends, and the programs that a pipeline adds."""
        counts = np.maximum(self.each.value(phase.count, self.tables), 0)
        lanes, tile = self.each.repeated(counts)
        tile = tile + lanes.value(phase.first, self.tables)
        programs = 1 if phase.who is Who.FIRST else len(mine)
        number, program = tile // programs, tile % programs
        if phase.every and programs > 1:
            lanes, program = lanes.having(tile=tile).repeated(np.full(len(lanes), programs))
            number = tile = lanes.value(Index("tile"), self.tables)
        if not len(lanes):
            return base, []
        number = number - number.min()
        names = {**lanes.names, "tile": tile, "program": program}
        lanes = Lanes(names, program + mine[0], number).with_let(phase.let, self.tables)
        head = 0 if isinstance(phase.pipelining, Plain) else head_of(phase.body)
        ahead, behind = phase.body[:head], phase.body[head:]
        width, first = self._width(phase.body, _ranges(lanes)), len(self.out.rows)
        lanes = replace(lanes, order=base + number * width)
        self.ahead = True
        self._steps(ahead, lanes)
        self.ahead = False
        self._steps(behind, lanes.later(self._width(ahead, _ranges(lanes))))
        rows, steps = self.out.rows[first:], int(number.max()) + 1
        if isinstance(phase.pipelining, Plain) or not rows:
            return base + steps * width, []
        del self.out.rows[first:]
        if isinstance(phase.pipelining, Prefetch):
            self.out.rows += prefetched(rows, base, width, phase.pipelining.defer)
            return base + 3 * (steps + 2) * width, []
        before = 3 if isinstance(phase.pipelining, PingPong) else 2
        rows, more = in_ping_pong(self.out, rows, role.name, mine[:programs], base, width, before)
        self.out.rows += rows
        return base + 2 * ORDERS, more

    def _width(self, body: tuple[Step, ...], ranges: Mapping[str, Range]) -> int:
        """How many places the steps take in the order of a program, at most."""
        out = 0
        for step in body:
            match step:
                case For(variable, count, inner, let):
                    rounds = range_of(count, ranges, self.entries).high
                    if rounds == ANYTHING.high:
                        raise Refuted(Wrong.MALFORMED, detail=f"nothing says how often the loop over {variable} goes")
                    more = {**ranges, variable: Range(0, max(rounds - 1, 0))}
                    for name, index in let:
                        more[name] = range_of(index, more, self.entries)
                    out += max(int(rounds), 0) * self._width(inner, more)
                case If(_, _, inner, others):
                    out += self._width(inner, ranges) + self._width(others, ranges)
                case _:
                    out += ORDERS
        return out

    # ---- what ----
    def _steps(self, body: tuple[Step, ...], lanes: Lanes) -> None:
        ranges = _ranges(lanes)
        for step in body:
            if not len(lanes):
                return
            width = self._width((step,), ranges)
            match step:
                case For(variable, count, inner, let):
                    rounds = np.maximum(lanes.value(count, self.tables), 0)
                    more, number = lanes.repeated(rounds)
                    if len(more):
                        each = width // max(int(range_of(count, ranges, self.entries).high), 1)
                        more = replace(more, order=more.order + number * each)
                        self._steps(inner, more.having(**{variable: number}).with_let(let, self.tables))
                case If(left, right, inner, others):
                    same = lanes.value(left, self.tables) == lanes.value(right, self.tables)
                    self._steps(inner, lanes.at(same))
                    self._steps(others, lanes.at(~same).later(self._width(inner, ranges)))
                case _:
                    self._step(step, lanes)
            lanes = lanes.later(width)

    def _step(self, step: Step, lanes: Lanes) -> None:
        match step:
            case Wait(signal, index, until):
                kind = Kind.BLOCK if isinstance(step, Block) else Kind.WAIT
                self._word(kind, signal, step, index, rank, lanes.later(WAITS), until)
            case Notify():
                self._notify(step, step, lanes)
            case Load() | Store() | Move() | Call():
                for region in read(step):
                    self._access(Kind.READ, step, region, lanes)
                for region in written(step):
                    self._access(Kind.WRITE, step, region, lanes)
                if isinstance(step, Move) and step.notify:
                    self._notify(step, step.notify, lanes)

    def _notify(self, step: Step, notify: Notify, lanes: Lanes) -> None:
        kind, to = (Kind.ADD, 0) if notify.to is None else (Kind.SET, notify.to)
        lanes = lanes.later(NOTIFIES)
        self._word(kind, notify.signal, step, notify.index, notify.at, lanes, to, notify.last_of)

    def _word(
        self,
        kind: Kind,
        name: str,
        step: Step,
        index: tuple[Number, ...],
        at: Number,
        lanes: Lanes,
        value: Number,
        many: Number = 1,
    ) -> None:
        if name not in self.signals or len(index) != len(self.out.shapes[name]):
            raise Refuted(Wrong.MALFORMED, detail=f"no signal {name} of {len(index)} dimensions")
        start = tuple(lanes.value(one, self.tables) for one in index)
        rows = self._rows(kind, name, step, lanes, at, start)
        rows = replace(rows, value=lanes.value(value, self.tables), many=lanes.value(many, self.tables))
        for place, extent in zip(start, self.out.shapes[name], strict=True):
            self._refute(Wrong.NO_WORD, rows, (place < 0) | (place >= extent))
        self.out.rows.append(replace(rows, ahead=self.ahead and kind is Kind.WAIT))

    def _rows(
        self,
        kind: Kind,
        name: str,
        step: Step,
        lanes: Lanes,
        at: Number,
        start: tuple[Ints, ...],
        stop: tuple[Ints, ...] = (),
    ) -> Rows:
        rank, call, tile = (lanes.value(Index(name), self.tables) for name in ("rank", "call", "tile"))
        owner = lanes.value(at, self.tables)
        rows = Rows(kind, name, step, rank, call, lanes.program, lanes.order, tile, owner, start, stop)
        self._refute(Wrong.NO_RANK, rows, (owner < 0) | (owner >= self.schedule.num_ranks))
        return rows

    def _refute(self, wrong: Wrong, rows: Rows, where: Flags) -> None:
        if where.any():
            raise Refuted(wrong, self.out.place(rows, int(np.flatnonzero(where)[0])))

    def _access(self, kind: Kind, step: Step, region: Region, lanes: Lanes) -> None:
        buffer, shape = self.buffers.get(region.buffer), self.out.shapes.get(region.buffer, ())
        if buffer is None or not len(region.start) == len(region.extent) == len(shape):
            raise Refuted(Wrong.MALFORMED, detail=f"no buffer {region.buffer} of {len(region.start)} dimensions")
        lanes, start, extent = self._gathered(region, lanes.later(READS if kind is Kind.READ else WRITES))
        low = tuple(np.maximum(one, 0) for one in start)
        high = tuple(np.minimum(a + b, most) for a, b, most in zip(start, extent, shape, strict=True))
        rows = self._rows(kind, region.buffer, step, lanes, region.at, low, high)
        for place, one, most in zip(start, region.extent, shape, strict=True):
            if one == 1:  # what sticks out of a longer one is masked
                self._refute(Wrong.OUTSIDE, rows, (place < 0) | (place >= most))
        if buffer.memory is not Memory.SYMMETRIC:
            self._refute(Wrong.NOT_SYMMETRIC, rows, rows.owner != rows.rank)
        if buffer.memory is Memory.INPUT and kind is Kind.WRITE:
            raise Refuted(Wrong.INPUT_WRITTEN, *([self.out.place(rows, 0)] if len(rows) else []))
        if buffer.memory is Memory.INPUT and buffer.protocol is Protocol.SIMPLE:
            return  # nothing disturbs what is never written
        there = np.logical_and.reduce([a < b for a, b in zip(low, high, strict=True)])
        rows = rows if there.all() else rows.at(there)
        floats = kind is Kind.READ and (isinstance(step, Load) or not self.in_order)
        self.out.rows.append(replace(rows, floats=floats, ahead=self.ahead and isinstance(step, Load)))

    def _gathered(self, region: Region, lanes: Lanes) -> tuple[Lanes, list[Ints], list[Ints]]:
        """Start and extent along each dimension. Where the start depends on `lane`, each element is a lane of its own."""
        own: dict[int, Number] = {}
        for number, (start, extent) in enumerate(zip(region.start, region.extent, strict=True)):
            if "lane" in names_in(start):
                lanes, lane = lanes.repeated(np.maximum(lanes.value(extent, self.tables), 0))
                name = f"lane {number}"
                lanes, own[number] = lanes.having(**{name: lane}), replaced(start, {"lane": Index(name)})
        starts = [lanes.value(own.get(number, one), self.tables) for number, one in enumerate(region.start)]
        one = np.ones(len(lanes), np.int64)
        extents = [
            one if number in own else lanes.value(extent, self.tables) for number, extent in enumerate(region.extent)
        ]
        return lanes, starts, extents


def _ranges(lanes: Lanes) -> dict[str, Range]:
    """Between which numbers names lie in these lanes."""
    found = {}
    for name, one in lanes.names.items():
        if not isinstance(one, np.ndarray):
            found[name] = Range(one, one)
        elif len(one):
            found[name] = Range(int(one.min()), int(one.max()))
    return found
