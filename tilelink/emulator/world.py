"""All ranks of one emulated node in one process: what host code of an emitted file talks to."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from linecache import getline
from typing import TYPE_CHECKING

import torch

from tilelink.emulator.errors import IllegalWorld, SymmetricMismatch
from tilelink.emulator.execution import Execution
from tilelink.emulator.interpreter import Interpreter
from tilelink.emulator.machine import Machine
from tilelink.emulator.scheduler import RandomPolicy
from tilelink.emulator.streams import EmulatedStream
from tilelink.errors import ScheduleMismatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tilelink.emulator.events import Observer
    from tilelink.emulator.scheduler import Policy

_MAIN = "main"
_STEP_LIMIT = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class EmulatedSymmetric:
    """One symmetric buffer, seen from one rank. `peers[r]` is rank r's, `pointers` their int64 addresses."""

    local: torch.Tensor
    peers: tuple[torch.Tensor, ...]
    pointers: torch.Tensor


class World:
    """`num_ranks` emulated GPUs of `num_sms` SMs each.

    Equal seeds give equal runs. `switch_every` > 0 lets another task run at every so many memory accesses of a
    task, not only at atomics and stream operations. `policy` replaces the seeded choice of who runs next,
    `observers` get the event stream, `step_limit` bounds switches plus memory accesses of one run.
    Raises `IllegalWorld`.
    """

    def __init__(
        self,
        num_ranks: int,
        num_sms: int = 132,
        seed: int = 0,
        switch_every: int = 0,
        *,
        policy: Policy | None = None,
        observers: Sequence[Observer] = (),
        step_limit: int = _STEP_LIMIT,
    ) -> None:
        for name, value, least in (
            ("num_ranks", num_ranks, 1),
            ("num_sms", num_sms, 1),
            ("switch_every", switch_every, 0),
            ("step_limit", step_limit, 1),
        ):
            if value < least:
                raise IllegalWorld(name=name, value=value, least=least)
        policy = policy or RandomPolicy(seed)
        self.machine = Machine(num_ranks, num_sms, policy, switch_every, step_limit, observers)
        self._interpreter = Interpreter(self.machine)
        self._execution = Execution(self.machine, self._interpreter)
        self._allocations: list[tuple[torch.Tensor, ...]] = []
        self._streams: dict[tuple[int, str], EmulatedStream] = {}
        self.schedules: dict[int, tuple[int, str]] = {}
        self._runs = 0
        self._failure: Exception | None = None
        self.fabrics = tuple(EmulatedFabric(self, rank) for rank in range(num_ranks))

    @property
    def steps(self) -> int:
        """Switches plus memory accesses of the last run."""
        return self.machine.scheduler.steps

    def run(self) -> None:
        """Execute all that is enqueued, until every stream is empty; may be called again after further calls.

        Raises `Deadlock`, `StepLimit`, `OutOfBounds`, `KernelError`, `CollectiveMismatch`,
        `UnknownInlineAsm`, and what an observer raises. A world that has failed fails in the same way for
        ever.
        """
        if self._failure is not None:
            raise self._failure
        machine = self.machine
        with self._interpreter.patched():
            tasks = []
            for stream in tuple(self._streams.values()):
                if stream.pending:
                    task = machine.new_task(stream.rank, f"stream {stream.name}")
                    machine.acquired(task, ("run", self._runs))
                    self._execution.start(stream, task)
                    tasks.append(task)
            try:
                machine.scheduler.run()
            except Exception as error:
                self._failure = error
                raise
        self._runs += 1
        for task in tasks:
            machine.released(task, ("run", self._runs))

    def allocate(
        self, number: int, rank: int, shape: tuple[int, ...], dtype: torch.dtype, name: str
    ) -> EmulatedSymmetric:
        """Rank `rank`'s part of the `number`-th symmetric allocation. Raises `SymmetricMismatch`."""
        num_ranks = self.machine.num_ranks
        if number == len(self._allocations):
            memory = self.machine.memory
            self._allocations.append(tuple(memory.allocate(name, r, shape, dtype) for r in range(num_ranks)))
        peers = self._allocations[number]
        if tuple(peers[0].shape) != shape or peers[0].dtype != dtype:
            other = f"{peers[0].dtype} {list(peers[0].shape)}"
            raise SymmetricMismatch(number=number, rank=rank, own=f"{dtype} {list(shape)}", other=other)
        pointers = torch.tensor([peer.data_ptr() for peer in peers], dtype=torch.int64)
        return EmulatedSymmetric(peers[rank], peers, pointers)

    def stream(self, rank: int, name: str) -> EmulatedStream:
        """The stream of that name, created once."""
        stream = self._streams.get((rank, name))
        if stream is None:
            stream = self._streams[rank, name] = EmulatedStream(self.machine, rank, name)
            self._execution.add(stream)
        return stream


class EmulatedFabric:
    """One rank's view of a `World`: the fabric interface of an emitted file. Host code only enqueues."""

    def __init__(self, world: World, rank: int) -> None:
        self.rank = rank
        self.num_ranks = world.machine.num_ranks
        self.device = torch.device("cpu")
        self._world = world
        self._allocations = 0
        self._agreed: list[str] = []

    def symmetric(self, shape: tuple[int, ...], dtype: torch.dtype) -> EmulatedSymmetric:
        """A zeroed buffer on every rank; all ranks call in one order. Raises `SymmetricMismatch`."""
        number = self._allocations
        self._allocations += 1
        return self._world.allocate(number, self.rank, tuple(shape), dtype, _assigned_name(number))

    def main(self) -> EmulatedStream:
        """The stream that the caller is on."""
        return self._world.stream(self.rank, _MAIN)

    def stream(self, name: str) -> EmulatedStream:
        """A side stream."""
        return self._world.stream(self.rank, name)

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Inside, what is enqueued is checked but not run: a GPU loads its kernels then, before any of them spins."""
        self._world.machine.loading.add(self.rank)
        try:
            yield
        finally:
            self._world.machine.loading.discard(self.rank)

    def agree(self, schedule: str) -> None:
        """Every rank must hold the same schedule. Raises `ScheduleMismatch`."""
        held = self._world.schedules.setdefault(len(self._agreed), (self.rank, schedule))
        self._agreed.append(schedule)
        if held[1] != schedule:
            raise ScheduleMismatch(rank=self.rank, own=schedule, other=held[1])

    def barrier(self) -> None:
        """All ranks meet. Emulated ranks share one host, whose calls are in order already: nothing to do."""


def _assigned_name(number: int) -> str:
    """What the calling line assigns to (`self.signals = fabric.symmetric(...)`), for reports."""
    caller = sys._getframe(2)
    line = getline(caller.f_code.co_filename, caller.f_lineno)
    match = re.match(r"\s*(?:\w+\.)?(\w+)\s*(?::[^=]*)?=[^=]", line)
    return match[1] if match else f"symmetric_{number}"
