"""How the operations of a stream are carried out by its task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import triton.language as tl

from tilelink.emulator.collectives import Meetings, Messages
from tilelink.emulator.events import Kind, Semantic, Via
from tilelink.emulator.failing import errors_of_kernel
from tilelink.emulator.machine import Places
from tilelink.emulator.operations import (
    After,
    Attention,
    Copy,
    Launch,
    Matmul,
    Meet,
    SendReceive,
    WaitAtLeast,
    WaitEqual,
    Write,
)
from tilelink.emulator.place import is_adapter
from tilelink.emulator.task import Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import torch

    from tilelink.emulator.host import Host
    from tilelink.emulator.interpreter import Interpreter
    from tilelink.emulator.machine import Machine
    from tilelink.emulator.operations import Operation
    from tilelink.emulator.streams import EmulatedStream
    from tilelink.emulator.task import Task


class Execution:
    """Carries out operations on a machine: `start` gives a stream a task, which the scheduler then runs.

    With `any_order` the policy chooses which programs get SMs first, among all launches of a rank that are at their
    turn; otherwise those of a launch in the order of their numbers.
    """

    def __init__(self, machine: Machine, host: Host, interpreter: Interpreter, any_order: bool) -> None:
        self._machine = machine
        self._loads = host.loads
        self._any_order = any_order
        self._interpreter = interpreter
        self._meetings = Meetings(machine)
        self._messages = Messages(machine)
        self._streams: dict[tuple[int, str], EmulatedStream] = {}
        self._launches = 0

    def add(self, stream: EmulatedStream) -> None:
        """Make a stream known, so that `after` finds it."""
        self._streams[stream.rank, stream.name] = stream

    def start(self, stream: EmulatedStream, task: Task) -> None:
        """Spawn `task` to carry out what is pending on `stream`."""

        def body() -> None:
            while stream.pending:
                enqueued = stream.pending[0]
                operation = enqueued.operation
                task.operation, task.origin = operation, enqueued.place
                self._machine.scheduler.switch()
                self._until_loaded(stream.rank, enqueued.ticket)
                self._execute(operation, stream, task)
                stream.pending.popleft()
                stream.completed += 1
                done = ("done", stream.rank, stream.name, stream.completed)
                self._machine.released(task, done)
                self._machine.scheduler.wake(done)

        task.operation, task.origin = stream.pending[0].operation, stream.pending[0].place
        self._machine.scheduler.spawn(task, body)

    def load(self, rank: int, task: Task) -> None:
        """Spawn `task` as host code of `rank`, which loads the kernels that it launched for the first time."""
        machine, needed, done = self._machine, self._loads.needed[rank], self._loads.done

        def body() -> None:
            while done[rank] < len(needed):
                task.operation, task.origin = needed[done[rank]], needed[done[rank]].place
                machine.scheduler.switch()
                kernel = needed[done[rank]].kernel
                why = "first launch, not loaded under fabric.loading()"
                machine.wait_until_idle(rank, f"so that kernel {kernel} can be loaded ({why})")
                done[rank] += 1
                machine.scheduler.wake(("load", rank))

        machine.scheduler.spawn(task, body)

    def _until_loaded(self, rank: int, ticket: int) -> None:
        """Block the running task until host code has come to what it enqueued with `ticket`."""
        loads = self._loads
        while loads.done[rank] < ticket:
            wait = Wait(
                lambda: (
                    f"host code to enqueue it, which first has to load kernel {loads.needed[rank][ticket - 1].kernel}"
                ),
                keys=(("load", rank),),
            )
            self._machine.scheduler.block(wait)

    def _execute(self, operation: Operation, stream: EmulatedStream, task: Task) -> None:
        match operation:
            case Launch():
                self._launch(operation, stream, task)
            case Copy():
                self._copy(operation, stream)
            case Write(word, value):
                word.fill_(value)
                self._tell(Kind.STORE, Via.STREAM, word, Semantic.RELEASE)
            case WaitAtLeast(word, value) | WaitEqual(word, value):
                self._machine.wait_for_word(word, value, equal=isinstance(operation, WaitEqual))
                self._tell(Kind.LOAD, Via.STREAM, word, Semantic.ACQUIRE)
            case After(name, position):
                self._after(self._streams[stream.rank, name], position, task)
            case Matmul(out, a, b):
                self._library("a library matmul", (a, b), (out,), operation.run, stream)
            case Attention():
                self._library("the library's attention", operation.taken, operation.made, operation.run, stream)
            case Meet():
                self._meet(operation, stream, task)
            case SendReceive():
                self._send_receive(operation, stream, task)

    def _launch(self, launch: Launch, stream: EmulatedStream, task: Task) -> None:
        """Start programs as SMs become free; done when all of them are."""
        machine, name = self._machine, launch.kernel.fn.__name__
        self._launches += 1
        token = ("launch", self._launches)
        machine.released(task, token)
        lent = [machine.memory.lend(what, stream.rank, tensor) for what, tensor in launch.tensors]
        run = self._bound(launch)
        unfinished = [launch.grid[0] * launch.grid[1] * launch.grid[2]]
        places = Places(launch.per_sm)

        def start(program: tuple[int, int, int]) -> None:
            child = machine.new_task(stream.rank, f"{name}{program}")
            child.launched = task.origin if is_adapter(launch.kernel.fn.__module__) else None
            child.kernel, child.program, child.grid, child.warps = name, program, launch.grid, launch.num_warps
            ended = (*token, program)

            def body() -> None:
                if self._any_order:
                    machine.take_place(stream.rank, places, "its start")
                machine.acquired(child, token)
                run(child)
                machine.released(child, ended)
                machine.acquired(task, ended)
                unfinished[0] -= 1
                machine.give_place(stream.rank, places)
                if not unfinished[0]:
                    machine.scheduler.wake(token)

            machine.scheduler.spawn(child, body)

        for program in _programs(launch.grid):
            if not self._any_order:
                machine.take_place(stream.rank, places, f"program {program} of {name}")
            start(program)
        while unfinished[0]:
            machine.scheduler.block(Wait(lambda: f"{unfinished[0]} programs of {name} to end", keys=(token,)))
        for buffer in lent:
            if buffer is not None:
                machine.memory.release(buffer)

    def _bound(self, launch: Launch) -> Callable[[Task], None]:
        """The kernel with its arguments as the kernel sees them."""
        constants = {parameter.name for parameter in launch.kernel.params if parameter.is_constexpr}
        arguments: dict[str, Any] = {
            name: _plain(value) if name in constants else self._interpreter.argument(value)
            for name, value in launch.arguments
        }
        function = self._interpreter.function(launch.kernel)

        def run(task: Task) -> None:
            with errors_of_kernel(task):
                function(**arguments)

        return run

    def _copy(self, copy: Copy, stream: EmulatedStream) -> None:
        local = copy.route == "local"
        if local:
            self._machine.take_sm(stream.rank, "a copy between two local buffers")
        self._tell(Kind.LOAD, Via.COPY, copy.src)
        if copy.dst.is_contiguous() and copy.src.is_contiguous():
            copy.dst.view(-1).copy_(copy.src.view(-1))
        else:
            copy.dst.copy_(copy.src)
        self._tell(Kind.STORE, Via.COPY, copy.dst)
        if local:
            self._machine.give_sm(stream.rank)

    def _after(self, other: EmulatedStream, position: int, task: Task) -> None:
        done = ("done", other.rank, other.name, position)
        while other.completed < position:
            wait = Wait(lambda: f"operation {position} of stream {other.name} to end", keys=(done,))
            self._machine.scheduler.block(wait)
        if position:
            self._machine.acquired(task, done)

    def _library(
        self,
        what: str,
        reads: Iterable[torch.Tensor],
        writes: Iterable[torch.Tensor],
        run: Callable[[], None],
        stream: EmulatedStream,
    ) -> None:
        self._machine.take_sm(stream.rank, what)
        self._machine.scheduler.switch()
        for tensor in reads:
            self._tell(Kind.LOAD, Via.LIBRARY, tensor)
        run()
        for tensor in writes:
            self._tell(Kind.STORE, Via.LIBRARY, tensor)
        self._machine.give_sm(stream.rank)

    def _meet(self, meet: Meet, stream: EmulatedStream, task: Task) -> None:
        self._machine.take_sm(stream.rank, f"the library's {meet.collective.kind.value}")
        collective = meet.collective
        self._tell(Kind.LOAD, Via.LIBRARY, collective.x)
        token = ("collective", stream.name, meet.number)
        self._machine.released(task, token)
        self._meetings.meet(stream.name, meet.number, stream.rank, collective)
        self._machine.acquired(task, token)
        self._tell(Kind.STORE, Via.LIBRARY, collective.out)
        self._machine.give_sm(stream.rank)

    def _send_receive(self, part: SendReceive, stream: EmulatedStream, task: Task) -> None:
        for _ in range(part.sms):
            self._machine.take_sm(stream.rank, "the library's send_receive")
        self._tell(Kind.LOAD, Via.LIBRARY, part.x)
        self._messages.meet(stream.name, stream.rank, part, task)
        self._tell(Kind.STORE, Via.LIBRARY, part.out)
        for _ in range(part.sms):
            self._machine.give_sm(stream.rank)

    def _tell(self, kind: Kind, via: Via, tensor: torch.Tensor, semantic: Semantic = Semantic.NONE) -> None:
        """A stream operation touched a contiguous tensor, or a matrix whose rows are."""
        address = np.array([tensor.data_ptr()], dtype=np.uint64)
        size = tensor.numel() * tensor.element_size()
        if not tensor.is_contiguous():
            rows, width = tensor.shape
            address = address + np.arange(rows, dtype=np.uint64) * np.uint64(tensor.stride(0) * tensor.element_size())
            size = width * tensor.element_size()
        if size:
            changed = kind is Kind.STORE
            self._machine.after(kind, via, address, size, changed=changed, semantic=semantic)


def _programs(grid: tuple[int, int, int]) -> Iterable[tuple[int, int, int]]:
    x_size, y_size, z_size = grid
    return ((x, y, z) for z in range(z_size) for y in range(y_size) for x in range(x_size))


def _plain(value: object) -> object:
    return value.value if isinstance(value, tl.constexpr) else value
