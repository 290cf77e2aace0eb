"""Who still reads shared memory: stores from it, which read later, and products that have not been waited for.

Both are begun by a group of warps and read through the asynchronous proxy. A store is begun by one thread, and waited for by
that thread alone: so what the group has stored there needs a fence and then a barrier before, and a barrier behind the wait
before the group may store there again (PTX ISA, cp.async.bulk, wgmma.wait_group).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilelink.emulator.gluon.errors import SharedOverwritten, UnfencedSource

if TYPE_CHECKING:
    from tilelink.emulator.gluon.shared import SharedMemory
    from tilelink.emulator.machine import Machine


@dataclass(slots=True, eq=False)
class Sent:
    """A store of a tile from shared memory: whether it has read it, whether one thread has waited for that, and whether it has
    been performed."""

    number: int
    source: SharedMemory
    is_read: bool = False
    is_awaited: bool = False
    is_done: bool = False


@dataclass(slots=True, eq=False)
class _Stored:
    """What a group has stored, until stores from there find it."""

    memory: SharedMemory
    fenced: bool = False


class Sources:
    """Of all tasks of a run, by their numbers."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._stored: dict[int, list[_Stored]] = {}
        self._reading: dict[int, list[Sent]] = {}
        self._products: dict[int, list[tuple[SharedMemory, ...]]] = {}  # that have not been waited for, oldest first

    @property
    def _task(self) -> int:
        return self._machine.scheduler.task.identity.number

    def store(self, memory: SharedMemory) -> None:
        """The running task stores to `memory`. Raises `SharedOverwritten`."""
        self.overwrite(memory)
        self._stored.setdefault(self._task, []).append(_Stored(memory))

    def fence(self) -> None:
        for one in self._stored.get(self._task, ()):
            one.fenced = True

    def barrier(self) -> None:
        """The warps of the running task have met."""
        stored, reading = self._stored.get(self._task), self._reading.get(self._task)
        if stored:
            self._stored[self._task] = [one for one in stored if not one.fenced]
        if reading:
            self._reading[self._task] = [one for one in reading if not one.is_awaited]

    def send(self, memory: SharedMemory, number: int) -> Sent:
        """The running task begins store `number` from `memory`. Raises `UnfencedSource`."""
        found = [one for several in self._stored.values() for one in several if _overlap(one.memory, memory)]
        if found:
            task = self._machine.scheduler.task.identity
            behind = "a fence, but no barrier is behind that" if all(one.fenced for one in found) else "no fence"
            raise UnfencedSource(rank=task.rank, task=task.name, place=self._machine.place(), behind=behind)
        sent = Sent(number, memory)
        self._reading.setdefault(self._task, []).append(sent)
        return sent

    def multiply(self, *operands: SharedMemory) -> None:
        """The running task begins a product."""
        self._products.setdefault(self._task, []).append(operands)

    def products(self) -> int:
        """How many products of the running task have not been waited for."""
        return len(self._products.get(self._task, ()))

    def await_products(self, left: int) -> None:
        """The running task has waited for all its products but the last `left`."""
        products = self._products.get(self._task, [])
        del products[: max(0, len(products) - left)]

    def overwrite(self, memory: SharedMemory) -> None:
        """Somebody writes to `memory`. Raises `SharedOverwritten` where a store or a product may still read it."""
        reason = ""
        for one in (one for several in self._reading.values() for one in several if _overlap(one.source, memory)):
            known = "one thread has waited for its end, and the others for no barrier behind that"
            reason = f"store {one.number} from there, {known if one.is_awaited else 'whose end nobody has waited for'}"
        for several in self._products.values():
            if any(_overlap(operand, memory) for operands in several for operand in operands):
                reason = "a product that nobody has waited for"
        if reason:
            task = self._machine.scheduler.task.identity
            raise SharedOverwritten(rank=task.rank, task=task.name, place=self._machine.place(), reader=reason)

    def end(self, task: int) -> None:
        """A task has ended."""
        for of_task in (self._stored, self._reading, self._products):
            of_task.pop(task, None)


def _overlap(one: SharedMemory, other: SharedMemory) -> bool:
    (first, end), (start, stop) = one.span, other.span
    return first < stop and start < end
