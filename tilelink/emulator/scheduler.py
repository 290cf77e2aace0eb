"""Tasks as greenlets of one thread; a policy chooses who runs next.

A task gives way at synchronisation accesses and blocks on a `Wait`: on keys that someone wakes, on bytes
of memory that someone writes, or until some time has passed. Nobody spins: when no task is ready and none waits for time,
the run is a deadlock and is reported as one.

**Time** is what a kernel reads from a clock. Each step takes `CLOCKS_A_STEP`, and where every task waits, time leaps to the
first moment that one of them waits for. So time costs no steps, and no deadline passes while somebody can still go on.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from greenlet import GreenletExit, getcurrent, greenlet  # type: ignore[import-untyped, unused-ignore]

from tilelink.emulator.errors import Deadlock, StepLimit
from tilelink.emulator.report import table, task_states

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from tilelink.emulator.task import Task, Wait


CLOCKS_A_STEP = 3  # more than one, so that a count of rounds does not look like the clock


class Policy(Protocol):
    """Who runs next. `ready` is never empty and its order depends on the earlier choices only."""

    def choose(self, ready: Sequence[Task]) -> int: ...


@runtime_checkable
class Learner(Protocol):
    """A policy that is told who waits for which memory and who changes it. Ranges are half-open, in bytes."""

    def awaits(self, task: Task, ranges: tuple[tuple[int, int], ...]) -> None:
        """`task` read `ranges` in the test of a loop that has ended, or is blocked until one of them is written."""

    def wrote(self, task: Task, start: int, end: int) -> None:
        """`task` changed some of the bytes [start, end)."""


class Scheduler:
    """Runs tasks one at a time until none is left.

    `version` counts the writes that changed memory, `time` the clocks of all runs.
    `switch_every` > 0 makes a task give way at every so
    many memory accesses of its own, beside the synchronisation accesses. `step_limit` bounds switches plus
    accesses of one run.
    """

    def __init__(self, policy: Policy, switch_every: int, step_limit: int) -> None:
        self.version = 0
        self.steps = 0
        self.time = 0
        self.current: Task | None = None
        self._policy = policy
        self._learner = policy if isinstance(policy, Learner) else None
        self._turns = 0
        self._switch_every = switch_every
        self._step_limit = step_limit
        self._ready: list[Task] = []
        self._live: dict[int, Task] = {}
        self._by_key: dict[Hashable, list[Task]] = {}
        self._watched: dict[Task, tuple[tuple[int, int], ...]] = {}
        self._alarms: list[tuple[int, int, Task]] = []  # a heap: when, number of the sleep, who
        self._asleep: dict[Task, int] = {}  # by task: the number of its sleep
        self._sleeps = 0
        self._hub = getcurrent()
        self.on_stuck: Callable[[], None] | None = None  # diagnosis: may excuse a task, or write what one waits for

    def spawn(self, task: Task, body: Callable[[], None]) -> None:
        """Add a ready task. An exception of `body` ends the run."""

        def main() -> None:
            # numpy keeps its error state per context, and a greenlet starts with an empty one
            with np.errstate(all="ignore"):
                body()
            del self._live[task.identity.number]

        if not self._live:
            self._hub = getcurrent()
        task.greenlet = greenlet(main, parent=self._hub)
        self._live[task.identity.number] = task
        self._ready.append(task)

    def run(self) -> None:
        """Run until all tasks have ended.

        Raises `Deadlock`, `StepLimit`, or what a task raised; the other tasks are then killed.
        """
        self.steps = 0
        try:
            while self._live:
                self._wake_up()
                if not self._ready and not self._leap() and not self._let_one_go():
                    raise self._stuck()
                self._resume(self._take(self._policy.choose(self._ready)))
        finally:
            self.current = None
            self._kill()

    def switch(self) -> None:
        """Let any ready task run, perhaps this one again."""
        task = self.task
        self.count_step()
        self._ready.append(task)
        self._hub.switch()

    def block(self, wait: Wait) -> None:
        """Sleep until `wait` is woken; the caller then checks its condition again."""
        task = self.task
        self.count_step()
        task.wait = wait
        for key in wait.keys:
            self._by_key.setdefault(key, []).append(task)
        if wait.ranges:
            self._watched[task] = wait.ranges
            self.awaits(wait.ranges)
        if wait.clocks:
            self._sleeps += 1
            self._asleep[task] = self._sleeps
            heappush(self._alarms, (self.time + wait.clocks, self._sleeps, task))
        self._hub.switch()

    def wake(self, key: Hashable) -> None:
        """Make every task that waits for `key` ready."""
        for task in tuple(self._by_key.get(key, ())):
            self._unblock(task)

    def wrote(self, start: int, end: int) -> None:
        """Some of the bytes [start, end) have changed: wake who watches them."""
        self.version += 1
        if self._learner is not None and self.current is not None:
            self._learner.wrote(self.current, start, end)
        if not self._watched:
            return
        touched = [
            task
            for task, ranges in self._watched.items()
            if any(first < end and start < last for first, last in ranges)
        ]
        for task in touched:
            self._unblock(task)

    def awaits(self, ranges: tuple[tuple[int, int], ...]) -> None:
        """The running task waits for, or has waited for, a value in `ranges`."""
        if self._learner is not None and ranges:
            self._learner.awaits(self.task, ranges)

    def count_access(self) -> None:
        """Account for one memory access of the running task, before it happens; may switch."""
        self.count_step()
        if self._switch_every:
            task = self.task
            task.accesses += 1
            if task.accesses % self._switch_every == 0:
                self.switch()

    @property
    def task(self) -> Task:
        """The running task."""
        assert self.current is not None, "called from outside of a task"
        return self.current

    def count_step(self) -> None:
        """One more step of the run. Raises `StepLimit`."""
        self.steps += 1
        self.time += CLOCKS_A_STEP
        if self.steps > self._step_limit:
            states = task_states(self._live.values())
            raise StepLimit(limit=self._step_limit, tasks=states, table=table(states))

    def _take(self, index: int) -> Task:
        ready = self._ready
        ready[index], ready[-1] = ready[-1], ready[index]
        return ready.pop()

    def _resume(self, task: Task) -> None:
        self.current = task
        self._turns += 1
        task.turn = self._turns
        assert task.greenlet is not None
        task.greenlet.switch()

    def _unblock(self, task: Task) -> None:
        assert task.wait is not None
        for key in task.wait.keys:
            waiting = self._by_key[key]
            waiting.remove(task)
            if not waiting:
                del self._by_key[key]
        self._watched.pop(task, None)
        self._asleep.pop(task, None)
        task.wait = None
        self._ready.append(task)

    def _wake_up(self) -> None:
        """Make the tasks ready whose time has come."""
        while self._alarms and self._alarms[0][0] <= self.time:
            _, sleep, task = heappop(self._alarms)
            if self._asleep.get(task) == sleep:
                self._unblock(task)

    def _leap(self) -> bool:
        """Nobody can go on before some time has passed: let it pass. False if nobody waits for time."""
        while self._asleep and not self._ready:
            self.time = max(self.time, self._alarms[0][0])
            self._wake_up()
        return bool(self._ready)

    def watching(self) -> tuple[Task, ...]:
        """The tasks that wait for a byte to be written, those that have waited longest first."""
        return tuple(self._watched)

    def excuse(self, task: Task) -> None:
        """Let a task go on as if what it waits for had happened."""
        task.excused = True
        self._unblock(task)

    def is_excused(self) -> bool:
        """Whether the running task, which has waited, was excused; asked once."""
        task = self.task
        excused, task.excused = task.excused, False
        return excused

    def _let_one_go(self) -> bool:
        """Nobody can go on: ask `on_stuck` to do something about it."""
        if self.on_stuck is None:
            return False
        self.on_stuck()
        return bool(self._ready)

    def _stuck(self) -> Deadlock:
        states = task_states(self._live.values())
        return Deadlock(count=len(self._live), tasks=states, table=table(states))

    def _kill(self) -> None:
        """After an error: unwind what is left, so that no greenlet outlives the run."""
        for task in tuple(self._live.values()):
            if task.greenlet is not None and not task.greenlet.dead:
                task.greenlet.throw(GreenletExit)
        self._live.clear()
        self._ready.clear()
        self._by_key.clear()
        self._watched.clear()
        self._alarms.clear()
        self._asleep.clear()
