"""Shared memory of a program as Gluon names it: tiles, and barriers whose phases groups of warps wait for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as stock

from tilelink.emulator.gluon.errors import IllegalBarrier
from tilelink.emulator.numerics import Handle
from tilelink.emulator.shortcuts import block_of
from tilelink.emulator.task import Wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tilelink.emulator.machine import Machine

_numbers = count()


@dataclass(slots=True, eq=False)
class SharedMemory:
    """Tiles of `dtype`, or words that barriers are. Views share `data` and `barriers` with what they are of.

    Memory holds what is no number until something is stored: who reads it too early makes a wrong result.
    """

    dtype: Any
    data: NDArray[Any]
    layout: object
    barriers: dict[tuple[int, ...], Barrier] = field(default_factory=dict)
    at: tuple[int, ...] = ()
    stored: Callable[[SharedMemory], None] | None = None  # is told of each store

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    @property
    def numel(self) -> int:
        return self.data.size

    def index(self, index: Any) -> SharedMemory:
        number = integer(index)
        if not 0 <= number < self.shape[0]:
            raise IndexError(f"place {number} of shared memory that has {self.shape[0]}")
        return replace(self, data=self.data[number], at=(*self.at, number))

    def permute(self, order: tuple[int, ...]) -> SharedMemory:
        dims = tuple(map(integer, order))
        return replace(self, data=self.data.transpose(dims))

    def reshape(self, shape: Any) -> SharedMemory:
        return replace(self, data=self.data.reshape(tuple(map(integer, shape))))

    def _reinterpret(self, dtype: Any, shape: Any, layout: object) -> SharedMemory:
        """The same bytes as tiles of another shape."""
        if dtype != self.dtype:
            raise TypeError(f"shared memory of {self.dtype} is not emulated as {dtype}")
        return replace(self, data=self.data.reshape(tuple(map(integer, shape))), layout=layout)

    def load(self, layout: object = None) -> Any:
        return tl.tensor(Handle(self.data.copy(), self.dtype), block_of(self.dtype, self.shape))

    def store(self, value: Any) -> None:
        if value.dtype != self.dtype or tuple(value.handle.data.shape) != self.shape:
            raise TypeError(f"a tile {value.type} does not fit shared memory of {self.dtype}{list(self.shape)}")
        self.data[...] = value.handle.data
        if self.stored is not None:
            self.stored(self)

    @property
    def span(self) -> tuple[int, int]:
        """Addresses of its first byte and behind its last one, of a tile that lies in one piece."""
        first = self.data.__array_interface__["data"][0]
        return first, first + self.data.nbytes

    def barrier(self, machine: Machine) -> Barrier:
        """The barrier that this word is. Raises `IllegalBarrier` unless it was initialised."""
        found = self.barriers.get(self.at)
        if found is None:
            task = machine.scheduler.task.identity
            reason = "it was not initialised"
            raise IllegalBarrier(rank=task.rank, task=task.name, place=machine.place(), at=list(self.at), reason=reason)
        return found


def allocate(
    element: Any, shape: Any, layout: object, stored: Callable[[SharedMemory], None] | None = None
) -> SharedMemory:
    sizes = tuple(map(integer, shape))
    dtype = stock._get_np_dtype(element)
    data: NDArray[Any] = np.empty(sizes, dtype)
    data.view(np.uint8)[...] = 0xFF  # of floats: no number
    return SharedMemory(element, data, layout, stored=stored)


@dataclass(slots=True, eq=False)
class Barrier:
    """Of Hopper: a phase ends when so many have arrived and all bytes that were announced have come (PTX ISA, mbarrier).

    A wait names the parity of a phase, and passes when the current one has the other: so it also passes for a phase that is
    two behind the one that was meant.
    """

    machine: Machine
    expected: int  # arrivals of a phase
    what: str
    missing: int = 0
    pending_bytes: int = 0
    ended: int = 0  # phases
    fenced: bool = False  # loads through descriptors find it initialised
    number: int = field(default_factory=lambda: next(_numbers))

    def __post_init__(self) -> None:
        self.missing = self.expected

    def arrive(self, arrivals: int, announced: int = 0) -> None:
        """Raises `IllegalBarrier` where more arrive than a phase has."""
        self.pending_bytes += announced
        self.missing -= arrivals
        if self.missing < 0:
            task = self.machine.scheduler.task.identity
            reason = f"{arrivals} more arrive than the {self.expected} of a phase"
            place = self.machine.place()
            raise IllegalBarrier(rank=task.rank, task=task.name, place=place, at=self.what, reason=reason)
        self._advance()

    def came(self, num_bytes: int) -> None:
        self.pending_bytes -= num_bytes
        self._advance()

    def wait(self, parity: int) -> None:
        machine = self.machine
        while self.ended % 2 == parity:
            wait = Wait(lambda: f"phase {self.ended} of barrier {self.what}", keys=(("mbarrier", self.number),))
            machine.scheduler.block(wait)
        if self.ended:
            machine.acquired(machine.scheduler.task, ("mbarrier", self.number, self.ended - 1))

    def _advance(self) -> None:
        machine = self.machine
        machine.released(machine.scheduler.task, ("mbarrier", self.number, self.ended))
        if self.missing == 0 and self.pending_bytes == 0:
            self.ended += 1
            self.missing = self.expected
            machine.scheduler.wake(("mbarrier", self.number))


def integer(value: Any) -> int:
    """Of a number as a kernel has it."""
    if isinstance(value, tl.constexpr):
        value = value.value
    return int(value.handle.data.item()) if isinstance(value, tl.tensor) else int(value)
