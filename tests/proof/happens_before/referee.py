"""The definition, slowly: all programs of all ranks are run once, element by element, with vector clocks in dictionaries.

Written for this test alone, from what steps mean, without arrays, cells, segments or symmetry. A clock says of every program up
to which moment it is known. A load has the clock of the latest wait of its program that covers its buffer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from tests.proof.happens_before.programs import Clock, Env, Key, Lock, Programs, Task
from tilelink.ir.enums import Protocol
from tilelink.schedule.index import NoSuchEntry, Number, names_in
from tilelink.schedule.memory import Memory, Region
from tilelink.schedule.roles import Schedule, Sms
from tilelink.schedule.steps import Call, Load, Move, Notify, Step, Store, Wait


class Wrong(Exception):
    pass


@dataclass
class Word:
    kind: str = ""
    amount: int = 0
    # amount, what was known, who raised when, and since when they did nothing but raise
    raises: list[tuple[int, Clock, Clock, Clock]] = field(default_factory=list)
    awaited: set[int] = field(default_factory=set)


@dataclass
class Element:
    writer: str = ""
    time: int = 0
    call: int = 0
    readers: Clock = field(default_factory=dict)


def join(into: Clock, other: Clock) -> None:
    for name, time in other.items():
        into[name] = max(time, into.get(name, 0))


class Referee(Programs):
    def __init__(self, schedule: Schedule, tables: Mapping[str, np.ndarray], calls: int) -> None:
        super().__init__(schedule, tables, calls)
        self.now = 0
        self.buffers = {one.name: one for one in schedule.buffers}
        self.words: dict[Key, Word] = {}
        self.elements: dict[Key, Element] = {}
        self.groups: dict[Key, tuple[int, int, Clock, Clock, Clock]] = {}

    # ---- running ----
    def run(self) -> None:
        tasks = [task for rank in range(self.schedule.num_ranks) for task in self.tasks(rank)]
        going = True
        while going:
            going = False
            for task in tasks:
                if not task.ended and all(one.ended for one in task.behind):
                    going |= self.advance(task)
        if not all(task.ended for task in tasks):
            raise Wrong("a circle")
        self.counts()

    def advance(self, task: Task) -> bool:
        moved = False
        if task.start is None:
            for one in task.behind:
                join(task.clock, one.clock)
            task.start, moved = dict(task.clock), True
        while task.next < len(task.ops):
            step, env = task.ops[task.next]
            if self.blocked(task, step, env):
                return moved
            self.now += 1
            task.clock[task.name] = self.now
            self.do(task, step, env)
            task.next, moved = task.next + 1, True
        task.ended = True
        self.now += 1
        task.clock[task.name] = self.now
        return True

    def word_of(self, name: str, index: tuple[Number, ...], at: int, env: Env) -> Key:
        place = tuple(self.value(one, env) for one in index)
        shape = self.schedule.shapes[name]
        if len(place) != len(shape) or not all(0 <= one < extent for one, extent in zip(place, shape, strict=True)):
            raise Wrong("no such word")
        return (name, self.rank_of(at), *place)

    def rank_of(self, at: int) -> int:
        if not 0 <= at < self.schedule.num_ranks:
            raise Wrong("no such rank")
        return at

    def by_data(self, step: Step) -> list[Region]:
        regions = [step.region] if isinstance(step, Load) else [*step.source] if isinstance(step, Move) else []
        return [one for one in regions if self.buffers[one.buffer].protocol is not Protocol.SIMPLE]

    def blocked(self, task: Task, step: Step | Lock, env: Env) -> bool:
        if isinstance(step, Lock):
            return step.wait and self.words.get(step.key, Word()).amount < 1
        if isinstance(step, Wait):
            key = self.word_of(step.signal, step.index, task.rank, env)
            return self.words.get(key, Word()).amount < self.value(step.until, env)
        keys = [key for region in self.by_data(step) for key in self.elements_of(region, env)]
        return any(self.words.get(("data", *key), Word()).amount < task.call for key in keys)

    def do(self, task: Task, step: Step | Lock, env: Env) -> None:
        match step:
            case Lock(key, True):
                self.learn(task, key, 1)
                task.start, task.covered = dict(task.clock), {}
            case Lock(key, False):
                self.raise_(key, "set", 1, task.clock, {task.name: self.now}, self.since(task))
            case Wait(signal, index, until, covers):
                self.learn(task, self.word_of(signal, index, task.rank, env), self.value(until, env))
                task.covered |= {name: dict(task.clock) for name in covers}
            case Notify():
                self.notify(task, step, env)
            case Load(_, region):
                self.arrived(task, step, env)
                self.read(task, region, env, floating=True)
            case Store(_, region):
                self.write(task, region, env)
            case Move(source, target, notify):
                self.arrived(task, step, env)
                for region in source:
                    self.read(task, region, env, floating=task.floating)
                for region in target:
                    self.write(task, region, env)
                if notify:
                    self.notify(task, notify, env)
            case Call(_, results, operands):
                for region in operands:
                    self.read(task, region, env, floating=task.floating, packets=False)
                for region in results:
                    self.write(task, region, env, packets=False)

    def arrived(self, task: Task, step: Step, env: Env) -> None:
        for region in self.by_data(step):
            for key in self.elements_of(region, env):
                self.learn(task, ("data", *key), task.call)
        for region in self.by_data(step):
            task.covered[region.buffer] = dict(task.clock)

    def learn(self, task: Task, key: Key, until: int) -> None:
        if until <= 0:
            return
        task.raising = 0
        word = self.words[key]
        word.awaited.add(until)
        if word.kind == "add":
            for _, known, _, _ in word.raises[:until]:
                join(task.clock, known)
        else:
            join(task.clock, next(known for amount, known, _, _ in word.raises if amount >= until))

    def since(self, task: Task) -> Clock:
        """A raise by `task` now: since when it does nothing but raise. Who knows it at that time knows what this raise tells."""
        task.raising = task.raising or self.now
        return {task.name: task.raising}

    def notify(self, task: Task, step: Notify, env: Env) -> None:
        key = self.word_of(step.signal, step.index, self.value(step.at, env), env)
        known, by, many = dict(task.clock), {task.name: self.now}, self.value(step.last_of, env)
        since = self.since(task)
        if many != 1:
            place = (key, task.rank, task.call)
            of, count, clock, raisers, begun = self.groups.get(place, (many, 0, {}, {}, {}))
            join(clock, known)
            join(raisers, by)
            join(begun, since)
            self.groups[place] = of, count + 1, clock, raisers, begun
            if of != many or count + 1 > many:
                raise Wrong("more than the last of them")
            if count + 1 < many:
                return
            known, by, since = dict(clock), dict(raisers), dict(begun)
        to = 0 if step.to is None else self.value(step.to, env)
        self.raise_(key, "add" if step.to is None else "set", to, known, by, since)

    def raise_(self, key: Key, kind: str, to: int, known: Clock, by: Clock, since: Clock) -> None:
        word = self.words.setdefault(key, Word(kind))
        if word.kind != kind:
            raise Wrong("set and added to")
        if kind == "set":
            if to <= word.amount:
                raise Wrong("set back")
            if word.raises and not all(known.get(name, 0) >= time for name, time in word.raises[-1][2].items()):
                raise Wrong("set in no order")
        word.amount = to if kind == "set" else word.amount + 1
        word.raises.append((word.amount, dict(known), dict(by), dict(since)))

    def counts(self) -> None:
        for word in self.words.values():
            for wanted in word.awaited if word.kind == "add" else ():
                for _, known, _, _ in word.raises[wanted:]:
                    for _, _, _, since in word.raises[:wanted]:
                        if any(known.get(name, 0) < time for name, time in since.items()):
                            raise Wrong("a count may be reached by others")

    # ---- memory ----
    def elements_of(self, region: Region, env: Env) -> list[Key]:
        at = self.rank_of(self.value(region.at, env))
        if at != env["rank"] and self.buffers[region.buffer].memory is not Memory.SYMMETRIC:
            raise Wrong("not symmetric")
        places = []
        for start, extent, most in zip(region.start, region.extent, self.schedule.shapes[region.buffer], strict=True):
            many = self.value(extent, env)
            if "lane" in names_in(start):
                found = [self.value(start, {**env, "lane": lane}) for lane in range(many)]
            else:
                found = list(range(self.value(start, env), self.value(start, env) + many)) if many > 0 else []
            if extent == 1 and not all(0 <= one < most for one in found):
                raise Wrong(f"{region.buffer} has no part {found}")
            places.append([one for one in found if 0 <= one < most])
        return [(region.buffer, at, *place) for place in product(*places)]

    def read(self, task: Task, region: Region, env: Env, floating: bool, packets: bool = True) -> None:
        assert task.start is not None
        buffer = self.buffers[region.buffer]
        clock = task.covered.get(region.buffer, task.start) if floating else task.clock
        for key in self.elements_of(region, env):
            task.raising = task.raising if buffer.memory is Memory.INPUT else 0
            one = self.elements.setdefault(key, Element())
            if one.writer and one.writer != task.name and clock.get(one.writer, 0) < one.time:
                raise Wrong(f"{key} is read early")
            if buffer.memory is not Memory.INPUT and one.call != task.call:
                raise Wrong(f"{key} is not written")
            one.readers[task.name] = self.now
            if buffer.protocol is Protocol.LAMPORT and packets:
                self.set_element(task, key, -1)

    def write(self, task: Task, region: Region, env: Env, packets: bool = True) -> None:
        if self.buffers[region.buffer].memory is Memory.INPUT:
            raise Wrong("an input is written")
        keys = self.elements_of(region, env)
        for key in keys:
            self.set_element(task, key, task.call)
        if self.buffers[region.buffer].protocol is not Protocol.SIMPLE and packets:
            for key in keys:
                self.raise_(("data", *key), "set", task.call, task.clock, {task.name: self.now}, self.since(task))

    def set_element(self, task: Task, key: Key, call: int) -> None:
        task.raising = 0
        one = self.elements.setdefault(key, Element())
        users = {**one.readers, **({one.writer: max(one.time, one.readers.get(one.writer, 0))} if one.writer else {})}
        for name, time in users.items():
            if name != task.name and task.clock.get(name, 0) < time:
                raise Wrong(f"{key} is overwritten while it is in use")
        self.elements[key] = Element(task.name, self.now, call)


def refutes(schedule: Schedule, tables: Mapping[str, np.ndarray], calls: int) -> str:
    """Why it is wrong, or nothing."""
    for one in schedule.buffers:
        given = one.memory in (Memory.INPUT, Memory.OUTPUT) or one.for_caller
        if (given and one.protocol is not Protocol.SIMPLE) or (one.for_caller and one.memory is not Memory.SYMMETRIC):
            return f"{one.name} is not the caller's"
    try:
        Referee(schedule, tables, calls).run()
    except Wrong as wrong:
        return str(wrong)
    except (NoSuchEntry, KeyError, ZeroDivisionError, ValueError) as error:
        return f"no meaning: {error!r}"
    if any(role.programs < 1 for launch in schedule.launches for role in launch.roles):
        return "no program"
    for launch in schedule.launches:
        own = [role for role in launch.roles[-1:] if isinstance(role.engine, Sms) and not role.inside]
        if not own and any(role.inside for role in launch.roles):
            return "warps in programs of nobody"
    return ""
