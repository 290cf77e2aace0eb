"""The emulated node: memory, SMs and tasks. Every access of every task passes through here and only here."""

from __future__ import annotations

import ctypes
import sys
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np

from tilelink.emulator.errors import NoPeerAtomics, OutOfBounds
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
from tilelink.emulator.scheduler import Scheduler
from tilelink.emulator.spinning import SpinDetector
from tilelink.emulator.symmetry import Symmetry
from tilelink.emulator.task import Task, Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Sequence

    import torch
    from numpy.typing import NDArray

    from tilelink.emulator.events import Event, Observer
    from tilelink.emulator.place import Place
    from tilelink.emulator.scheduler import Policy

    Addresses = NDArray[np.uint64]

Companion = TypeVar("Companion")

_WORD_BYTES = 8  # the largest word that is read and written as one
_NONE = Semantic.NONE
_MOST_EXCUSED = 256  # waits of one task: a loop may wait for ever


@dataclass(slots=True)
class Places:
    """Room for programs of one launch on the SMs that it holds: an SM has `per_sm` places, all for the same launch."""

    per_sm: int
    free: int = 0


class Machine:
    """`free_sms[rank]` counts the SMs that hold no program. SMs are not shared by launches."""

    def __init__(
        self,
        num_ranks: int,
        num_sms: int,
        policy: Policy,
        switch_every: int,
        step_limit: int,
        observers: Sequence[Observer],
        *,
        peer_atomics: bool = True,
        multicast: bool = False,
        ranks_per_node: int = 0,
    ) -> None:
        self.num_ranks = num_ranks
        self.num_sms = num_sms
        self.free_sms = [num_sms] * num_ranks
        self.peer_atomics = peer_atomics
        self.memory = MemoryMap()
        self.symmetry = Symmetry(self.memory, multicast, ranks_per_node or num_ranks)
        self.scheduler = Scheduler(policy, switch_every, step_limit)
        self.spins = SpinDetector(self.scheduler, self.word)
        self.observers = tuple(observers)
        self.on_fence: list[Callable[[str], None]] = []  # what wait for asynchronous work, by the text of the fence
        self.on_barrier: list[Callable[[], None]] = []  # what counts on all warps of the running task
        self.on_end: list[Callable[[], None]] = []  # what forgets a run that is over
        self._companions: dict[Callable[[Machine], object], object] = {}
        self._numbers = 0

    def companion(self, kind: Callable[[Machine], Companion]) -> Companion:
        """What code outside of the emulator keeps for this machine: one `kind(machine)`, made when it is first asked for."""
        if kind not in self._companions:
            self._companions[kind] = kind(self)
        return cast("Companion", self._companions[kind])

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

    def take_place(self, rank: int, places: Places, what: str) -> None:
        """Block the running task until a program of this launch fits on an SM of `rank`."""
        while not places.free and not self.free_sms[rank]:
            self.scheduler.block(Wait(lambda: self._no_sm(rank, what), keys=(("sm", rank),)))
        if not places.free:
            self.free_sms[rank] -= 1
            places.free = places.per_sm
        places.free -= 1

    def give_place(self, rank: int, places: Places) -> None:
        places.free += 1
        if places.free == places.per_sm:
            places.free = 0
            self.give_sm(rank)
        else:
            self.scheduler.wake(("sm", rank))

    def give_sm(self, rank: int) -> None:
        self.free_sms[rank] += 1
        self.scheduler.wake(("sm", rank))
        if self.free_sms[rank] == self.num_sms:
            self.scheduler.wake(("idle", rank))

    def wait_until_idle(self, rank: int, what: str) -> None:
        """Block the running task until no program of `rank` is resident; `what` names the reason in a report."""
        while self.free_sms[rank] < self.num_sms:
            self.scheduler.block(Wait(lambda: f"rank {rank} to be idle, {what}", keys=(("idle", rank),)))

    def released(self, task: Task, token: Hashable) -> None:
        if self.observers:
            self._tell(Released(task.identity, token))

    def acquired(self, task: Task, token: Hashable) -> None:
        if self.observers:
            self._tell(Acquired(task.identity, token))

    # memory

    def before(self, what: str, addresses: Addresses, item_bytes: int) -> None:
        """Account for an access by a program and refuse it where it is illegal; `what` begins with "atomic" for atomics.

        Raises `OutOfBounds`, and `NoPeerAtomics` for an atomic on a peer's symmetric buffer over links without them.
        """
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
        if not self.peer_atomics and what.startswith("atomic"):
            self._refuse_peers(addresses)

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
        scalar: bool = True,
    ) -> None:
        """An access has happened: wake who watches the bytes, note what a `while` loop read, tell observers.

        `scalar`: by one thread, as all operations of streams are.
        """
        if addresses.size == 0:
            return
        spins = self.scheduler.task.spins
        if not (changed or spins or self.observers):
            return
        start, last = self.memory.span(addresses)
        end = last + item_bytes
        if addresses.size > 1:
            first = self.memory.owner(start)
            if first is not None and end > first.end:  # what lies between buffers is not touched
                for part in self.memory.by_owner(addresses):
                    self.after(
                        kind, via, part, item_bytes, changed=changed, semantic=semantic, scope=scope, scalar=scalar
                    )
                return
        # the version before this access: a loop that writes with its own atomics is not at rest
        if spins and kind is Kind.ATOMIC:  # lanes poll words of their own
            for address in map(int, addresses.flat):
                spins[-1].note_read(address, address + item_bytes, self.scheduler.version)
        elif spins and kind is not Kind.STORE:
            spins[-1].note_read(start, end, self.scheduler.version)
        if changed:
            self.scheduler.wrote(start, end)
        if self.observers:
            task, place = self.scheduler.task.identity, self.place()
            buffer, flat = self.memory.owner(start), addresses.ravel()
            one = scalar or (via is Via.ASSEMBLY and addresses.size == 1)
            may_synchronise = one and end - start <= _WORD_BYTES and (via is not Via.PLAIN or semantic is not _NONE)
            value = _value(start, end) if may_synchronise else None
            fields = (changed, place, scalar, start, end, buffer, value)
            self._tell(Access(task, kind, via, flat, item_bytes, semantic, scope, *fields))

    def barrier(self) -> None:
        """The warps of the running task meet."""
        for met in self.on_barrier:
            met()
        if self.observers:
            self._tell(Barrier(self.scheduler.task.identity, self.place()))

    def fence(self, text: str) -> None:
        for awaited in self.on_fence:
            awaited(text)
        if self.observers:
            self._tell(Fence(self.scheduler.task.identity, text, self.place()))

    def place(self) -> Place:
        """The source lines of the running program; the host line that enqueued a stream's operation."""
        task = self.scheduler.task
        return place_of(sys._getframe(), task.launched) if task.kernel else task.origin

    def excuse_waits(self, spared: Collection[int]) -> None:
        """From now on a run that hangs lets one wait for a word after the other pass, but never one of the tasks `spared`.

        What such a run does is not what the program would do; it tells who would have raised a word.
        """
        excused = Counter[int]()

        def excuse() -> None:
            for task in self.scheduler.watching():
                number = task.identity.number
                if number not in spared and excused[number] < _MOST_EXCUSED:
                    excused[number] += 1
                    self.scheduler.excuse(task)
                    return

        self.scheduler.on_stuck = excuse

    def restore_word(self, name: str, rank: int, offset: int, num_bytes: int, value: int) -> None:
        """When the run hangs, give a word of the symmetric buffer `name` of `rank` a value that it had before."""

        def restore() -> None:
            self.scheduler.on_stuck = None
            buffer = self.memory.named(name, rank)
            if buffer is not None:
                start = buffer.start + offset
                ctypes.memmove(start, value.to_bytes(num_bytes, sys.byteorder, signed=True), num_bytes)
                self.scheduler.wrote(start, start + num_bytes)

        self.scheduler.on_stuck = restore

    def wait_for_word(self, word: torch.Tensor, value: int, *, equal: bool = False) -> None:
        """Block the running task until the int32 or int64 `word` is at least `value`, or equal to it."""
        start, sign = word.data_ptr(), "==" if equal else ">="
        end = start + word.element_size()
        while (held := int(word.item())) < value or (equal and held != value):
            wait = Wait(lambda: f"{self.word(start, end)} {sign} {value}", ranges=((start, end),))
            self.scheduler.block(wait)
            if self.scheduler.is_excused():
                return

    def word(self, start: int, end: int) -> str:
        """`signal[3] of rank 1 (value 0)`; for more than 8 bytes the first and the last element."""
        name = self.memory.describe(start)
        owner = self.memory.owner(start)
        if owner is None:
            return name
        if end - start > _WORD_BYTES:
            return f"{name} ... {self.memory.describe(end - 1)}"
        return f"{name} (value {_value(start, end)})"

    def _refuse_peers(self, addresses: Addresses) -> None:
        identity = self.scheduler.task.identity
        for address in map(int, addresses.flat):
            owner = self.memory.owner(address)
            if owner is not None and owner.symmetric and owner.rank != identity.rank:
                raise NoPeerAtomics(
                    rank=identity.rank,
                    peer=owner.rank,
                    task=identity.name,
                    place=self.place(),
                    what=self.memory.describe(address),
                )

    def _no_sm(self, rank: int, what: str) -> str:
        return f"a free SM of rank {rank} for {what} (all {self.num_sms} are taken)"

    def _tell(self, event: Event) -> None:
        for observer in self.observers:
            observer.observe(event)


def _value(start: int, end: int) -> int:
    """The integer in the bytes [start, end) of this process."""
    return int.from_bytes(ctypes.string_at(start, end - start), sys.byteorder, signed=True)
