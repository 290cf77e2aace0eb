"""All ranks of one emulated node in one process: what host code of an emitted file talks to."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from linecache import getline
from typing import TYPE_CHECKING

import torch

from tilelink.emulator.errors import IllegalCapture, IllegalWorld, LateSetup, SymmetricMismatch
from tilelink.emulator.execution import Execution
from tilelink.emulator.host import Host
from tilelink.emulator.interpreter import Interpreter
from tilelink.emulator.machine import Machine
from tilelink.emulator.operations import After
from tilelink.emulator.place import host_place
from tilelink.emulator.policies import RandomPolicy
from tilelink.emulator.protocols import Enqueuing
from tilelink.emulator.recording import Recording
from tilelink.emulator.running import Run, running
from tilelink.emulator.stand_in import StandIn
from tilelink.emulator.streams import EmulatedStream
from tilelink.errors import ScheduleMismatch
from tilelink.threads import one_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tilelink.emulator.events import Observer
    from tilelink.emulator.scheduler import Policy

_MAIN = "main"
STEP_LIMIT = 1_000_000  # of a run


@dataclass(frozen=True, slots=True, eq=False)
class EmulatedSymmetric:
    """One symmetric buffer, seen from one rank. `peers[r]` is rank r's, `pointers` their int64 addresses; `multicast` is that of
    all at once, int64[1], and 0 where the links have none."""

    local: torch.Tensor
    peers: tuple[torch.Tensor, ...]
    pointers: torch.Tensor
    multicast: torch.Tensor


class World:
    """`num_ranks` emulated GPUs of `num_sms` SMs each.

    Equal seeds give equal runs. `switch_every` > 0 lets another task run at every so many memory accesses of a
    task, not only at atomics and stream operations. `policy` replaces the seeded choice of who runs next,
    `observers` get the event stream, `step_limit` bounds switches plus memory accesses of one run.

    What the emulated machine may do beyond that:
    `any_residency_order`: programs of a launch, and of launches that run at the same time, become resident in any order
    that the policy chooses; otherwise those of a launch in the order of their numbers.
    `lazy_loading`: a kernel that was not loaded under `fabric.loading()` is loaded by its first launch, which waits
    until no program of its rank is resident; host code of the rank enqueues nothing meanwhile.
    `peer_atomics` False: links do not carry atomics; one on a peer's buffer raises `NoPeerAtomics`.
    `multicast` True: links have multicast addresses, of all ranks, or of each `ranks_per_node` that follow each other.
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
        step_limit: int = STEP_LIMIT,
        any_residency_order: bool = False,
        lazy_loading: bool = False,
        peer_atomics: bool = True,
        multicast: bool = False,
        ranks_per_node: int = 0,
    ) -> None:
        for name, value, least in (
            ("num_ranks", num_ranks, 1),
            ("num_sms", num_sms, 1),
            ("switch_every", switch_every, 0),
            ("step_limit", step_limit, 1),
        ):
            if not isinstance(value, int) or value < least:
                raise IllegalWorld(name=name, value=value, least=least)
        policy = policy or RandomPolicy(seed)
        limits = num_ranks, num_sms, policy, switch_every, step_limit, observers
        self.machine = Machine(*limits, peer_atomics=peer_atomics, multicast=multicast, ranks_per_node=ranks_per_node)
        self.host = Host(num_ranks, lazy_loading)
        self._interpreter = Interpreter(self.machine)
        self._execution = Execution(self.machine, self.host, self._interpreter, any_residency_order)
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
        `UnknownInlineAsm`, `NoPeerAtomics`, `IllegalCapture` inside of a capture, and what an observer raises. A
        world whose emulation has failed fails in the same way for ever.
        """
        if self._failure is not None:
            raise self._failure
        if self.host.recording is not None:
            self._refuse("World.run() inside capture(): what is captured runs when it is replayed")
        machine = self.machine
        with one_thread(), self._interpreter.patched(), running(Run(machine, self._interpreter.semantic)):
            tasks = []
            for stream in tuple(self._streams.values()):
                if stream.pending:
                    task = machine.new_task(stream.rank, f"stream {stream.name}")
                    machine.acquired(task, ("run", self._runs))
                    self._execution.start(stream, task)
                    tasks.append(task)
            for rank, needed in enumerate(self.host.loads.needed):
                if self.host.loads.done[rank] < len(needed):
                    self._execution.load(rank, machine.new_task(rank, "host"))
            try:
                machine.scheduler.run()
            except Exception as error:
                self._failure = error
                raise
        self._runs += 1
        for task in tasks:
            machine.released(task, ("run", self._runs))

    @contextmanager
    def capture(self) -> Iterator[Recording]:
        """What host code enqueues inside, on any stream of any rank, is recorded and not run: a CUDA graph.

        Raises `IllegalCapture` inside of another capture, and for a side stream that the main stream has not joined.
        """
        if self.host.recording is not None:
            self._refuse("capture() inside capture()")
        recording = self.host.recording = Recording(self.host)
        try:
            yield recording
        finally:
            self.host.recording = None
            recording.open = False
        for rank in range(self.machine.num_ranks):
            side = recording.unjoined(rank, _MAIN)
            if side:
                self._refuse(
                    f"the capture on rank {rank} ends while stream {side!r} has work that the main stream has not joined"
                )

    def replay(self, recording: Recording) -> None:
        """Enqueue a recording again, with the same arguments, behind what the main stream of each rank holds.

        As in a CUDA graph, side streams begin after the main stream's earlier work, and its later work after all of it.
        Raises `IllegalCapture` while anything is captured, and for another world's recording.
        """
        if self.host.recording is not None or recording.open:
            self._refuse("replay() inside capture()")
        if recording.owner is not self.host:
            self._refuse("replay() of what another world has captured")
        place = host_place(sys._getframe(), skip=__file__)
        for rank in range(self.machine.num_ranks):
            main = self.stream(rank, _MAIN)
            streams = {name: self.stream(rank, name) for name in recording.streams(rank)}
            sides = [stream for stream in streams.values() if stream is not main]
            for side in sides:
                side.push(After(main.name, main.end), place)
            bases = {name: stream.end for name, stream in streams.items()}
            for one in recording.operations:
                if one.rank == rank:
                    operation = one.operation
                    if isinstance(operation, After):
                        operation = After(operation.stream, bases[operation.stream] + operation.position)
                    streams[one.stream].push(operation, one.place)
            for side in sides:
                main.push(After(side.name, side.end), place)

    def protocols(self) -> tuple[tuple[Enqueuing, ...], ...]:
        """For each rank what its host code has enqueued or captured, in order: see `first_difference`."""
        return tuple(map(tuple, self.host.protocols))

    def reset_protocols(self) -> None:
        """Forget what was enqueued so far."""
        for protocol in self.host.protocols:
            protocol.clear()

    def check_setup(self, rank: int) -> None:
        """Refuse an allocation of `rank` beside work. Raises `LateSetup`, and `IllegalCapture` inside a capture."""
        if self.host.recording is not None:
            self._refuse("fabric.symmetric() inside capture(): ranks cannot meet there")
        for stream in self._streams.values():
            if stream.rank == rank and stream.pending:
                first = stream.pending[0]
                raise LateSetup(
                    rank=rank,
                    stream=stream.name,
                    pending=len(stream.pending),
                    operation=first.operation,
                    place=first.place,
                )

    def allocate(
        self, number: int, rank: int, shape: tuple[int, ...], dtype: torch.dtype, name: str
    ) -> EmulatedSymmetric:
        """Rank `rank`'s part of the `number`-th symmetric allocation. Raises `SymmetricMismatch`."""
        num_ranks = self.machine.num_ranks
        if number == len(self._allocations):
            memory = self.machine.memory
            self._allocations.append(tuple(memory.allocate(name, r, shape, dtype) for r in range(num_ranks)))
            self.machine.symmetry.add(self._allocations[number])
        peers = self._allocations[number]
        if tuple(peers[0].shape) != shape or peers[0].dtype != dtype:
            other = f"{peers[0].dtype} {list(peers[0].shape)}"
            raise SymmetricMismatch(number=number, rank=rank, own=f"{dtype} {list(shape)}", other=other)
        pointers = torch.tensor([peer.data_ptr() for peer in peers], dtype=torch.int64)
        copies = tuple(pointers.tolist())
        everywhere = self.machine.symmetry.multicast(copies, rank) if peers[0].numel() else None
        multicast = torch.tensor([0 if everywhere is None else everywhere.start], dtype=torch.int64)
        return EmulatedSymmetric(peers[rank], peers, pointers, multicast)

    def stream(self, rank: int, name: str) -> EmulatedStream:
        """The stream of that name, created once."""
        stream = self._streams.get((rank, name))
        if stream is None:
            stream = self._streams[rank, name] = EmulatedStream(self.machine, self.host, rank, name)
            self._execution.add(stream)
        return stream

    def _refuse(self, reason: str) -> None:
        legal = "capture calls, leave the capture, then replay() and run(); allocate before"
        raise IllegalCapture(reason=reason, legal=legal)


class EmulatedFabric(StandIn):
    """One rank's view of a `World`: the fabric interface of an emitted file. Host code only enqueues."""

    def __init__(self, world: World, rank: int) -> None:
        self.rank = rank
        self.num_ranks = world.machine.num_ranks
        self.num_sms = world.machine.num_sms
        self.device = torch.device("cpu")
        self._world = world
        self._allocations = 0
        self._agreed: list[str] = []
        self._current = _MAIN

    @property
    def machine(self) -> Machine:
        """For code in the words of another library."""
        return self._world.machine

    def symmetric(self, shape: tuple[int, ...], dtype: torch.dtype, name: str = "") -> EmulatedSymmetric:
        """A zeroed buffer on every rank; all ranks call in one order. Raises `SymmetricMismatch` and `LateSetup`.

        `name` is for reports; by default it is what the calling line assigns to.
        """
        self._world.check_setup(self.rank)
        number = self._allocations
        self._allocations += 1
        return self._world.allocate(number, self.rank, tuple(shape), dtype, name or _assigned_name(number))

    def main(self) -> EmulatedStream:
        """The stream that the caller is on."""
        return self._world.stream(self.rank, self._current)

    @contextmanager
    def on_stream(self, name: str) -> Iterator[None]:
        """Inside, the caller is on the stream `name`, as under `torch.cuda.stream`; empty: on the default stream."""
        before, self._current = self._current, name or _MAIN
        try:
            yield
        finally:
            self._current = before

    def stream(self, name: str) -> EmulatedStream:
        """A side stream."""
        return self._world.stream(self.rank, name)

    @property
    def is_loading(self) -> bool:
        return self.rank in self._world.host.loading

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Inside, what is enqueued is checked but not run: a GPU loads its kernels then, before any of them spins."""
        self._world.host.loading.add(self.rank)
        try:
            yield
        finally:
            self._world.host.loading.discard(self.rank)

    def agree(self, schedule: str) -> None:
        """Every rank must hold the same schedule. Raises `ScheduleMismatch`."""
        held = self._world.schedules.setdefault(len(self._agreed), (self.rank, schedule))
        self._agreed.append(schedule)
        if held[1] != schedule:
            raise ScheduleMismatch(rank=self.rank, own=schedule, other=held[1])

    def run(self, enqueue: Callable[..., None], main: EmulatedStream, *tensors: torch.Tensor) -> None:
        """`enqueue(main, *tensors)`; a fabric of GPUs may replay what it enqueued for the same tensors before."""
        enqueue(main, *tensors)

    def barrier(self) -> None:
        """All ranks meet. Emulated ranks share one host, whose calls are in order already: nothing to do."""


def _assigned_name(number: int) -> str:
    """What the calling line assigns to (`self.signals = fabric.symmetric(...)`), for reports."""
    caller = sys._getframe(2)
    line = getline(caller.f_code.co_filename, caller.f_lineno)
    match = re.match(r"\s*(?:\w+\.)?(\w+)\s*(?::[^=]*)?=[^=]", line)
    return match[1] if match else f"symmetric_{number}"
