"""Vector clocks of tasks, with four components for each task.

A task is a stream or one program. A program's accesses are those of four agents:

- THREAD: the one thread that does scalar stores and scalar atomics; scalar loads count as its own, too.
- LANE: some one thread, that of a lane of a vector atomic. Another lane is another thread.
- BLOCK: all threads, in block-shaped loads and stores.
- PROXY: the asynchronous proxy, in descriptor stores.

What agent a of a task has *known* since some moment is an array: the time of each component up to which accesses happen
before everything that a does from then on. A CTA barrier makes THREAD, LANE and BLOCK know the same. A stream is a
THREAD alone. Time of an agent goes on when others were told of its accesses, so that later ones are not covered.

Source: Flanagan and Freund, "FastTrack: efficient and precise dynamic race detection", PLDI 2009 (epochs); the
agents are ours. Components of ended tasks are used again by tasks that start after them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tilelink.emulator.events import Scope, TaskId

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tilelink.emulator.touch import SyncPoint

Clock = NDArray[np.int64]  # by component, 4 * slot + agent; never changed in place, so that agents can share one

NOTHING: Clock = np.zeros(0, np.int64)
_TAKEN = np.iinfo(np.int64).max  # nobody knows so late a time


class Agent(IntEnum):
    THREAD = 0
    LANE = 1
    BLOCK = 2
    PROXY = 3


_ALL = tuple(Agent)  # an Enum is slow to iterate over
AGENTS = len(_ALL)
_OF_BARRIER = (Agent.THREAD, Agent.LANE, Agent.BLOCK)
# a fence of one scope is a fence of the narrower ones; those of a CTA order no two programs
_COVERED = {Scope.CTA: (), Scope.GPU: (Scope.GPU,), Scope.SYSTEM: (Scope.GPU, Scope.SYSTEM)}


def join(one: Clock, other: Clock) -> Clock:
    """The later time of each component; clocks made before a slot existed are shorter."""
    if one is other or not other.size:
        return one
    if one.size == other.size:
        return np.maximum(one, other)
    if one.size < other.size:
        one, other = other, one
    joined = one.copy()
    np.maximum(joined[: other.size], other, out=joined[: other.size])
    return joined


def knows(known: Clock, component: int, time: int) -> bool:
    return component < known.size and bool(known[component] >= time)


@dataclass(slots=True, eq=False)
class Heard:
    """Releases that relaxed reads have read from: an acquire fence joins them. Own rank and other ranks apart."""

    near: Clock = field(default_factory=lambda: NOTHING)
    far: Clock = field(default_factory=lambda: NOTHING)


class TaskClocks:
    """The agents of one task. `call` numbers the operator call it belongs to, as far as that can be told."""

    def __init__(self, identity: TaskId, slot: int, times: list[int], known: Clock, call: int) -> None:
        self.identity = identity
        self.slot = slot
        self.call = call
        self.times = times  # by agent: the time at which its next access happens
        self.known = [known] * AGENTS
        self.active = [False] * AGENTS  # whether it has accesses at its present time
        self.heard = [Heard() for _ in _ALL]
        self.fenced: list[dict[Scope, Clock]] = [{} for _ in _ALL]  # what a relaxed write after a fence releases
        self.performed = NOTHING  # what the launch of its kernel released: performed at system scope before it began
        self.stores: list[int] = []  # times of descriptor stores that nobody has waited for
        self.last_release: SyncPoint | None = None
        self.last_acquire: SyncPoint | None = None
        self._level = False  # THREAD, LANE and BLOCK know the same, and each other's past

    def component(self, agent: Agent) -> int:
        return AGENTS * self.slot + agent

    def past(self, agent: Agent) -> int:
        """The time of its last access."""
        return self.times[agent] if self.active[agent] else self.times[agent] - 1

    def accessed(self, agent: Agent) -> None:
        """`agent` has an access at its present time that it had not before."""
        self.active[agent] = True
        self._level = False

    def learn(self, agent: Agent, clock: Clock) -> None:
        """`agent` has synchronised with whoever published `clock`."""
        if clock.size:
            self.known[agent] = join(self.known[agent], clock)
            self._level = False

    def learn_all(self, clock: Clock) -> None:
        """The whole task starts or goes on after what `clock` tells."""
        before = self.known
        shared = all(known is before[0] for known in before)
        self.known = [join(before[0], clock)] * AGENTS if shared else [join(known, clock) for known in before]
        self._level = False

    def publish(self, agent: Agent) -> Clock:
        """All that `agent` did and knows; what it does later is not covered."""
        clock = self._with_past(self.known[agent], (agent,))
        self._tick((agent,))
        return clock

    def publish_all(self) -> Clock:
        """All that the task did and knows, its asynchronous stores included."""
        clock = self.known[0]
        for known in self.known[1:]:
            clock = join(clock, known)
        clock = self._with_past(clock, _ALL)
        self._tick(_ALL)
        return clock

    def complete(self) -> None:
        """Its kernel ends: what comes after that comes after all that relaxed reads have read from."""
        for agent in _OF_BARRIER:
            self._acquire_heard(agent, Scope.SYSTEM)

    def hears(self, other: TaskClocks) -> None:
        """What relaxed reads of `other`, a part of this task, have read from."""
        for ours, theirs in zip(self.heard, other.heard, strict=True):
            ours.near, ours.far = join(ours.near, theirs.near), join(ours.far, theirs.far)

    def barrier(self) -> None:
        """All threads meet."""
        if self._level:
            return
        thread, lane, block, _ = self.known
        shared = self._with_past(join(join(thread, lane), block), _OF_BARRIER)
        self.known[: Agent.PROXY] = [shared] * len(_OF_BARRIER)
        self._tick(_OF_BARRIER)
        self._level = True

    def stored_asynchronously(self) -> None:
        """The descriptor store at the present time of PROXY is under way."""
        self.stores.append(self.times[Agent.PROXY])
        self._tick((Agent.PROXY,))

    def await_stores(self, left: int) -> None:
        """All but the last `left` descriptor stores are complete, to the threads and to later descriptor accesses."""
        done = self.stores[: max(0, len(self.stores) - left)]
        if not done:
            return
        self.stores = self.stores[len(done) :]
        for agent in (Agent.BLOCK, Agent.PROXY):
            self.known[agent] = _at_least(self.known[agent], self.component(Agent.PROXY), done[-1])
        self._level = False

    def fence_proxy(self) -> None:
        """Descriptor accesses from now on see what the threads see."""
        seen = self._with_past(self.known[Agent.BLOCK], (Agent.BLOCK,))
        self.known[Agent.PROXY] = join(self.known[Agent.PROXY], seen)
        self._tick((Agent.BLOCK,))

    def fence(self, scope: Scope, acquires: bool, releases: bool) -> None:
        """Every thread runs an ordering fence."""
        for agent in _OF_BARRIER:
            if acquires:
                self._acquire_heard(agent, scope)
            if releases and agent is not Agent.BLOCK:  # no atomic of BLOCK could publish it
                clock = self.publish(agent)
                self.fenced[agent] |= dict.fromkeys(_COVERED[scope], clock)

    def _acquire_heard(self, agent: Agent, scope: Scope) -> None:
        heard = self.heard[agent]
        if scope is Scope.CTA:
            return
        self.learn(agent, heard.near)
        heard.near = NOTHING
        if scope is Scope.SYSTEM:
            self.learn(agent, heard.far)
            heard.far = NOTHING

    def _with_past(self, clock: Clock, agents: Iterable[Agent]) -> Clock:
        base = AGENTS * self.slot
        if clock.size < base + AGENTS:
            grown = np.zeros(max(2 * clock.size, 2 * (base + AGENTS)), np.int64)
            grown[: clock.size] = clock
            clock = grown
        else:
            clock = clock.copy()
        for agent in agents:
            clock[base + agent] = self.past(agent)
        return clock

    def _tick(self, agents: Iterable[Agent]) -> None:
        for agent in agents:
            if self.active[agent]:
                self.times[agent] += 1
                self.active[agent] = False
        self._level = False


def _at_least(clock: Clock, component: int, time: int) -> Clock:
    only = np.zeros(component + 1, np.int64)
    only[component] = time
    return join(clock, only)


class Slots:
    """Which components are free: those of a task that has ended, for a task that starts after that end."""

    def __init__(self) -> None:
        self._count = 0
        self._times: dict[int, list[int]] = {}  # of a free slot: when the agents of a next task start
        self._ends = np.zeros((0, AGENTS), np.int64)  # of a free slot: who knows these knows all that its task did

    @property
    def count(self) -> int:
        """How many slots there are; a clock has four components for each."""
        return self._count

    def take(self, known: Clock) -> tuple[int, list[int]]:
        """A slot and the times at which its agents start, for a task that starts knowing `known`."""
        told = min(len(self._ends), known.size // AGENTS)
        if self._times and told:
            free = np.logical_and.reduce(known[: AGENTS * told].reshape(told, AGENTS) >= self._ends[:told], axis=1)
            slot = int(free.argmax())
            if free[slot]:
                self._ends[slot] = _TAKEN
                return slot, self._times.pop(slot)
        self._count += 1
        return self._count - 1, [1] * AGENTS

    def give(self, task: TaskClocks) -> None:
        """`task` has published everything and does no more."""
        missing = self._count - len(self._ends)
        if missing:
            self._ends = np.concatenate([self._ends, np.full((missing + self._count, AGENTS), _TAKEN)])
        self._times[task.slot] = task.times
        self._ends[task.slot] = [time - 1 for time in task.times]
