"""`torch.distributed._symmetric_memory` on emulated ranks, for files written for it and for stock Triton.

class OneShot:
    def __init__(self, fabric):
        self.symm = symmetric_memory(fabric)      # on GPUs: a process group instead of a fabric
        self.x = self.symm.empty(4096, dtype=torch.float32)
        self.handle = self.symm.rendezvous(self.x)

    def __call__(self, x):
        out = torch.empty_like(x)
        with self.symm.launches():
            self.symm.copy(self.x, x)
            self.handle.barrier()
            kernel[(8,)](self.handle.buffer_ptrs_dev, out, ...)
        return out

Names, arguments and defaults are torch's. What differs:

- Host code only enqueues. That of all ranks runs to its end, rank after rank, before any kernel runs, so torch
  operations on tensors (`x + 1`, `zero_()`, `tensor.item()`) act at once: they may prepare inputs and set up
  buffers, but neither read what a kernel writes nor reset what it uses. Work on the device goes through kernels,
  `copy`, `memset32` and `stream_write_value32`.
- `dst.copy_(src, non_blocking=True)` is written `symm.copy(dst, src)`, `torch.cuda.stream(side)` is written
  `symm.launches("side")`, `side.wait_stream(other)` is written `symm.wait_stream("side", "other")`.
- `empty` holds garbage, NaN in floating point, where a GPU often happens to hold zeros. Signal pads are zero.
- An autotuned kernel takes its first configuration.
"""

from __future__ import annotations

import inspect
import math
import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from tilelink.compat.dialects import symm_mem_kernels as kernels
from tilelink.compat.dialects.active import Dialects
from tilelink.compat.dialects.errors import IllegalRendezvous, IllegalSignalTensor, IllegalView
from tilelink.compat.dialects.torch_symm_mem import TorchSymmMem
from tilelink.emulator.operations import describe
from tilelink.emulator.place import host_place
from tilelink.emulator.stand_in import StandIn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch.distributed as dist

    from tilelink.emulator.streams import EmulatedStream
    from tilelink.emulator.world import EmulatedFabric, EmulatedSymmetric

_PAD_WORDS = 2304  # uint32 words, torch's default of 9216 bytes
_GARBAGE = 0x5A  # each byte of an integer buffer that nobody has written
_MAIN = "main"


def symmetric_memory(fabric: EmulatedFabric | dist.ProcessGroup) -> SymmMem | TorchSymmMem:
    """That of an emulated rank, or torch's own of a process group on GPUs."""
    if isinstance(fabric, torch.distributed.ProcessGroup):
        return TorchSymmMem(fabric)
    return SymmMem(fabric)


class SymmetricHandle(StandIn):
    """What `rendezvous` returns: one allocation on all ranks, its signal pads and its multicast address.

    `buffer_ptrs[r]` and `signal_pad_ptrs[r]` are addresses of rank r's; the `_dev` ones that of an int64 table of
    them, for kernels. `multicast_ptr` is 0 where the links have no multicast.
    """

    def __init__(self, symm: SymmMem, buffer: EmulatedSymmetric, pad: EmulatedSymmetric, name: str) -> None:
        self.rank = symm.rank
        self.world_size = symm.num_ranks
        self.device = symm.device
        self.buffer_size = buffer.local.numel() * buffer.local.element_size()
        self.buffer_ptrs: list[int] = buffer.pointers.tolist()
        self.buffer_ptrs_dev = symm.table(f"{name}_ptrs", buffer.pointers)
        self.signal_pad_ptrs: list[int] = pad.pointers.tolist()
        self.signal_pad_ptrs_dev = symm.table(f"{name}_signal_pad_ptrs", pad.pointers)
        symmetry, copies = symm.fabric.machine.symmetry, tuple(self.buffer_ptrs)
        multicast = symmetry.multicast(copies, self.rank) if self.buffer_size else None
        self.multicast_ptr = 0 if multicast is None else multicast.start
        self._symm = symm
        self._buffers = buffer.peers
        self._pads = pad.peers

    def get_buffer(self, rank: int, sizes: Sequence[int], dtype: torch.dtype, storage_offset: int = 0) -> torch.Tensor:
        """A view of rank `rank`'s buffer, `storage_offset` elements behind its start. Raises `IllegalView`."""
        return self._view("get_buffer", self._buffers, rank, tuple(sizes), dtype, storage_offset * dtype.itemsize)

    def get_remote_tensor(self, peer: int, sizes: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A view of peer `peer`'s buffer, from its start. Raises `IllegalView`."""
        return self._view("get_remote_tensor", self._buffers, peer, tuple(sizes), dtype, 0)

    def get_signal_pad(
        self, rank: int, sizes: Sequence[int] = (), dtype: torch.dtype | None = None, storage_offset: int = 0
    ) -> torch.Tensor:
        """A view of rank `rank`'s signal pad, by default all of it as uint32. Raises `IllegalView`."""
        dtype = dtype or torch.uint32
        shape = tuple(sizes) or (_PAD_WORDS * 4 // dtype.itemsize - storage_offset,)
        return self._view("get_signal_pad", self._pads, rank, shape, dtype, storage_offset * dtype.itemsize)

    def barrier(self, channel: int = 0, timeout_ms: int = 0) -> None:
        """Enqueue a meeting of all ranks; holds an SM while it waits."""
        self._launch(kernels.symm_mem_barrier, self.rank, channel, self.world_size)

    def put_signal(self, dst_rank: int, channel: int = 0, timeout_ms: int = 0) -> None:
        """Enqueue raising the signal of this rank at `dst_rank`; holds an SM until the last one has been taken."""
        self._launch(kernels.symm_mem_put_signal, self.rank, dst_rank, channel, self.world_size)

    def wait_signal(self, src_rank: int, channel: int = 0, timeout_ms: int = 0) -> None:
        """Enqueue taking the signal of `src_rank`; holds an SM until it is raised."""
        self._launch(kernels.symm_mem_wait_signal, self.rank, src_rank, channel, self.world_size)

    def _launch(self, kernel: Any, *arguments: int) -> None:
        self._symm.current.launch(kernel, (1,), self.signal_pad_ptrs_dev, *arguments)

    def _view(
        self,
        what: str,
        parts: tuple[torch.Tensor, ...],
        peer: int,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        first_byte: int,
    ) -> torch.Tensor:
        legal = f"peers 0 to {self.world_size - 1}, and views that end inside"
        held = parts[0].numel() * parts[0].element_size()
        end = first_byte + math.prod(shape) * dtype.itemsize
        if not 0 <= peer < self.world_size or first_byte < 0 or end > held:
            raise IllegalView(what=what, rank=self.rank, peer=peer, asked_bytes=end, held_bytes=held, legal=legal)
        return parts[peer].view(-1).view(torch.uint8)[first_byte:end].view(dtype).view(shape)


class SymmMem(StandIn):
    """Symmetric memory of one emulated rank."""

    def __init__(self, fabric: EmulatedFabric) -> None:
        self.fabric = fabric
        self.rank = fabric.rank
        self.num_ranks = fabric.num_ranks
        self.device = fabric.device
        self._made: list[tuple[str, EmulatedSymmetric]] = []
        self._handles: dict[int, SymmetricHandle] = {}
        self._streams = [fabric.main()]

    @property
    def current(self) -> EmulatedStream:
        """The stream of the innermost `launches`, outside of any the main one."""
        return self._streams[-1]

    def empty(
        self,
        *size: int | Sequence[int],
        dtype: torch.dtype | None = None,
        device: object = None,
    ) -> torch.Tensor:
        """This rank's part of a symmetric allocation; all ranks call in one order. `device` is ignored.

        Raises `SymmetricMismatch`, `LateSetup`.
        """
        shape = tuple(extent for part in size for extent in ((part,) if isinstance(part, int) else part))
        name = _assigned_name() or f"symm_mem_{len(self._made)}"
        made = self.fabric.symmetric(shape, dtype or torch.get_default_dtype(), name)
        self._made.append((name, made))
        self._fill(made)
        return made.local

    def rendezvous(self, tensor: torch.Tensor, group: object = None) -> SymmetricHandle:
        """The handle of the allocation that `tensor` lies in; `group` is ignored. Raises `IllegalRendezvous`.

        All ranks call in one order the first time, when the signal pad is made.
        """
        for number, (name, made) in enumerate(self._made):
            start = made.local.data_ptr()
            size = made.local.numel() * made.local.element_size()
            if start <= tensor.data_ptr() < start + size or (tensor is made.local):
                if number not in self._handles:
                    pad = self.fabric.symmetric((_PAD_WORDS,), torch.uint32, f"{name}_signal_pad")
                    self._handles[number] = SymmetricHandle(self, made, pad, name)
                return self._handles[number]
        raise IllegalRendezvous(rank=self.rank, tensor=describe(tensor))

    @contextmanager
    def launches(self, stream: str | None = None) -> Iterator[EmulatedStream]:
        """Inside, `kernel[grid](...)` of any @triton.jit function is enqueued on this rank's stream of that name.

        `warmup` does nothing. Raises `IllegalLaunch` at a launch.
        """
        target = self.fabric.main() if stream in (None, _MAIN) else self.fabric.stream(str(stream))

        def run(jit: Any, *args: object, grid: Any, warmup: bool = False, **options: object) -> None:
            if not warmup:
                target.launch(jit, _grid(jit, grid, args, options), *args, **options)

        def first_configuration(tuner: Any, *args: object, **options: object) -> object:
            return tuner.fn.run(*args, **options, **tuner.configs[0].all_kwargs())

        saved = JITFunction.run, Autotuner.run
        self._streams.append(target)
        JITFunction.run, Autotuner.run = run, first_configuration
        try:
            yield target
        finally:
            JITFunction.run, Autotuner.run = saved
            self._streams.pop()

    def wait_stream(self, stream: str, other: str) -> None:
        """What is enqueued on stream `other` so far happens before what follows on `stream`."""
        self._stream(stream).after(self._stream(other))

    def copy(self, dst: torch.Tensor, src: torch.Tensor) -> None:
        """Enqueue a copy, on a copy engine unless both sides are this rank's. Raises `IllegalCopy`."""
        self.current.copy(dst, src)

    def stream_write_value32(self, tensor: torch.Tensor, offset: int, val: int) -> None:
        """Enqueue tensor[offset] = val without an SM, as a release of what the stream did before.

        `tensor`: of this rank or a view of a peer's, flat, uint32. Raises `IllegalSignalTensor`.
        """
        self._write("stream_write_value32", tensor, offset, val, 1)

    def memset32(self, tensor: torch.Tensor, offset: int, val: int, count: int = 1) -> None:
        """Enqueue tensor[offset : offset + count] = val, word by word; otherwise as `stream_write_value32`."""
        self._write("memset32", tensor, offset, val, count)

    def table(self, name: str, pointers: torch.Tensor) -> int:
        """The address of a table in this rank's memory that holds `pointers` (int64)."""
        machine = self.fabric.machine
        held = machine.memory.allocate(name, self.rank, tuple(pointers.shape), torch.int64)
        held.copy_(pointers)
        machine.companion(Dialects).tables.append(held)
        return held.data_ptr()

    def _stream(self, name: str) -> EmulatedStream:
        return self.fabric.main() if name == _MAIN else self.fabric.stream(name)

    def _write(self, operation: str, tensor: torch.Tensor, offset: int, val: int, count: int) -> None:
        reason = ""
        if tensor.dtype != torch.uint32 or tensor.dim() != 1 or not tensor.is_contiguous():
            reason = "it is not flat, contiguous and uint32"
        elif offset < 0 or count < 1 or offset + count > tensor.numel():
            reason = f"words {offset} to {offset + count - 1} are not all inside"
        elif not 0 <= val < 1 << 32:
            reason = f"{val} is no value of 32 bits"
        if reason:
            raise IllegalSignalTensor(operation=operation, rank=self.rank, tensor=describe(tensor), reason=reason)
        words = tensor.view(torch.int32)
        signed = val - (1 << 32) if val >= 1 << 31 else val
        for index in range(offset, offset + count):
            self.current.write(words[index : index + 1], signed)

    def _fill(self, made: EmulatedSymmetric) -> None:
        """Garbage on all ranks, once: the ranks' host code runs one after the other."""
        filled = self.fabric.machine.companion(Dialects).filled
        start = made.peers[0].data_ptr()
        if not made.local.numel() or start in filled:
            return
        filled.add(start)
        for peer in made.peers:
            if peer.is_floating_point():
                peer.fill_(math.nan)
            elif peer.dtype != torch.bool:
                peer.view(-1).view(torch.uint8).fill_(_GARBAGE)


def _grid(jit: Any, grid: Any, args: tuple[object, ...], options: dict[str, object]) -> tuple[int, ...]:
    """A grid as a tuple; a function gets the arguments by name, as from triton."""
    if callable(grid):
        signature = inspect.signature(jit.fn)
        known = {name: value for name, value in options.items() if name in signature.parameters}
        bound = signature.bind_partial(*args, **known)
        bound.apply_defaults()
        grid = grid({**options, **bound.arguments})
    return (grid,) if isinstance(grid, int) else tuple(grid)


def _assigned_name() -> str:
    """What the line of host code that called assigns to, for reports; empty if it does not."""
    line = host_place(sys._getframe(), skip=__file__).text
    match = re.match(r"(?:\w+\.)?(\w+)\s*(?::[^=]*)?=[^=]", line)
    return match[1] if match else ""
