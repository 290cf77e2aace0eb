"""What has to stand between two accesses of one program, and whether it does: barriers, fences and flushes.

A barrier of its threads stands between a store and a load of the same elements, in either order. Waits are barriers behind
their acquire, notifies in front of their release. A proxy fence stands between what pointers or peers wrote and a descriptor
load of it. A flush stands between a descriptor store and whoever is told of it, or loads it here. Two stores of one element
by one program need nothing: a tile has one layout, so that one thread does both.

The analysis follows every path: behind a loop, or at its head, holds what held before it or at the end of its body, where
names that the loop binds stand for other values than before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import inf

from lowering.steps.indices import Scope
from lowering.steps.late import defers, late_steps
from tilelink.ir.enums import Protocol
from tilelink.schedule.index import Number, difference, names_in, rank, terms_of
from tilelink.schedule.memory import Memory, Region
from tilelink.schedule.printing import in_a_line
from tilelink.schedule.roles import Launch, Phase, Role, Schedule, Who
from tilelink.schedule.steps import For, If, Notify, Order, Step, Sync, Wait
from tilelink.schedule.walk import notifies, read, steps_in, written

Path = tuple[int, ...]  # phase, then the place in each body down to the step; of a branch, whether it is the other one


class Where(Enum):
    HERE = "on the own rank"
    ELSEWHERE = "on a peer"
    ANYWHERE = "on some rank"


@dataclass(frozen=True, slots=True)
class Fact:
    """An access of a program's past that a later step may be wrong behind. `region` is None where it may be anywhere in the
    buffer. `lacks`: what has to come between; `stored`: whether the access is a store."""

    buffer: str
    region: Region | None
    where: Where
    lacks: Order
    stored: bool


State = frozenset[Fact]


@dataclass(frozen=True, slots=True)
class Missing:
    """The step at `path` comes behind `fact` with no `order` between them."""

    path: Path
    step: str
    order: Order
    buffer: str

    def __str__(self) -> str:
        return f"{self.step}: no {self.order.value} since {self.buffer} was accessed"


def missing(schedule: Schedule, launch: Launch, role: Role, tokens: frozenset[str] = frozenset()) -> list[Missing]:
    """Every access of a role on SMs that lacks a Sync in front of it, in the order of the text. Where the launch has a program
    that ends last, all other programs tell it what they did.

    `tokens`: signals whose waits return what loads take. Each warp waits for itself there, and loads by descriptors that take
    a token come behind a fence."""
    analysis = _Analysis(schedule, role, tokens)
    state: State = frozenset()
    first = next((number for number, phase in enumerate(role.phases) if phase.who is Who.LAST), len(role.phases))
    for number, phase in enumerate(role.phases[:first]):
        state = analysis.phase(phase, state, (number,))
    if any(phase.who is Who.LAST for one in launch.roles for phase in one.phases):
        state = analysis.published(state, (first,), "whoever ends last")
    for number, phase in enumerate(role.phases[first:]):
        state = analysis.phase(phase, state, (first + number,))
    return sorted(set(analysis.found), key=lambda one: (one.path, one.order.value, one.buffer))


class _Analysis:
    def __init__(self, schedule: Schedule, role: Role, tokens: frozenset[str] = frozenset()) -> None:
        self.tokens = tokens
        self.packets = {buffer.name for buffer in schedule.buffers if buffer.protocol is not Protocol.SIMPLE}
        self.found: list[Missing] = []
        self.untold = untold(schedule)
        self.scope = Scope(schedule, role.name, role.programs)
        self.ranks, self.programs = schedule.num_ranks, role.programs
        self.unequal: tuple[tuple[Number, Number], ...] = ()  # indices, in the branches that the step is in

    def phase(self, phase: Phase, state: State, path: Path) -> State:
        """Programs that take positions in turn may have none, and have several only where there are more than programs."""
        high = self.scope.range(phase.count).high
        loop = For("tile", phase.count, phase.body, phase.let)
        shared = phase.who is Who.EACH and not phase.every
        always = phase.every or phase.who is Who.LAST
        late = late_steps(phase.body) if defers(phase) else ()
        return self.repeated(loop, always, high > (self.programs if shared else 1), state, path, phase.first, late)

    def repeated(
        self,
        loop: For,
        always: bool,
        again: bool,
        state: State,
        path: Path,
        first: Number = 0,
        late: Sequence[int] = (),
    ) -> State:
        """Behind all rounds of a loop. `always`: every program goes through all of them; `again`: there may be several. `late`:
        places of the steps that are carried out for the round before, and once more behind the last one."""
        names = frozenset({loop.variable, *(name for name, _ in loop.let)})
        at_least_once = always and self.scope.range(loop.count).low >= 1
        with self.scope.inside(loop.variable, loop.count, first, loop.let):
            while True:
                ended = _forgotten(self.body(loop.body, _forgotten(state, names), path), names)
                if not again or ended <= state:
                    break
                state |= ended
            for number in late:  # of the last round
                ended = self.step(loop.body[number], ended, (*path, number))
        return ended if at_least_once else state | ended

    def body(self, body: tuple[Step, ...], state: State, path: Path) -> State:
        for number, step in enumerate(body):
            state = self.step(step, state, (*path, number))
        return state

    def step(self, step: Step, state: State, path: Path) -> State:
        match step:
            case For():
                return self.repeated(step, True, self.scope.range(step.count).high > 1, state, path)
            case If():
                equal = self.body(step.body, state, (*path, 0))
                before, self.unequal = self.unequal, (*self.unequal, (step.left, step.right), (step.right, step.left))
                others = self.body(step.others, state, (*path, 1))
                self.unequal = before
                return equal | others
            case Sync(order):
                return settled(state, order)
            case Wait() if step.signal in self.tokens:
                return state
            case Wait():
                waited = settled(state, Order.BARRIER)
                return waited | {Fact(name, None, Where.HERE, Order.FENCE, True) for name in step.covers}
            case Notify():
                return self.published(state, path, in_a_line(step))
        state = self.accesses(step, state, path)
        return self.published(state, path, in_a_line(step)) if notifies(step) else state

    def published(self, state: State, path: Path, step: str) -> State:
        """Others are told of what the program did before."""
        told = [fact for fact in state if fact.lacks is Order.FLUSH and fact.buffer not in self.untold]
        self.found += [Missing(path, step, fact.lacks, fact.buffer) for fact in told]
        return settled(state, Order.BARRIER)

    def accesses(self, step: Step, state: State, path: Path) -> State:
        loads = [region for region in read(step) if region.buffer not in self.packets]
        stores = [region for region in written(step) if region.buffer not in self.packets]
        for region in loads:
            self._check(step, path, region, (fact for fact in state if _bars_load(fact, region)))
        for region in stores:
            self._check(step, path, region, (fact for fact in state if fact.lacks is Order.BARRIER and not fact.stored))
        new = {self._fact(region, Order.BARRIER, False) for region in loads}
        for region in stores:
            if region.access.by_descriptor:
                new.add(self._fact(region, Order.FLUSH, True))
            else:
                new |= {self._fact(region, order, True) for order in (Order.BARRIER, Order.FENCE)}
        return state | new

    def _fact(self, region: Region, lacks: Order, stored: bool) -> Fact:
        return Fact(region.buffer, region, self._where(region.at), lacks, stored)

    def _where(self, at: Number) -> Where:
        if at == rank:
            return Where.HERE
        return Where.ELSEWHERE if (at, rank) in self.unequal or self._is_peer(at) else Where.ANYWHERE

    def _is_peer(self, at: Number) -> bool:
        """Whether `at` is `(rank + x) % ranks` with an x between 0 and ranks."""
        if isinstance(at, int) or at.op != "%" or at.args[1] != self.ranks:
            return False
        terms = terms_of(at.args[0] - rank)
        low, high = 0.0, 0.0
        for term, factor in terms.items():
            ends = [factor * end for end in (self.scope.range(term).low, self.scope.range(term).high)]
            low, high = low + min(ends), high + max(ends)
        turns = low // self.ranks * self.ranks if abs(low) < inf else 0
        return turns < low and high < turns + self.ranks

    def _check(self, step: Step, path: Path, region: Region, facts: Iterable[Fact]) -> None:
        where = self._where(region.at)
        for fact in facts:
            apart = {where, fact.where} == {Where.HERE, Where.ELSEWHERE}
            if fact.buffer == region.buffer and not apart and not (fact.region and disjoint(fact.region, region)):
                self.found.append(Missing(path, in_a_line(step), fact.lacks, fact.buffer))


def untold(schedule: Schedule) -> frozenset[str]:
    """Outputs of which nobody is told inside of a call: no step reads them, and one launch stores them, which ends behind all
    that it stores."""
    stored: dict[str, set[int]] = {}
    loaded = set[str]()
    for number, launch in enumerate(schedule.launches):
        for step in steps_in(tuple(step for role in launch.roles for phase in role.phases for step in phase.body)):
            loaded |= {region.buffer for region in read(step)}
            for region in written(step):
                stored.setdefault(region.buffer, set()).add(number)
    outputs = [buffer.name for buffer in schedule.buffers if buffer.memory is Memory.OUTPUT]
    return frozenset(name for name in outputs if name not in loaded and len(stored.get(name, ())) == 1)


def _bars_load(fact: Fact, region: Region) -> bool:
    if fact.lacks is Order.FENCE:
        return region.access.by_descriptor
    return fact.stored


def settled(state: State, order: Order) -> State:
    """The state behind a Sync. Descriptor stores that have arrived are known to the thread that waited for them."""
    rest = {fact for fact in state if fact.lacks is not order}
    if order is Order.FLUSH:
        rest |= {replace(fact, lacks=Order.BARRIER) for fact in state - rest}
    return frozenset(rest)


def _forgotten(state: State, names: frozenset[str]) -> State:
    """Regions that depend on `names` are of another round."""
    return frozenset(
        replace(fact, region=None) if fact.region and _names(fact.region) & names else fact for fact in state
    )


def _names(region: Region) -> frozenset[str]:
    return frozenset[str]().union(*map(names_in, (*region.start, *region.extent, region.at)))


def disjoint(one: Region, other: Region) -> bool:
    """Whether two regions of a buffer, in one environment, surely share no element."""
    at = difference(other.at, one.at)
    if at:
        return True
    for first, extent, second, width in zip(one.start, one.extent, other.start, other.extent, strict=True):
        apart = difference(second, first)
        if apart is None:
            continue
        if (isinstance(extent, int) and apart >= extent) or (isinstance(width, int) and -apart >= width):
            return True
    return False
