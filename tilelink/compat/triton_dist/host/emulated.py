"""The host side on emulated ranks: a file's host code runs as it stands inside of `with on_rank(fabric):`.

world = World(4)
for fabric in world.fabrics:
    with on_rank(fabric):
        outputs.append(operator(x))  # only enqueues
world.run()

Inside, `kernel[grid](...)` is enqueued on the emulated rank's stream, `torch.cuda` has that rank's streams and events, tensors
are made on the CPU whatever device is asked for, and `dst.copy_(src)` is enqueued. As for all host code of the emulator,
other operations of torch act at once: they may prepare inputs and buffers, and neither read what a kernel writes nor reset
what one uses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from tilelink.compat.dialects.active import Dialects
from tilelink.compat.triton_dist.host import runtime
from tilelink.compat.triton_dist.host.errors import NotFromHeap

if TYPE_CHECKING:
    from tilelink.emulator.streams import EmulatedStream
    from tilelink.emulator.world import EmulatedFabric, EmulatedSymmetric

_MAIN = "main"
_GARBAGE = 0x5A  # each byte of an integer tensor that nobody has written


class EmulatedGroup:
    """The ranks of a world, as `initialize_distributed` returns them."""

    def __init__(self, fabric: EmulatedFabric) -> None:
        self._fabric = fabric

    def rank(self) -> int:
        return self._fabric.rank

    def size(self) -> int:
        return self._fabric.num_ranks


class CudaStream:
    """A stream of `torch.cuda` on an emulated rank."""

    def __init__(self, fabric: EmulatedFabric, name: str) -> None:
        self.fabric = fabric
        self.name = name
        self.stream: EmulatedStream = fabric.main() if name == _MAIN else fabric.stream(name)
        self.cuda_stream = id(self.stream)

    def wait_stream(self, stream: CudaStream) -> None:
        self.stream.after(stream.stream)

    def wait_event(self, event: CudaEvent) -> None:
        event.wait(self)

    def record_event(self, event: CudaEvent | None = None) -> CudaEvent:
        event = event or CudaEvent(self.fabric)
        event.record(self)
        return event

    def synchronize(self) -> None:
        """Emulated host code never waits."""


class CudaEvent:
    """An event of `torch.cuda`: a stream of its own that only follows others."""

    def __init__(self, fabric: EmulatedFabric, *_: object, **__: object) -> None:
        self._fabric = fabric
        self._stream = fabric.stream(_next_name(fabric, "event"))

    def record(self, stream: CudaStream | None = None) -> None:
        self._stream.after(self._fabric.main() if stream is None else stream.stream)

    def wait(self, stream: CudaStream | None = None) -> None:
        (self._fabric.main() if stream is None else stream.stream).after(self._stream)


def _next_name(fabric: EmulatedFabric, kind: str) -> str:
    counts = vars(fabric).setdefault("_triton_dist_names", {})
    counts[kind] = counts.get(kind, 0) + 1
    return f"{kind} {counts[kind]}"


class EmulatedRuntime:
    """One emulated rank."""

    def __init__(self, fabric: EmulatedFabric) -> None:
        self.fabric = fabric
        self.rank = fabric.rank
        self.num_ranks = fabric.num_ranks
        self.group = EmulatedGroup(fabric)
        self._made: dict[int, EmulatedSymmetric] = {}

    def create(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Garbage, NaN in floating point. Raises `SymmetricMismatch`, `LateSetup`."""
        made = self.fabric.symmetric(shape, dtype, f"symmetric_{len(self._made)}")
        self._made[made.local.data_ptr()] = made
        self._fill(made)
        return made.local

    def peers(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Raises `NotFromHeap`."""
        return list(self._of("nvshmem_create_tensors", tensor).peers)

    def free(self, tensor: torch.Tensor) -> None:
        """Raises `NotFromHeap`. Emulated memory is not used again."""
        self._of("nvshmem_free_tensor_sync", tensor)
        del self._made[tensor.data_ptr()]

    def wait_equal(self, word: torch.Tensor, value: int, stream: Any) -> None:
        """Raises `IllegalWord` and `UnknownWait`."""
        self._on(stream).wait_equal(_signed(word), value)

    def write(self, word: torch.Tensor, value: int, stream: Any) -> None:
        """A stream write, of a word of this rank or of a peer. Raises `IllegalWord`."""
        self._on(stream).write(_signed(word), value)

    def copy(self, dst: torch.Tensor, src: torch.Tensor, num_bytes: int, stream: Any) -> None:
        """Raises `IllegalCopy`."""
        into, out_of = (tensor.view(-1).view(torch.uint8)[:num_bytes] for tensor in (dst, src))
        self._on(stream).copy(into, out_of)

    @contextmanager
    def on_stream(self, stream: CudaStream | None) -> Iterator[CudaStream | None]:
        """As `torch.cuda.stream`."""
        if stream is None:
            yield None
        else:
            with self.fabric.on_stream("" if stream.name == _MAIN else stream.name):
                yield stream

    def synchronize(self) -> None:
        """Emulated host code never waits."""

    def current_stream(self) -> CudaStream:
        return CudaStream(self.fabric, self.fabric.main().name)

    def _on(self, stream: CudaStream | None) -> EmulatedStream:
        return self.fabric.main() if stream is None else stream.stream

    def _of(self, function: str, tensor: torch.Tensor) -> EmulatedSymmetric:
        made = self._made.get(tensor.data_ptr())
        if made is None:
            raise NotFromHeap(function=function, found=f"a tensor {tensor.dtype} {list(tensor.shape)}")
        return made

    def _fill(self, made: EmulatedSymmetric) -> None:
        """On all ranks, once: the ranks' host code runs one after the other."""
        filled, start = self.fabric.machine.companion(Dialects).filled, made.peers[0].data_ptr()
        if not made.local.numel() or start in filled:
            return
        filled.add(start)
        for peer in made.peers:
            if peer.is_floating_point():
                peer.fill_(math.nan)
            elif peer.dtype != torch.bool:
                peer.view(-1).view(torch.uint8).fill_(_GARBAGE)


def _signed(word: torch.Tensor) -> torch.Tensor:
    """The same word as the emulator's streams know it."""
    return word.view({torch.uint32: torch.int32, torch.uint64: torch.int64}.get(word.dtype, word.dtype))


class _OnCpu(TorchFunctionMode):
    """Tensors of "cuda" are made on the CPU, and `copy_` is enqueued."""

    def __init__(self, held: EmulatedRuntime) -> None:
        super().__init__()
        self._runtime = held

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        if str(options.get("device", "")).startswith("cuda"):
            options["device"] = "cpu"
        if func is torch.Tensor.copy_:
            self._runtime.fabric.main().copy(args[0], args[1])
            return args[0]
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.to and len(args) > 1 and str(args[1]).startswith("cuda"):
            args = (args[0], "cpu", *args[2:])
        return func(*args, **options)


@contextmanager
def on_rank(fabric: EmulatedFabric) -> Iterator[EmulatedRuntime]:
    """Inside, host code of the dialect is that of an emulated rank. Raises what a stream raises at a launch."""
    known: EmulatedRuntime | None = vars(fabric).get("_triton_dist")
    held = vars(fabric).setdefault("_triton_dist", known or EmulatedRuntime(fabric))

    def launch(jit: Any, *args: object, grid: Any, warmup: bool = False, **options: Any) -> None:
        options.pop("extern_libs", None)
        if not warmup:
            fabric.main().launch(jit, _grid(jit, grid, args, options), *args, **options)

    def first_configuration(tuner: Any, *args: object, **options: object) -> object:
        return tuner.fn.run(*args, **options, **tuner.configs[0].all_kwargs())

    with ExitStack() as stack:
        for owner, name, value in (
            (JITFunction, "run", launch),
            (Autotuner, "run", first_configuration),
            *((torch.cuda, name, value) for name, value in _cuda(held).items()),
        ):
            stack.enter_context(patch.object(owner, name, value))
        stack.enter_context(_OnCpu(held))
        runtime.enter(held)
        try:
            yield held
        finally:
            runtime.leave(held)


def _cuda(held: EmulatedRuntime) -> dict[str, Callable[..., Any]]:
    """What replaces functions of `torch.cuda`."""
    fabric = held.fabric
    return {
        "current_stream": lambda device=None: held.current_stream(),
        "default_stream": lambda device=None: CudaStream(fabric, _MAIN),
        "Stream": lambda *_, **__: CudaStream(fabric, _next_name(fabric, "stream")),
        "Event": lambda *_, **__: CudaEvent(fabric),
        "stream": held.on_stream,
        "synchronize": lambda device=None: None,
        "current_device": lambda: held.rank,
        "set_device": lambda device: None,
        "is_current_stream_capturing": lambda: False,
    }


def _grid(jit: Any, grid: Any, args: tuple[object, ...], options: dict[str, Any]) -> tuple[int, ...]:
    """A grid as a tuple; a function gets the arguments by name, as from Triton."""
    if callable(grid):
        bound = jit.signature.bind_partial(*args, **{k: v for k, v in options.items() if k in jit.signature.parameters})
        bound.apply_defaults()
        grid = grid({**options, **bound.arguments})
    return (grid,) if isinstance(grid, int) else tuple(grid)
