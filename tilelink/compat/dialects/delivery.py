"""One-sided transfers that are carried out after the call: each is a task of its own.

Between the call and the delivery the scheduling policy may let anything else happen. A delivery acquires what
the program that issued it did before the call. Two deliveries are ordered only by a fence between them, to
the same peer. They are separate tasks because a task has one order: were one task to deliver two puts, the
signal of the second would seem to cover the data of the first.

Observers see a transfer as a task of the issuing rank that is no program: it acquires the token ("issued", n), loads
and stores as a copy does, releases ("staged", n) when it has read the source of a put that returns then, and
("delivered", n) at its end, which later transfers behind a fence, `quiet` and gets acquire.

A delivery ends before the run of the world does, but neither before its program nor before its kernel.

One thing is stronger here than in the specification: the signal of a put is a release of the delivery, which
has acquired all that the program did before. So a receiver that relies on other stores of the program, made
before the put without a fence, is not refuted.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import triton.language as tl

from tilelink.emulator.events import Kind, Scope, Semantic, Via
from tilelink.emulator.numerics import Handle
from tilelink.emulator.operations import Signal, Transfer
from tilelink.emulator.task import Wait

if TYPE_CHECKING:
    from collections.abc import Hashable

    from tilelink.emulator.machine import Machine
    from tilelink.emulator.place import Place
    from tilelink.emulator.task import Task

_WORD = tl.pointer_type(tl.int64)
_WORD_BYTES = 8
_UNSIGNED = (1 << 64) - 1


@dataclass(slots=True)
class _Issued:
    """What one program has issued. Numbers are those of deliveries, keys peers."""

    since_fence: dict[int, list[int]] = field(default_factory=dict)
    before_fence: dict[int, tuple[int, ...]] = field(default_factory=dict)  # the last non-empty lot
    since_quiet: list[int] = field(default_factory=list)


class Deliveries:
    """All transfers of one run."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._issued: dict[int, _Issued] = {}  # by number of the program's task
        self._reached: set[Hashable] = set()
        self._count = 0
        self._settled = 0  # transfers of lower numbers were delivered in an earlier run

    def issue(self, transfer: Transfer) -> int:
        """Start a transfer of the running program; returns its number. Blocks while the source is staged."""
        machine = self._machine
        program, place = machine.scheduler.task, machine.place()
        number = self._count
        self._count += 1
        issued = self._issued.setdefault(program.identity.number, _Issued())
        issued.since_quiet.append(number)
        follows: tuple[int, ...] = ()
        if transfer.fenced:
            follows = issued.before_fence.get(transfer.pe, ())
            issued.since_fence.setdefault(transfer.pe, []).append(number)
        machine.released(program, ("issued", number))
        self._spawn(number, transfer, follows, place)
        if transfer.stages:
            self.await_("staged", number)
        else:
            machine.scheduler.switch()
        return number

    def fence(self) -> None:
        """Order what the running program has issued before what it will issue, to each peer."""
        issued = self._issued.get(self._machine.scheduler.task.identity.number)
        if issued is not None:
            for pe, numbers in issued.since_fence.items():
                issued.before_fence[pe] = tuple(numbers)
            issued.since_fence.clear()

    def quiet(self) -> None:
        """Block until all that the running program has issued is delivered."""
        issued = self._issued.pop(self._machine.scheduler.task.identity.number, None)
        for number in issued.since_quiet if issued is not None else ():
            self.await_("delivered", number)

    def await_(self, phase: str, number: int) -> None:
        """Block the running task until a delivery is "staged" or "delivered", and acquire what it did so far."""
        key = (phase, number)
        while number >= self._settled and key not in self._reached:
            wait = Wait(lambda: f"transfer {number} to be {phase}", keys=(key,))
            self._machine.scheduler.block(wait)
        self._machine.acquired(self._machine.scheduler.task, key)

    def forget(self) -> None:
        """The run is over, and with it all of its programs and transfers."""
        self._issued.clear()
        self._reached.clear()
        self._settled = self._count

    def _spawn(self, number: int, transfer: Transfer, follows: tuple[int, ...], place: Place) -> None:
        machine = self._machine
        program = machine.scheduler.task.identity
        task = machine.new_task(program.rank, f"transfer {number} of {program.name}")
        task.operation = transfer
        task.origin = place

        def body() -> None:
            machine.acquired(task, ("issued", number))
            content = self._read(transfer) if transfer.stages else b""
            if transfer.stages:
                self._reach("staged", number, task)
                machine.scheduler.switch()
            for earlier in follows:
                self.await_("delivered", earlier)
            if not transfer.stages:
                content = self._read(transfer)
            for piece, at in self._pieces(transfer, content):
                machine.scheduler.count_access()
                ctypes.memmove(at, piece, len(piece))
                self._tell(Kind.STORE, at, len(piece), alone=transfer.signal is None)
            if transfer.signal is not None:
                self._raise(transfer.signal)
            self._reach("delivered", number, task)

        machine.scheduler.spawn(task, body)

    def _pieces(self, transfer: Transfer, content: bytes) -> Iterator[tuple[bytes, int]]:
        """What lands at once, and where. Of a put without a signal the second half comes first: of what tells by itself that it
        has come nothing is promised but whole words."""
        half = len(content) // _WORD_BYTES // 2 * _WORD_BYTES
        if transfer.signal is None and half:
            yield content[half:], transfer.destination + half
            self._machine.scheduler.switch()
            content = content[:half]
        if content:
            yield content, transfer.destination

    def _read(self, transfer: Transfer) -> bytes:
        if isinstance(transfer.source, bytes):
            return transfer.source
        if not transfer.num_bytes:
            return b""
        self._machine.scheduler.count_access()
        content = ctypes.string_at(transfer.source, transfer.num_bytes)
        self._tell(Kind.LOAD, transfer.source, transfer.num_bytes, alone=transfer.signal is None)
        return content

    def _raise(self, signal: Signal) -> None:
        """A release of the running task. To set a word needs no atomics of the link; to add to it does."""
        machine = self._machine
        if signal.adds:
            # the language is patched: an atomic of the running task like any other
            tl.atomic_add(word_at(signal.address), signal.value, sem="release", scope="sys")
            return
        machine.scheduler.switch()
        machine.scheduler.count_access()
        word = ctypes.c_uint64.from_address(signal.address)
        value = signal.value & _UNSIGNED
        changed = word.value != value
        word.value = value
        address = np.array([signal.address], dtype=np.uint64)
        machine.after(
            Kind.ATOMIC,
            Via.ATOMIC,
            address,
            _WORD_BYTES,
            changed=changed,
            semantic=Semantic.RELEASE,
            scope=Scope.SYSTEM,
        )

    def _reach(self, phase: str, number: int, task: Task) -> None:
        key = (phase, number)
        self._machine.released(task, key)
        self._reached.add(key)
        self._machine.scheduler.wake(key)

    def _tell(self, kind: Kind, address: int, num_bytes: int, *, alone: bool) -> None:
        """`alone`: of a put without a signal, whose words may each tell that they have come."""
        one = np.array([address], dtype=np.uint64)
        words = alone and num_bytes > _WORD_BYTES and address % _WORD_BYTES == num_bytes % _WORD_BYTES == 0
        via = Via.PUT if words else Via.COPY
        self._machine.after(kind, via, one, num_bytes, changed=kind is Kind.STORE)


def word_at(address: int) -> Any:
    """A scalar pointer to a 64-bit word, as a kernel has it."""
    return tl.tensor(Handle(np.array([address], dtype=np.uint64), _WORD), _WORD)
