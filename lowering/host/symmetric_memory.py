"""The fabric of an emitted file on torch symmetric memory: symmetric buffers, streams, library calls."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

from lowering.host.gpu_fabric import GpuFabric, GpuStream

try:
    import cuda.bindings.driver as driver
except ImportError:  # copies then go through torch, and streams cannot wait for words of memory
    driver = None


MOST_CALLS = 64  # CUDA graphs kept for each operator, one for each stream and set of tensor addresses


class Symmetric:
    """One buffer on every rank: `local` of this rank, `peers[r]` of rank r, `pointers` int64[num_ranks] on the device."""

    def __init__(
        self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, group: dist.ProcessGroup
    ) -> None:
        self.local = symm_mem.empty(shape, dtype=dtype, device=device)
        self.local.zero_()
        handle = symm_mem.rendezvous(self.local, group)
        self.peers = tuple(
            self.local if rank == handle.rank else handle.get_remote_tensor(rank, shape, dtype)
            for rank in range(handle.world_size)
        )
        self.pointers = torch.tensor([peer.data_ptr() for peer in self.peers], dtype=torch.int64, device=device)


class Stream(GpuStream):
    """A stream whose kernels and copies go straight to the driver: least host time."""

    def __init__(self, stream: torch.cuda.Stream, fabric: SymmetricMemoryFabric) -> None:
        super().__init__(stream, fabric)
        self.handle = stream.cuda_stream

    def launch(self, kernel: Any, grid: tuple[int, ...], *args: object, per_sm: int = 1, **options: object) -> None:
        """Run `kernel` on `grid`, with `per_sm` resident programs on each SM."""
        options |= self.most_registers(per_sm, options)
        aligned = [arg.data_ptr() % 16 == 0 for arg in args if isinstance(arg, torch.Tensor)]
        key = (id(kernel), *options.values(), *aligned)
        if self.fabric.is_loading:
            compiled = kernel.warmup(*args, grid=grid, **options)
            compiled._init_handles()
            if per_sm > 1:
                self._check_residency(compiled, per_sm)
            self.fabric.compiled[key] = compiled
            return
        compiled = self.fabric.compiled[key]
        constants = [options[name] for name in kernel.arg_names[len(args) :]]
        found = (compiled.function, compiled.packed_metadata, None, None, None)  # no launch metadata, no launch hooks
        compiled.run(*(*grid, 1, 1)[:3], self.handle, *found, *args, *constants)

    def _check_residency(self, compiled: Any, per_sm: int) -> None:
        """Raises RuntimeError if fewer than `per_sm` programs fit on an SM: resident ones would wait for the rest."""
        threads, shared = 32 * compiled.metadata.num_warps, compiled.metadata.shared
        status, fit = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(compiled.function, threads, shared)
        if status != driver.CUresult.CUDA_SUCCESS or fit < per_sm:
            found = f"{fit} ({compiled.n_regs} registers a thread, {shared} bytes of shared memory)"
            raise RuntimeError(f"{compiled.name} needs {per_sm} programs on an SM, and as many as fit are {found}")

    def copy(self, dst: torch.Tensor, src: torch.Tensor) -> None:
        """Copy `src` to `dst`: a copy engine moves bytes to and from peers; a copy inside one GPU takes SMs."""
        if self.fabric.is_loading:
            return
        if driver is None:
            with torch.cuda.stream(self.stream):
                dst.copy_(src, non_blocking=True)
            return
        self._check("cuMemcpyAsync", driver.cuMemcpyAsync(dst.data_ptr(), src.data_ptr(), src.nbytes, self.handle))

    def copy_2d(self, dst: torch.Tensor, src: torch.Tensor) -> None:
        """Copy a matrix whose rows are contiguous; by a copy engine to and from peers."""
        self._need_driver()
        if self.fabric.is_loading:
            return
        copy = driver.CUDA_MEMCPY2D()
        copy.srcMemoryType = copy.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_UNIFIED
        copy.srcDevice, copy.dstDevice = src.data_ptr(), dst.data_ptr()
        copy.srcPitch, copy.dstPitch = (one.stride(0) * one.element_size() for one in (src, dst))
        copy.Height, copy.WidthInBytes = src.shape[0], src.shape[1] * src.element_size()
        self._check("cuMemcpy2DAsync", driver.cuMemcpy2DAsync(copy, self.handle))

    def write(self, word: torch.Tensor, value: int) -> None:
        """Set a local 32-bit word, in stream order, without an SM."""
        self._need_driver()
        if not self.fabric.is_loading:
            self._check("cuStreamWriteValue32", driver.cuStreamWriteValue32(self.handle, word.data_ptr(), value, 0))

    def wait_at_least(self, word: torch.Tensor, value: int) -> None:
        """Hold the stream until a local 32-bit word is at least `value`, without an SM."""
        self._need_driver()
        if not self.fabric.is_loading:
            self._check("cuStreamWaitValue32", driver.cuStreamWaitValue32(self.handle, word.data_ptr(), value, 0))

    def _need_driver(self) -> None:
        """Raises RuntimeError if streams can neither wait for words of memory nor copy columns of a matrix."""
        if driver is None:
            raise RuntimeError(
                "streams of this schedule need more of the driver than torch calls: pip install cuda-bindings"
            )

    def _check(self, name: str, result: tuple[Any]) -> None:
        if result[0] != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"{name} failed: {result[0]}")

    def after(self, other: Stream) -> None:
        """Order later work of this stream behind all work enqueued on `other` so far."""
        if other.handle == self.handle:
            return
        if self.captures() and not other.captures():
            return  # work before a capture is not part of it: the caller orders replays behind eager calls
        if other.handle not in self.fabric.events:
            self.fabric.events[other.handle] = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event = self.fabric.events[other.handle]
        event.record(other.stream)
        self.stream.wait_event(event)

    def captures(self) -> bool:
        # for the caller's stream torch answers faster than the driver
        here = torch._C._cuda_getCurrentRawStream(self.fabric.device.index) == self.handle
        if here or driver is None:
            return super().captures()
        _, found = driver.cuStreamIsCapturing(self.handle)
        return bool(found != driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE)


class SymmetricMemoryFabric(GpuFabric):
    """The ranks of a torch process group, on GPUs of one host that address each other's memory."""

    stream_type = Stream

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        super().__init__(group if group is not None else dist.distributed_c10d._get_default_group())
        self.compiled: dict[tuple[object, ...], Any] = {}  # loaded kernels, by constants and alignment of arguments
        self.events: dict[int, torch.cuda.Event] = {}
        # for each operator, by stream and tensor addresses: None after the first call, its graph from the second on
        self.calls: weakref.WeakKeyDictionary[Any, dict[tuple[int, ...], torch.cuda.CUDAGraph | None]]
        self.calls = weakref.WeakKeyDictionary()
        self._main = Stream(torch.cuda.current_stream(), self)

    def new_stream(self) -> torch.cuda.Stream:
        """A stream of its own. Torch hands out the same streams again and again: copies on the caller's stream, behind the
        kernel that waits for them, would never begin."""
        if driver is None:
            return super().new_stream()
        status, stream = driver.cuStreamCreateWithPriority(driver.CUstream_flags.CU_STREAM_NON_BLOCKING, self.PRIORITY)
        if status != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"cuStreamCreateWithPriority failed: {status}")
        weakref.finalize(self, driver.cuStreamDestroy, stream)
        return torch.cuda.ExternalStream(int(stream), device=self.device)  # type: ignore[no-untyped-call]

    def symmetric(self, shape: tuple[int, ...], dtype: torch.dtype) -> Symmetric:
        return Symmetric(shape, dtype, self.device, self.group)

    def main(self) -> Stream:
        handle = torch._C._cuda_getCurrentRawStream(self.device.index)
        if self._main.handle != handle:
            self._main = Stream(torch.cuda.current_stream(), self)
        return self._main

    def run(self, enqueue: Callable[..., None], main: Stream, *tensors: torch.Tensor) -> None:
        """Call `enqueue(main, *tensors)`. The second call with the same stream and tensor addresses captures it as a CUDA
        graph; that call and later ones replay the graph, which is one operation for the host."""
        if self.is_loading or main.captures():
            enqueue(main, *tensors)
            return
        operator = enqueue.__self__  # type: ignore[attr-defined]
        calls = self.calls.get(operator)
        if calls is None:
            calls = self.calls[operator] = {}
        key = (main.handle, *[tensor.data_ptr() for tensor in tensors])
        if key not in calls:
            enqueue(main, *tensors)
            if len(calls) == MOST_CALLS:
                del calls[next(iter(calls))]
            calls[key] = None
            return
        graph = calls.pop(key) or self._captured(enqueue, main, tensors)
        calls[key] = graph  # most recently used
        graph.replay()

    def _captured(
        self, enqueue: Callable[..., None], main: Stream, tensors: tuple[torch.Tensor, ...]
    ) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with self._capturing(main) as stream, torch.cuda.stream(stream.stream):
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                enqueue(stream, *tensors)
            except BaseException:
                with contextlib.suppress(RuntimeError):  # the error has broken the capture
                    graph.capture_end()
                raise
            graph.capture_end()
        return graph

    @contextlib.contextmanager
    def _capturing(self, main: Stream) -> Iterator[Stream]:
        """The stream on which all operators of the process capture what they enqueue on `main`, one thread at a time: torch keeps
        a workspace for library matmuls for each stream on which it captured one, and graphs that are replayed in turn may
        share it."""
        # several emitted files may run in one process, and torch is the module that they have in common
        lock, streams = vars(torch.cuda).setdefault("_tilelink_captures", (threading.Lock(), {}))
        key = (self.device.index, main.handle)
        with lock:
            if key not in streams:
                streams[key] = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            yield self.stream_type(streams[key], self)
