"""The tasks of a run and the tokens between them: launches, ends of kernels, events between streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tilelink.emulator.races.clocks import NOTHING, Agent, Clock, Slots, TaskClocks, join
from tilelink.emulator.touch import kernel_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    from tilelink.emulator.events import Acquired, Released, TaskId


class Tasks:
    """Live tasks, and what was released under each token that may still be acquired."""

    def __init__(self) -> None:
        self._slots = Slots()
        self._live: dict[int, TaskClocks] = {}
        self._tokens: dict[Hashable, Clock] = {}
        self._parts: dict[
            Hashable, TaskClocks
        ] = {}  # by token: the program that starts a group of warps, or the group that ends
        self._floor = NOTHING
        self._launches: dict[int, list[Hashable]] = {}  # by stream's task: tokens of the launch it carries out
        self._seen: set[Hashable] = set()  # launches some program of which has started
        self._first_kernel: dict[int, str] = {}  # by rank
        self._calls: dict[int, int] = {}  # by rank: how often that kernel was launched

    @property
    def empty(self) -> bool:
        """No task is live: all that was done so far happens before all that follows."""
        return not self._live

    @property
    def slots(self) -> int:
        return self._slots.count

    def get(self, identity: TaskId) -> TaskClocks:
        """The clocks of a task, which may be new."""
        task = self._live.get(identity.number)
        return task if task is not None else self._start(identity, NOTHING)

    def call(self, task: TaskClocks) -> int:
        """The operator call that an access of `task` belongs to now."""
        return task.call or self._calls.get(task.identity.rank, 0)

    def acquired(self, event: Acquired) -> None:
        clock = self._tokens.get(event.token, NOTHING)
        task = self._live.get(event.task.number)
        if task is None:
            self._note_launch(event)
            task = self._start(event.task, clock)
            whole = self._parts.pop(event.token, None)
            task.performed = whole.performed if whole is not None else clock if _launches(event.token) else NOTHING
        else:
            part = self._parts.pop(event.token, None)
            if part is not None:
                task.hears(part)
            match event.token:
                case ("performed", _):  # a store from shared memory, as one thread knows, and others behind a barrier
                    task.learn(Agent.BLOCK, clock)
                    task.learn(Agent.PROXY, clock)
                case _:
                    task.learn_all(clock)
        if _acquired_once(event.token):
            self._tokens.pop(event.token, None)

    def released(self, event: Released) -> None:
        task = self.get(event.task)
        match event.token:
            case ("launch", _, _):
                task.complete()
            case ("issued", ("groups", *_)) | ("groups", *_):
                self._parts[event.token] = task
        self._tokens[event.token] = join(self._tokens.get(event.token, NOTHING), task.publish_all())
        match event.token:
            case ("launch", _):
                self._launches.setdefault(event.task.number, []).append(event.token)
            case ("done", *_):
                for token in self._launches.pop(event.task.number, ()):
                    self._tokens.pop(token, None)
                    self._seen.discard(token)
            case _ if _ends(event.token):
                del self._live[event.task.number]
                self._slots.give(task)

    def floor(self) -> Clock:
        """What happens before all that any task will do. Forgets the tokens that tell nothing more than that."""
        clocks = [known for task in self._live.values() for known in task.known]
        clocks += [clock for token, clock in self._tokens.items() if _starts(token)]
        size = max(clock.size for clock in clocks)
        floor = np.full(size, np.iinfo(np.int64).max)
        for clock in clocks:
            np.minimum(floor[: clock.size], clock, out=floor[: clock.size])
            floor[clock.size :] = 0
        for token, clock in tuple(self._tokens.items()):
            if not _starts(token) and clock.size <= size and (clock <= floor[: clock.size]).all():
                del self._tokens[token]
        self._floor = floor
        return floor

    def _start(self, identity: TaskId, known: Clock) -> TaskClocks:
        known = join(known, self._floor)  # tokens that tell no more were forgotten
        slot, times = self._slots.take(known)
        # a stream lives through many calls: its accesses belong to the one that its rank is in
        call = self._calls.get(identity.rank, 0) if kernel_of(identity)[0] else 0
        task = self._live[identity.number] = TaskClocks(identity, slot, times, known, call)
        return task

    def _note_launch(self, event: Acquired) -> None:
        """Calls are counted by the launches of the kernel that was the first one on a rank."""
        kernel, _ = kernel_of(event.task)
        if not kernel or event.token in self._seen or not _launches(event.token):
            return
        self._seen.add(event.token)
        rank = event.task.rank
        if kernel == self._first_kernel.setdefault(rank, kernel):
            self._calls[rank] = self._calls.get(rank, 0) + 1


def _launches(token: Hashable) -> bool:
    """Whether programs start from it: not groups of warps of one."""
    match token:
        case ("launch", _):
            return True
        case _:
            return False


def _ends(token: Hashable) -> bool:
    """Whether a task releases it last: a program, the task of a stream in a run, an OpenSHMEM transfer."""
    match token:
        case ("launch" | "groups", _, _) | ("run", _) | ("delivered" | "performed", _):
            return True
        case _:
            return False


def _starts(token: Hashable) -> bool:
    """Whether tasks start from it that are not live when it is released."""
    match token:
        case ("launch", _) | ("issued", _):
            return True
        case _:
            return False


def _acquired_once(token: Hashable) -> bool:
    match token:
        case ("launch" | "groups", _, _) | ("issued", _):
            return True
        case _:
            return False
