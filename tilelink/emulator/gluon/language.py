"""Gluon in an emulated kernel: what its functions have in common with Triton's is the same; layouts mean nothing here.

Groups of warps are tasks of their own. So are loads of tiles into shared memory, which come when the policy lets them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import triton.experimental.gluon.language as gl
import triton.language as tl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.runtime import interpreter as stock
from triton.tools import tensor_descriptor

from tilelink.emulator.failing import errors_of_kernel
from tilelink.emulator.gluon.errors import IllegalBarrier, NotInGluon
from tilelink.emulator.gluon.shared import Barrier, SharedMemory, allocate, integer
from tilelink.emulator.gluon.sources import Sent, Sources
from tilelink.emulator.races.fences import StoresAwaited, meaning
from tilelink.emulator.task import Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tilelink.emulator.machine import Machine
    from tilelink.emulator.task import Task

_PASSED = (
    gl.BlockedLayout,
    gl.SliceLayout,
    gl.NVMMADistributedLayout,
    gl.NVMMASharedLayout,
    gl.DotOperandLayout,
    gl.AutoLayout,
)


class SharedDescriptor:
    """A tensor descriptor as a kernel in Gluon sees it."""

    def __init__(self, descriptor: TensorDescriptor) -> None:
        plain = tensor_descriptor.TensorDescriptor(
            descriptor.base, descriptor.shape, descriptor.strides, descriptor.block_shape, descriptor.padding
        )
        self.loads = stock._implicit_cvt(plain)
        self.layout = descriptor.layout


class _Names:
    """A module of Gluon: what is emulated, and nothing else. Raises `NotInGluon` for other names."""

    def __init__(self, module: str, machine: Machine, known: dict[str, object], plain: object = None) -> None:
        self._module, self._machine, self._plain = module, machine, plain
        vars(self).update(known)

    def __getattr__(self, name: str) -> Any:
        if self._plain is not None and hasattr(self._plain, name):
            return getattr(self._plain, name)
        task = self._machine.scheduler.task.identity
        raise NotInGluon(rank=task.rank, task=task.name, place=self._machine.place(), name=f"{self._module}.{name}")


class Gluon:
    """The names of Gluon for one run. `call` runs a function of the emitted file, `builder` accesses memory."""

    def __init__(self, machine: Machine, semantic: Any, call: Callable[..., object]) -> None:
        self._machine = machine
        self._semantic = semantic
        self._call = call
        self._waves, self._loads, self._stores = 0, 0, 0
        # by number of the task: barriers of which loads do not know yet, stores of tiles of which some may not have ended
        self._fresh: dict[int, list[Barrier]] = {}
        self._sent: dict[int, list[Sent]] = {}
        self._sources = Sources(machine)
        machine.on_fence.append(self._await_sent)
        machine.on_barrier.append(self._sources.barrier)

    def replaced(self) -> dict[int, object]:
        """What stands for a module or function of Gluon in the globals of an emitted file, by the `id` of it."""
        barrier = {"MBarrierLayout": hopper.mbarrier.MBarrierLayout, "init": self._init, "expect": self._expect}
        barrier |= {"arrive": self._arrive, "wait": self._wait}
        copies: dict[str, object] = {"async_copy_global_to_shared": self._load, "store_wait": self._await_read}
        copies |= {"async_copy_shared_to_global": self._store}
        language: dict[str, object] = {kind.__name__: kind for kind in _PASSED}
        language |= {
            "allocate_shared_memory": partial(allocate, stored=self._sources.store),
            "arange": lambda start, end, layout=None: tl.arange(start, end),
            "convert_layout": lambda value, layout, assert_trivial=False: value,
            "full": lambda shape, value, dtype, layout=None: tl.full(list(shape), value, dtype),
            "full_like": lambda like, value: tl.full(like.shape, value, like.dtype),
            "num_warps": lambda: 4,
            "thread_barrier": self._machine.barrier,
            "to_tensor": lambda value: self._semantic.to_tensor(value),
            "warp_specialize": self._specialize,
            "zeros": lambda shape, dtype, layout=None: tl.full(list(shape), 0, dtype),
        }
        return {
            id(gl): _Names("gl", self._machine, language, tl),
            id(hopper.mbarrier): _Names("mbarrier", self._machine, barrier),
            id(hopper.tma): _Names("tma", self._machine, copies),
            id(hopper.warpgroup_mma): self._multiply,
            id(hopper.warpgroup_mma_wait): self._await_products,
            id(hopper.fence_async_shared): self._fence,
        }

    # groups of warps

    def _specialize(self, groups: Sequence[tuple[Any, Sequence[object]]], warps: object, registers: object) -> None:
        """Run the function of each group as a task of its own, until all have ended."""
        machine = self._machine
        program = machine.scheduler.task
        self._waves += 1
        token = ("groups", self._waves)
        running = [len(groups)]
        for number, (function, arguments) in enumerate(groups):
            child = machine.new_task(program.identity.rank, f"{program.identity.name} group {number}")
            child.kernel, child.program, child.grid = program.kernel, program.program, program.grid
            machine.released(program, ("issued", (*token, number)))
            self._start(child, token, number, function, arguments, running)
        while running[0]:
            machine.scheduler.block(Wait(lambda: f"{running[0]} of its groups of warps to end", keys=(token,)))
        for number in range(len(groups)):
            machine.acquired(program, (*token, number))

    def _start(
        self, child: Task, token: tuple[str, int], number: int, function: Any, arguments: Any, running: list[int]
    ) -> None:
        machine = self._machine

        def body() -> None:
            machine.acquired(child, ("issued", (*token, number)))
            with errors_of_kernel(child):
                self._call(function, *arguments)
            self._sources.end(child.identity.number)
            machine.released(child, (*token, number))
            running[0] -= 1
            machine.scheduler.wake(token)

        machine.scheduler.spawn(child, body)

    # barriers

    def _init(self, memory: SharedMemory, count: Any) -> None:
        program = self._machine.scheduler.task.identity.name
        at = ", ".join(map(str, memory.at))
        made = memory.barriers[memory.at] = Barrier(self._machine, integer(count), f"[{at}] of {program}")
        self._fresh.setdefault(self._machine.scheduler.task.identity.number, []).append(made)

    def _fence(self, cluster: bool = False) -> None:
        """What the running task has initialised is so for loads as well, which go through the asynchronous proxy; what it has
        stored, stores from shared memory find."""
        number = self._machine.scheduler.task.identity.number
        self._sources.fence()
        for made in self._fresh.pop(number, ()):
            made.fenced = True

    def _expect(self, memory: SharedMemory, bytes: Any, pred: Any = True) -> None:
        if integer(pred):
            memory.barrier(self._machine).arrive(1, integer(bytes))

    def _arrive(self, memory: SharedMemory, *, count: Any = 1, pred: Any = True) -> None:
        if integer(pred):
            memory.barrier(self._machine).arrive(integer(count))

    def _wait(self, memory: SharedMemory, phase: Any, pred: Any = True, deps: object = ()) -> None:
        if integer(pred):
            memory.barrier(self._machine).wait(integer(phase))

    # tiles

    def _load(self, described: SharedDescriptor, coord: Any, barrier: SharedMemory, result: SharedMemory) -> None:
        """A load that comes later, by no program: it takes what the memory holds then."""
        machine, number = self._machine, self._loads
        self._loads += 1
        program, place = machine.scheduler.task, machine.place()
        arrived = barrier.barrier(machine)
        if not arrived.fenced:
            task, reason = program.identity, "loads may find it as it was before it was initialised, without a fence"
            raise IllegalBarrier(rank=task.rank, task=task.name, place=place, at=arrived.what, reason=reason)
        starts = [self._semantic.to_tensor(integer(one)).handle for one in coord]
        token = ("issued", f"load {number}")
        machine.released(program, token)
        child = machine.new_task(program.identity.rank, f"load {number} into shared memory")
        child.origin = place

        def body() -> None:
            machine.acquired(child, token)
            found = self._semantic.builder.create_descriptor_load(described.loads.handle, starts, None, None)
            self._sources.overwrite(result)
            result.data[...] = found.data
            arrived.came(found.data.nbytes)
            machine.released(child, ("delivered", f"load {number}"))

        machine.scheduler.spawn(child, body)

    def _store(self, described: SharedDescriptor, coord: Any, src: SharedMemory) -> None:
        """A store that comes later, by no program: first it reads what the shared memory holds then."""
        machine, number = self._machine, self._stores
        sent = self._sources.send(src, number)
        self._stores += 1
        program = machine.scheduler.task
        starts = [self._semantic.to_tensor(integer(one)).handle for one in coord]
        token = ("issued", f"store {number}")
        machine.released(program, token)
        child = machine.new_task(program.identity.rank, f"store {number} from shared memory")
        child.origin = machine.place()
        self._sent.setdefault(program.identity.number, []).append(sent)

        def body() -> None:
            machine.acquired(child, token)
            value = src.load().handle
            sent.is_read = True
            machine.scheduler.wake(("read", number))
            machine.scheduler.switch()
            self._semantic.builder.create_descriptor_store(described.loads.handle, value, starts)
            sent.is_done = True
            machine.released(child, ("performed", f"store {number}"))
            machine.scheduler.wake(("sent", number))

        machine.scheduler.spawn(child, body)

    def _await_read(self, pendings: Any) -> None:
        """Block until the sources of all stores of this task but the last `pendings` have been read."""
        scheduler = self._machine.scheduler
        sent = self._sent.get(scheduler.task.identity.number, [])
        for one in sent[: max(0, len(sent) - integer(pendings))]:
            while not one.is_read:
                scheduler.block(Wait(partial(str, f"store {one.number} to read"), keys=(("read", one.number),)))
            one.is_awaited = True

    def _await_sent(self, text: str) -> None:
        """Where `text` is a wait for stores: block until they have been performed."""
        fence, machine = meaning(text), self._machine
        sent = self._sent.get(machine.scheduler.task.identity.number)
        if not isinstance(fence, StoresAwaited) or not sent:
            return
        for one in sent[: max(0, len(sent) - fence.left)]:
            while not one.is_done:
                wait = Wait(partial(str, f"store {one.number} to be performed"), keys=(("sent", one.number),))
                machine.scheduler.block(wait)
            one.is_awaited = True
            machine.acquired(machine.scheduler.task, ("performed", f"store {one.number}"))
            sent.remove(one)

    def _multiply(
        self, a: Any, b: SharedMemory, acc: Any, *, use_acc: Any = True, is_async: bool = False, **_: object
    ) -> Any:
        """The product, which reads its operands until it has been waited for."""
        left = a.load() if isinstance(a, SharedMemory) else a
        if integer(is_async):
            self._sources.multiply(*(operand for operand in (a, b) if isinstance(operand, SharedMemory)))
        return tl.dot(left, b.load(), acc if integer(use_acc) else tl.zeros_like(acc))

    def _await_products(self, num_outstanding: Any = 0, deps: Sequence[Any] = ()) -> Any:
        if self._sources.products() > integer(num_outstanding):
            self._machine.scheduler.switch()  # whoever believes them to be over goes on
            self._sources.await_products(integer(num_outstanding))
        return deps[0] if len(deps) == 1 else tuple(deps)


def argument(value: object) -> object:
    """A runtime argument that is one of Gluon, as the kernel sees it; others as they are."""
    return SharedDescriptor(value) if isinstance(value, TensorDescriptor) else value
