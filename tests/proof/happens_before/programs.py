"""What each program of each rank does, as a list of steps without loops and branches: the referee's programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np

from tilelink.schedule.index import Number, evaluate
from tilelink.schedule.memory import Memory, Region
from tilelink.schedule.roles import Phase, PingPong, Prefetch, Schedule, Sms, Who
from tilelink.schedule.steps import Call, Compute, For, If, Load, Notify, Step, Wait

Clock = dict[str, int]
Env = Mapping[str, int]
Key = tuple[object, ...]


@dataclass(frozen=True)
class Lock:
    """Of a pipeline: raise or await a word of the program that no schedule names."""

    key: Key
    wait: bool


Ops = list[tuple[Step | Lock, Env]]


@dataclass
class Position:
    """What a pipelined loop may do ahead, and the rest."""

    head: Ops
    rest: Ops


@dataclass
class Task:
    """A program in one call. `ops`: steps without loops and branches, each with the values of names."""

    name: str
    rank: int
    call: int
    floating: bool  # whether loads of moves float
    ops: Ops
    behind: list[Task]
    clock: Clock = field(default_factory=dict)
    covered: dict[str, Clock] = field(default_factory=dict)
    start: Clock | None = None
    raising: int = (
        0  # when the first of the raises came that follow each other up to now, 0 if it did something else since
    )
    next: int = 0
    ended: bool = False


class Programs:
    def __init__(self, schedule: Schedule, tables: Mapping[str, np.ndarray], calls: int) -> None:
        self.schedule, self.tables, self.calls = schedule, tables, calls

    def value(self, index: Number, env: Env) -> int:
        return int(evaluate(index, env, self.tables))

    def flat(self, body: tuple[Step, ...], env: Env) -> Iterator[tuple[Step | Lock, Env]]:
        for step in body:
            match step:
                case For(variable, count, inner, let):
                    for number in range(self.value(count, env)):
                        yield from self.flat(inner, self.let(let, {**env, variable: number}))
                case If(left, right, inner, others):
                    yield from self.flat(inner if self.value(left, env) == self.value(right, env) else others, env)
                case _:
                    yield step, env

    def let(self, let: tuple[tuple[str, Number], ...], env: Env) -> Env:
        for name, index in let:
            env = {**env, name: self.value(index, env)}
        return env

    def positions(self, phase: Phase, program: int, programs: int, env: Env) -> list[Position]:
        first_tile, count = self.value(phase.first, env), self.value(phase.count, env)
        tiles = [
            tile
            for tile in range(first_tile, first_tile + count)
            if (program == 0 if phase.who is Who.FIRST else phase.every or tile % programs == program)
        ]
        found = []
        for tile in tiles:
            here = self.let(phase.let, {**env, "tile": tile, "program": program})
            ends = first_product(phase.body)
            first, behind = (list(self.flat(body, here)) for body in (phase.body[:ends], phase.body[ends:]))
            head = list(takewhile(lambda op: isinstance(op[0], Wait | Load | Compute), first))
            found.append(Position(head, [*first[len(head) :], *behind]))
        return found

    def pipelined(self, phase: Phase, positions: list[Position]) -> Ops:
        if not isinstance(phase.pipelining, Prefetch):
            return [op for one in positions for op in (*one.head, *one.rest)]
        late: list[Ops] = [[] for _ in positions]
        rests = [one.rest for one in positions]
        if phase.pipelining.defer:
            late = [[op for op in rest if isinstance(op[0], Notify)] for rest in rests]
            rests = [[op for op in rest if not isinstance(op[0], Notify)] for rest in rests]
        out: Ops = []
        for number, one in enumerate(positions):
            out += one.head
            out += late[number - 2] if number > 1 else []
            out += rests[number - 1] if number else []
        if rests:
            out += [*(late[-2] if len(late) > 1 else []), *rests[-1], *late[-1]]
        return out

    def tasks(self, rank: int) -> list[Task]:
        found: list[Task] = []
        caller: list[Task] = []
        for call in range(1, self.calls + 1):
            env = {**self.schedule.sizes, "rank": rank, "call": call}
            ends: list[Task] = []
            for number, launch in enumerate(self.schedule.launches):
                before = [
                    end
                    for end, other in zip(ends, self.schedule.launches[:number], strict=True)
                    if other.stream == launch.stream or other.stream in launch.joins
                ]
                programs: list[Task] = []
                last: Ops = []
                sms = True
                for which, role in enumerate(launch.roles):
                    sms = isinstance(role.engine, Sms)
                    for program in range(role.programs):
                        name = f"{role.name}.{program} of {rank}, launch {number}, role {which}"
                        task = Task(name, rank, call, sms, [], [*caller, *before])
                        programs.append(task)
                        for phase in role.phases:
                            if phase.who is not Who.LAST:
                                positions = self.positions(phase, program, role.programs, env)
                                if isinstance(phase.pipelining, PingPong):
                                    programs += self.ping_pong(task, positions, phase.pipelining.places)
                                else:
                                    task.ops += self.pipelined(phase, positions)
                    for phase in role.phases:
                        if phase.who is Who.LAST:
                            last += [op for one in self.positions(phase, 0, 1, env) for op in (*one.head, *one.rest)]
                ends.append(Task(f"last of {number} of {rank}", rank, call, sms, last, [*programs]))
                found += [*programs, ends[-1]]
            whole = tuple(
                Region(one.name, (0,) * len(one.shape), self.schedule.shapes[one.name])
                for one in self.schedule.buffers
                if one.memory is Memory.OUTPUT or one.for_caller
            )
            caller = [Task(f"caller of {rank}", rank, call, False, [(Call("", (), whole), env)], [*caller, *ends])]
            found += caller
        return found

    def ping_pong(self, task: Task, positions: list[Position], places: int) -> list[Task]:
        """A loader and two consumers for `task`, with a ring of exactly `places` loads between them."""
        mark = (task.name, task.call, len(task.ops))
        agents = [
            Task(f"{task.name} {len(task.ops)} {n}", task.rank, task.call, task.floating, [], task.behind)
            for n in range(3)
        ]
        none: Env = {}
        task.ops.append((Lock((*mark, "begun"), False), none))
        for agent in agents:
            agent.ops.append((Lock((*mark, "begun"), True), none))
        load = 0
        for number, position in enumerate(positions):
            consumer = agents[1 + number % 2]
            for step, env in position.head:
                if isinstance(step, Load):
                    if load >= places:
                        agents[0].ops.append((Lock((*mark, "used", load - places), True), none))
                    agents[0].ops += [(step, env), (Lock((*mark, "loaded", load), False), none)]
                    consumer.ops.append((Lock((*mark, "loaded", load), True), none))
                    consumer.ops.append((Lock((*mark, "used", load), False), none))
                    load += 1
                else:
                    agents[0].ops.append((step, env))
            agents[0].ops.append((Lock((*mark, "head", number), False), none))
            consumer.ops += [(Lock((*mark, "head", number), True), none), *position.rest]
        for agent in agents:
            agent.ops.append((Lock((agent.name, task.call, "done"), False), none))
            task.ops.append((Lock((agent.name, task.call, "done"), True), none))
        return agents


def first_product(body: tuple[Step, ...]) -> int:
    """Behind which step of the body something has been computed with a tile that was loaded."""
    loaded: set[str | float] = set()

    def computes(steps: tuple[Step, ...]) -> bool:
        found = False
        for step in steps:
            match step:
                case Load(result, _):
                    loaded.add(result)
                case For(_, _, inner):
                    computes(inner)
                    found |= computes(inner)
                case If(_, _, inner, others):
                    computes(inner + others)
                    found |= computes(inner + others)
                case Compute(_, _, operands):
                    found |= bool(loaded & set(operands))
        return found

    return next((number + 1 for number, step in enumerate(body) if computes((step,))), len(body))
