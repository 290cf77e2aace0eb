"""Schedules run as they are written: steps of all ranks on arrays, programs in any order that waits allow.

What a schedule computes is checked by running it on random inputs at small sizes. That the order of programs makes no
difference is the business of the proof; a seed chooses one here. Values are as exact as the arrays, nothing is rounded.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilelink.ir.enums import Protocol
from tilelink.schedule.exact_ops import COLLECTIVES, OPS, Array, Op
from tilelink.schedule.index import Index, Ints, Number, evaluate, names_in, tables_in
from tilelink.schedule.instance import instantiated
from tilelink.schedule.memory import Buffer, Memory, Region
from tilelink.schedule.ranges import Range, range_of
from tilelink.schedule.roles import Phase, Role, Schedule, Who
from tilelink.schedule.steps import (
    INDEX_PROGRAMS,
    SEND_RECEIVE,
    Call,
    Compute,
    For,
    If,
    Let,
    Load,
    Move,
    Notify,
    Step,
    Store,
    Sync,
    Wait,
)
from tilelink.schedule.tables import made_tables

Env = dict[str, int | Ints]
Running = Generator[None, None, None]  # yields where it cannot go on

_PASSED_OVER = (0.0, 0.9, 0.99, 0.999)


class NeverEnds(Exception):
    """Programs wait for each other, or for what nobody raises."""


class NotInterpreted(Exception):
    """A call of a library that has no meaning here."""


@dataclass
class _Rank:
    number: int
    buffers: dict[str, Array]
    stamps: dict[str, Ints]  # of words that say themselves that they have arrived: the call that they are of
    signals: dict[str, Ints]
    tables: dict[str, Ints]
    counts: dict[tuple[object, ...], int] = field(default_factory=dict)  # of those that raise a word together


class Interpreter:
    """All ranks of `schedule`. `ops` are more than `OPS`; `tables` as for the proof, but for those that calls make. Programs of
    launches on streams that are `late` run seldom, some of them hardly ever, and so in any order."""

    def __init__(
        self,
        schedule: Schedule,
        ops: Mapping[str, Op] | None = None,
        tables: Mapping[str, Ints] | None = None,
        seed: int = 0,
        late: Collection[str] = (),
    ) -> None:
        self.late = late
        self.schedule = instantiated(schedule)
        given = {name: np.asarray(one, np.int64) for name, one in (tables or {}).items()}
        self.entries: dict[str, Range] = {}
        for table in self.schedule.tables:
            self.entries[table.name] = Range(0, range_of(table.below, {}, self.entries).high - 1)
        self.ops = OPS | dict(ops or {})
        self.random = random.Random(seed)
        self.meetings: dict[tuple[int, str], dict[int, Array]] = {}  # what ranks have given to a collective of a call
        self.messages: dict[tuple[str, int, int], deque[Array]] = defaultdict(deque)  # of a role, on their way
        self.progress = 0  # steps that have been done so far
        self.declared: dict[str, Buffer] = {buffer.name: buffer for buffer in schedule.buffers}
        self.call_number = 0
        shapes = self.schedule.shapes
        words = [one.name for one in schedule.buffers if one.protocol is not Protocol.SIMPLE]
        self.ranks = [
            _Rank(
                rank,
                {one.name: np.full(shapes[one.name], np.nan) for one in schedule.buffers},
                {name: np.zeros(shapes[name], np.int64) for name in words},
                {one.name: np.zeros(shapes[one.name], np.int64) for one in schedule.signals},
                dict(given),
            )
            for rank in range(schedule.num_ranks)
        ]

    def call(self, inputs: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
        """Outputs of each rank, from the inputs of each. Raises NeverEnds, NotInterpreted, IndexError, KeyError."""
        self.call_number += 1
        for rank, given in zip(self.ranks, inputs, strict=True):
            for name, value in given.items():
                rank.buffers[name] = np.array(value, np.float64)
            for buffer in self.schedule.buffers:
                if buffer.memory is Memory.OUTPUT:
                    rank.buffers[buffer.name] = np.full(self.schedule.shapes[buffer.name], np.nan)
            rank.counts.clear()
        self.lazy: dict[int, float] = {}  # how often tasks are passed over
        self._all([task for rank in self.ranks for task in _Launches(self, rank).tasks()])
        read = [one.name for one in self.schedule.buffers if one.memory is Memory.OUTPUT or one.for_caller]
        return [{name: rank.buffers[name].copy() for name in read} for rank in self.ranks]

    def _all(self, tasks: list[Running]) -> None:
        idle = 0
        while tasks:
            task = tasks.pop(self.random.randrange(len(tasks)) if idle == 0 else 0)
            if self.lazy and idle <= len(tasks) and self.random.random() < self.lazy.get(id(task), 0.0):
                tasks.append(task)
                idle += idle > 0
                continue
            before = self.progress
            try:
                next(task)
                tasks.append(task)
                idle = 0 if self.progress != before else idle + 1
            except StopIteration:
                idle = 0
            if idle > 2 * len(tasks):
                raise NeverEnds(f"{len(tasks)} programs of call {self.call_number} never end")


class _Launches:
    """The launches of a rank in a call: each behind those that it stands behind."""

    def __init__(self, run: Interpreter, rank: _Rank) -> None:
        self.run, self.rank = run, rank
        self.left: list[int] = []

    def tasks(self) -> list[Running]:
        found: list[Running] = []
        for number, launch in enumerate(self.run.schedule.launches):
            programs = [(role, program) for role in launch.roles for program in range(role.programs)]
            self.left.append(len(programs) + 1)
            tasks = [self._program(number, role, program) for role, program in programs]
            if launch.stream in self.run.late:
                self.run.lazy |= {id(task): self.run.random.choice(_PASSED_OVER) for task in tasks}
            found += tasks
            found.append(self._last(number))
        return found

    def _ready(self, number: int) -> bool:
        launches = self.run.schedule.launches
        here = launches[number]
        return all(
            self.left[n] == 0
            for n, one in enumerate(launches[:number])
            if one.stream == here.stream or one.stream in here.joins
        )

    def _program(self, number: int, role: Role, program: int) -> Running:
        while not self._ready(number):
            yield
        for phase in role.phases:
            if phase.who is not Who.LAST and not (phase.who is Who.FIRST and program):
                late = self.run.schedule.launches[number].stream in self.run.late
                yield from _Program(self.run, self.rank, role, late).phase(phase, program, phase.who is Who.FIRST)
        self.left[number] -= 1
        self.run.progress += 1

    def _last(self, number: int) -> Running:
        while self.left[number] > 1:
            yield
        for role in self.run.schedule.launches[number].roles:
            for phase in role.phases:
                if phase.who is Who.LAST:
                    yield from _Program(self.run, self.rank, role).phase(phase, 0, alone=True)
        self.left[number] -= 1
        self.run.progress += 1


class _Program:
    """A program in a call. `values` are the tiles that it holds; one that is `late` may stop behind each step."""

    def __init__(self, run: Interpreter, rank: _Rank, role: Role, late: bool = False) -> None:
        self.run, self.rank, self.role, self.late = run, rank, role, late
        self.values: dict[str, Array] = {}

    def phase(self, phase: Phase, program: int, alone: bool) -> Running:
        env: Env = {"rank": self.rank.number, "call": self.run.call_number, "program": program}
        first, count = self.number(phase.first, env), self.number(phase.count, env)
        for tile in range(first, first + count):
            if alone or phase.every or tile % self.role.programs == program:
                yield from self.steps(phase.body, self.with_let(phase.let, {**env, "tile": tile}))

    def number(self, index: Number, env: Env) -> int:
        return int(evaluate(index, env, self.rank.tables))

    def with_let(self, let: Let, env: Env) -> Env:
        found = dict(env)
        for name, index in let:
            found[name] = self.number(index, found)
        return found

    def steps(self, body: tuple[Step, ...], env: Env) -> Running:
        for step in body:
            match step:
                case For():
                    for number in range(self.number(step.count, env)):
                        yield from self.steps(step.body, self.with_let(step.let, {**env, step.variable: number}))
                case If():
                    same = self.number(step.left, env) == self.number(step.right, env)
                    yield from self.steps(step.body if same else step.others, env)
                case Wait():
                    place = tuple(self.number(one, env) for one in step.index)
                    until = self.number(step.until, env)
                    while self.rank.signals[step.signal][place] < until:
                        yield
                case Call() if step.function in COLLECTIVES:
                    yield from self.collective(step, env)
                case Call() if step.function == SEND_RECEIVE:
                    yield from self.send_receive(step, env)
                case Load():
                    yield from self.arrived(step.region, env)
                    self.values[step.result] = _tile(self.load(step.region, env, step.fill))
                case _:
                    self.at_once(step, env)
            self.run.progress += 1
            if self.late:
                yield

    def at_once(self, step: Step, env: Env) -> None:
        match step:
            case Notify():
                self.notify(step, env)
            case Store():
                value = self.values[step.value]
                self.store(step.region, env, value if step.skip == 0 else _behind(value, self.number(step.skip, env)))
            case Move():
                for source, target in zip(step.source, step.target, strict=True):
                    self.store(target, env, self.load(source, env, 0))
                if step.notify is not None:
                    self.notify(step.notify, env)
            case Compute():
                self.compute(step, env)
            case Call():
                self.library(step, env)
            case Sync():
                pass
            case _:
                raise AssertionError(f"{type(step).__name__} is no step of one moment")

    def notify(self, step: Notify, env: Env) -> None:
        at, place = self.number(step.at, env), tuple(self.number(one, env) for one in step.index)
        last_of = self.number(step.last_of, env)
        if last_of != 1:
            key = (step.signal, at, place)
            self.rank.counts[key] = self.rank.counts.get(key, 0) + 1
            if self.rank.counts[key] < last_of:
                return
        words = self.run.ranks[at].signals[step.signal]
        words[place] = words[place] + 1 if step.to is None else self.number(step.to, env)

    def compute(self, step: Compute, env: Env) -> None:
        shape = tuple(self.number(one, env) for one in step.shape)
        if step.op == "own_place":  # the only one
            self.values[step.results[0]] = np.zeros(shape)
            return
        operands = [self.operand(one, env) for one in step.operands]
        if step.op in ("zeros", "full"):
            found: Array | tuple[Array, ...] = np.full(shape, operands[0] if step.op == "full" else 0.0)
        else:
            found = self.run.ops[step.op](*operands)
        several = found if isinstance(found, tuple) else (found,)
        self.values.update(zip(step.results, several, strict=True))

    def operand(self, one: str | float | Index, env: Env) -> Array | float:
        if isinstance(one, Index):
            return self.number(one, env)
        return self.values[one] if isinstance(one, str) and one in self.values else float(one)

    def library(self, step: Call, env: Env) -> None:
        if step.function in INDEX_PROGRAMS:
            self.index_rows(step, env)
            return
        if step.function not in ("matmul", "matmul_transposed") or len(step.operands) != 2:
            raise NotInterpreted(step.function)
        left, right = (_matrix(self.load(one, env, 0)) for one in step.operands)
        (result,) = step.results
        product = left @ (right.T if step.function == "matmul_transposed" else right)
        extents = self.extents(result, env)
        rows = int(np.prod(extents[:-1]))  # those of a ragged chunk are followed by rows that are masked
        self.store(result, env, product[:rows].reshape(extents))

    def index_rows(self, step: Call, env: Env) -> None:
        """Tables of a routing; -1 is where they have no entry."""
        ids, shapes = self.load(step.operands[0], env, -1).astype(np.int64), self.run.schedule.shapes
        tables = {name: np.full(shapes[name], -1, np.int64) for name in step.tables}
        numbers = [self.number(one, env) for one in step.numbers]
        found = made_tables(step, ids, numbers, shapes)
        for name, made in zip(step.tables[-len(found) :], found, strict=True):
            for place, entry in made.items():
                tables[name][place] = entry
        self.rank.tables |= tables

    def collective(self, step: Call, env: Env) -> Running:
        """All ranks meet in it: each gives its operand, and takes its result when all have given theirs."""
        (operand,), (result,) = step.operands, step.results
        given = self.run.meetings.setdefault((self.run.call_number, result.buffer), {})
        given[self.rank.number] = self.load(operand, env, 0)
        self.run.progress += 1
        while len(given) < self.run.schedule.num_ranks:
            yield
        found = COLLECTIVES[step.function]([given[rank] for rank in sorted(given)], self.rank.number)
        self.store(result, env, found.reshape(self.extents(result, env)))

    def send_receive(self, step: Call, env: Env) -> Running:
        """Messages of a role between two ranks arrive in their order."""
        to, source = (self.number(one, env) for one in step.numbers)
        self.run.messages[self.role.name, self.rank.number, to].append(self.load(step.operands[0], env, 0))
        self.run.progress += 1
        while not (come := self.run.messages[self.role.name, source, self.rank.number]):
            yield
        self.store(step.results[0], env, come.popleft().reshape(self.extents(step.results[0], env)))

    # ---- regions ----
    def extents(self, region: Region, env: Env) -> tuple[int, ...]:
        return tuple(self.number(one, {**env, "lane": 0}) for one in region.extent)

    def box(self, region: Region, env: Env) -> tuple[list[Ints], list[int]]:
        """Positions along each dimension of the buffer, and how many of them the tile has with those that are masked."""
        places, most = [], []
        for start, extent in zip(region.start, region.extent, strict=True):
            count = max(self.number(extent, env), 0)
            lanes = np.arange(count)
            if "lane" in names_in(start):
                places.append(np.array([self.number(start, {**env, "lane": int(one)}) for one in lanes], np.int64))
            else:
                places.append(self.number(start, env) + lanes)
            high = range_of(extent, {}, self.run.entries).high
            most.append(int(high) if high != float("inf") else count)
        return places, most

    def inside(self, region: Region, env: Env) -> tuple[list[Ints], list[Ints], list[int]]:
        """Positions in the buffer, those in the tile, and the shape of the tile."""
        places, most = self.box(region, env)
        shape = self.run.schedule.shapes[region.buffer]
        there = [(one >= 0) & (one < extent) for one, extent in zip(places, shape, strict=True)]
        for one, extent, ok in zip(region.start, region.extent, there, strict=True):
            if extent == 1 and not ok.all() and not tables_in(one):  # a table may find a part that is none
                raise IndexError(f"{region.buffer}: {one} lies outside")
        return [one[ok] for one, ok in zip(places, there, strict=True)], [np.flatnonzero(ok) for ok in there], most

    def load(self, region: Region, env: Env, fill: float) -> Array:
        at, tile, most = self.inside(region, env)
        found = np.full(most, fill, np.float64)
        source = self.run.ranks[self.number(region.at, env)].buffers[region.buffer]
        found[np.ix_(*tile)] = source[np.ix_(*at)]
        return found

    def store(self, region: Region, env: Env, value: Array) -> None:
        at, tile, most = self.inside(region, env)
        owner = self.run.ranks[self.number(region.at, env)]
        lead = (1,) * (len(most) - value.ndim)
        wide = value.reshape(*lead, *value.shape)
        less = (a < b and a != 1 for a, b in zip(wide.shape, most, strict=True))
        if any(less):  # a ragged chunk, without what is masked
            wide = np.pad(wide, [(0, max(b - a, 0)) for a, b in zip(wide.shape, most, strict=True)])
        wide = np.broadcast_to(wide, most)
        owner.buffers[region.buffer][np.ix_(*at)] = wide[np.ix_(*tile)]
        if region.buffer in owner.stamps:
            owner.stamps[region.buffer][np.ix_(*at)] = self.run.call_number

    def arrived(self, region: Region, env: Env) -> Running:
        """Words that say themselves that they have arrived are awaited."""
        if self.run.declared[region.buffer].protocol is Protocol.SIMPLE:
            return
        at, _, _ = self.inside(region, env)
        stamps = self.run.ranks[self.number(region.at, env)].stamps[region.buffer]
        while (stamps[np.ix_(*at)] < self.run.call_number).any():
            yield


def _behind(value: Array, rows: int) -> Array:
    """The tile without its first rows; there are none in front of it."""
    none: Array = np.full((max(-rows, 0), *value.shape[1:]), np.nan)
    return np.vstack([none, value[max(rows, 0) :]])


def _tile(value: Array) -> Array:
    """Without the dimensions in front of the last two, where these select one."""
    return value.reshape(value.shape[-2:]) if all(extent == 1 for extent in value.shape[:-2]) else value


def _matrix(value: Array) -> Array:
    return value.reshape(-1, value.shape[-1])
