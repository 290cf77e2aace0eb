"""The emulated node: memory, SMs and tasks. Every access of every task passes through here and only here."""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING

from tilelink.emulator.errors import OutOfBounds
from tilelink.emulator.events import (
    Access,
    Acquired,
    Barrier,
    Fence,
    Kind,
    Released,
    Scope,
    Semantic,
    TaskId,
    Via,
)
from tilelink.emulator.memory import MemoryMap
from tilelink.emulator.place import place_of
from tilelink.emulator.scheduler import Scheduler, Task, Wait
from tilelink.emulator.spinning import SpinDetector

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    import numpy as np
    import torch
    from numpy.typing import NDArray

    from tilelink.emulator.events import Event, Observer
    from tilelink.emulator.place import Place
    from tilelink.emulator.scheduler import Policy

    Addresses = NDArray[np.uint64]


class Machine:
    """`free_sms[rank]` counts the SMs that hold no program. One program fills one SM."""

    def __init__(
        self,
        num_ranks: int,
        num_sms: int,
        policy: Policy,
        switch_every: int,
        step_limit: int,
        observers: Sequence[Observer],
    ) -> None:
        self.num_ranks = num_ranks
        self.num_sms = num_sms
        self.free_sms = [num_sms] * num_ranks
        self.loading: set[int] = set()  # ranks whose launches only load kernels
        self.memory = MemoryMap()
        self.scheduler = Scheduler(policy, switch_every, step_limit)
        self.spins = SpinDetector(self.scheduler, self.word)
        self.observers = tuple(observers)
        self._numbers = 0

    # tasks

    def new_task(self, rank: int, name: str) -> Task:
        """A task that has not been spawned."""
        self._numbers += 1
        return Task(TaskId(self._numbers, rank, name))

    def take_sm(self, rank: int, what: str) -> None:
        """Block the running task until an SM of `rank` is free, and fill it; `what` names the use in a report."""
        while not self.free_sms[rank]:
            self.scheduler.block(Wait(lambda: self._no_sm(rank, what), keys=(("sm", rank),)))
        self.free_sms[rank] -= 1

    def give_sm(self, rank: int) -> None:
        self.free_sms[rank] += 1
        self.scheduler.wake(("sm", rank))

    def released(self, task: Task, token: Hashable) -> None:
        if self.observers:
            self._tell(Released(task.identity, token))

    def acquired(self, task: Task, token: Hashable) -> None:
        if self.observers:
            self._tell(Acquired(task.identity, token))

    # memory

    def before(self, what: str, addresses: Addresses, item_bytes: int) -> None:
        """Account for an access by a program and refuse it outside of all buffers. Raises `OutOfBounds`."""
        self.scheduler.count_access()
        if addresses.size == 0:
            return
        outside = self.memory.first_outside(addresses, item_bytes)
        if outside is not None:
            identity = self.scheduler.task.identity
            raise OutOfBounds(
                access=what,
                item_bytes=item_bytes,
                address=outside,
                nearest=self.memory.nearest(outside),
                rank=identity.rank,
                task=identity.name,
                place=self.place(),
            )

    def after(
        self,
        kind: Kind,
        via: Via,
        addresses: Addresses,
        item_bytes: int,
        *,
        changed: bool,
        semantic: Semantic = Semantic.NONE,
        scope: Scope = Scope.SYSTEM,
    ) -> None:
        """An access has happened: wake who watches the bytes, note what a `while` loop read, tell observers."""
        if addresses.size == 0:
            return
        spins = self.scheduler.task.spins
        if changed or spins:
            if addresses.size == 1:
                start = int(addresses.flat[0])
                end = start + item_bytes
            else:
                start, end = int(addresses.min()), int(addresses.max()) + item_bytes
            # the version before this access: a loop that writes with its own atomics is not at rest
            if spins and kind is not Kind.STORE:
                spins[-1].note_read(start, end, self.scheduler.version)
            if changed:
                self.scheduler.wrote(start, end)
        if self.observers:
            task = self.scheduler.task.identity
            flat = addresses.ravel()
            self._tell(Access(task, kind, via, flat, item_bytes, semantic, scope, changed, self.place()))

    def barrier(self) -> None:
        if self.observers:
            self._tell(Barrier(self.scheduler.task.identity, self.place()))

    def fence(self, text: str) -> None:
        if self.observers:
            self._tell(Fence(self.scheduler.task.identity, text, self.place()))

    def place(self) -> Place:
        """The source lines of the running program; the host line that enqueued a stream's operation."""
        task = self.scheduler.task
        return place_of(sys._getframe()) if task.kernel else task.origin

    def wait_for_word(self, word: torch.Tensor, value: int) -> None:
        """Block the running task until the int32 `word` is at least `value`."""
        start = word.data_ptr()
        while int(word.item()) < value:
            wait = Wait(lambda: f"{self.word(start, start + 4)} >= {value}", ranges=((start, start + 4),))
            self.scheduler.block(wait)

    def word(self, start: int, end: int) -> str:
        """`signal[3] of rank 1 (value 0)`; for more than 8 bytes the first and the last element."""
        name = self.memory.describe(start)
        owner = self.memory.owner(start)
        if owner is None:
            return name
        if end - start > 8:
            return f"{name} ... {self.memory.describe(end - 1)}"
        value = int.from_bytes(ctypes.string_at(start, end - start), sys.byteorder, signed=True)
        return f"{name} (value {value})"

    def _no_sm(self, rank: int, what: str) -> str:
        return f"a free SM of rank {rank} for {what} (all {self.num_sms} are taken)"

    def _tell(self, event: Event) -> None:
        for observer in self.observers:
            observer.observe(event)
