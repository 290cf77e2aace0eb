"""The host side on a GPU: one symmetric heap per process from torch symmetric memory, stream operations by the driver."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

from tilelink.compat.triton_dist.device.peers import (
    FIRST_SHIFT,
    HEAP,
    HEAP_BYTES,
    MEETING_WORDS,
    MULTICAST,
    NUM_RANKS,
    RANK,
)
from tilelink.compat.triton_dist.host import state
from tilelink.compat.triton_dist.host.allocation import Allocator, heap_bytes
from tilelink.compat.triton_dist.host.errors import IllegalWordTensor, NotFromHeap

_RESERVED_BYTES = 1 << 16  # at the start of each heap: the words by which ranks meet
_SHORT = (torch.int32, torch.uint32)
_LONG = (torch.int64, torch.uint64)


class GpuRuntime:
    """This process's GPU as a rank of `group`. Address translation is one addition for each peer."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.rank = dist.get_rank(group)
        self.num_ranks = dist.get_world_size(group)
        size = heap_bytes()
        here = torch.device("cuda", torch.cuda.current_device())
        self._heap = symm_mem.empty(size, dtype=torch.uint8, device=here)
        self.device = self._heap.device
        self._handle = symm_mem.rendezvous(self._heap, group)
        self._heaps = [
            self._heap if rank == self.rank else self._handle.get_remote_tensor(rank, (size,), torch.uint8)
            for rank in range(self.num_ranks)
        ]
        self._heap[:_RESERVED_BYTES].zero_()
        self._allocator = Allocator(_RESERVED_BYTES, size)
        self._table = self._make_table()
        state.watch()
        state.publish(self._table)
        self.synchronize()

    def create(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Raises `HeapFull`. Waits for the device, as the library does."""
        torch.cuda.synchronize()
        offset = self._allocator.take(math.prod(shape) * dtype.itemsize)
        return self._view(self._heap, offset, shape, dtype)

    def peers(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Raises `NotFromHeap`."""
        offset = self._offset("nvshmem_create_tensors", tensor)
        return [self._view(heap, offset, tuple(tensor.shape), tensor.dtype) for heap in self._heaps]

    def free(self, tensor: torch.Tensor) -> None:
        """Raises `NotFromHeap`."""
        self.synchronize()
        self._allocator.give(self._offset("nvshmem_free_tensor_sync", tensor))

    def wait_equal(self, word: torch.Tensor, value: int, stream: Any) -> None:
        """Raises `IllegalWordTensor`, `DriverFailed`."""
        driver, handle = state.driver, self._handle_of(stream)
        equal = driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ
        if _is_short("_wait_eq_cuda", word):
            (status,) = driver.cuStreamWaitValue32(handle, word.data_ptr(), value & 0xFFFFFFFF, equal)
        else:
            (status,) = driver.cuStreamWaitValue64(handle, word.data_ptr(), value & (1 << 64) - 1, equal)
        state.check("cuStreamWaitValue", status)

    def write(self, word: torch.Tensor, value: int, stream: Any) -> None:
        """Raises `IllegalWordTensor`, `DriverFailed`."""
        driver, handle = state.driver, self._handle_of(stream)
        if _is_short("_set_signal_cuda", word):
            (status,) = driver.cuStreamWriteValue32(handle, word.data_ptr(), value & 0xFFFFFFFF, 0)
        else:
            (status,) = driver.cuStreamWriteValue64(handle, word.data_ptr(), value & (1 << 64) - 1, 0)
        state.check("cuStreamWriteValue", status)

    def copy(self, dst: torch.Tensor, src: torch.Tensor, num_bytes: int, stream: Any) -> None:
        """Raises `DriverFailed`."""
        (status,) = state.driver.cuMemcpyAsync(dst.data_ptr(), src.data_ptr(), num_bytes, self._handle_of(stream))
        state.check("cuMemcpyAsync", status)

    def on_stream(self, stream: Any) -> Any:
        """`torch.cuda.stream`, which does nothing for None."""
        return torch.cuda.stream(stream)

    def synchronize(self) -> None:
        """This device is done, and then all ranks are."""
        torch.cuda.synchronize()
        dist.barrier(group=self.group)
        torch.cuda.synchronize()

    def close(self) -> None:
        """Kernels find no table any more."""
        self.synchronize()
        state.publish(None)

    def _make_table(self) -> torch.Tensor:
        start = self._heap.data_ptr()
        words = [0] * (FIRST_SHIFT.value + self.num_ranks)
        words[RANK.value], words[NUM_RANKS.value] = self.rank, self.num_ranks
        words[HEAP.value], words[HEAP_BYTES.value] = start, self._heap.numel()
        # the multicast range begins where the allocation does, the heap perhaps behind it
        ahead = start - self._handle.buffer_ptrs[self.rank]
        words[MULTICAST.value] = self._handle.multicast_ptr + ahead if self._handle.multicast_ptr else 0
        words[MEETING_WORDS.value] = start
        for rank, heap in enumerate(self._heaps):
            words[FIRST_SHIFT.value + rank] = heap.data_ptr() - start
        return torch.tensor(words, dtype=torch.int64, device=self.device)

    def _view(self, heap: torch.Tensor, offset: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return heap[offset : offset + math.prod(shape) * dtype.itemsize].view(dtype).view(shape)

    def _offset(self, function: str, tensor: torch.Tensor) -> int:
        offset = tensor.data_ptr() - self._heap.data_ptr()
        if not _RESERVED_BYTES <= offset < self._heap.numel():
            raise NotFromHeap(function=function, found=f"a tensor at {tensor.data_ptr():#x}, which is not in the heap")
        return offset

    def _handle_of(self, stream: Any) -> int:
        return int((torch.cuda.current_stream() if stream is None else stream).cuda_stream)


def _is_short(function: str, word: torch.Tensor) -> bool:
    """Whether a word has 32 bits. Raises `IllegalWordTensor`."""
    if word.dtype not in (*_SHORT, *_LONG) or not word.is_cuda:
        raise IllegalWordTensor(function=function, found=f"{word.dtype} {list(word.shape)} on {word.device}")
    return word.dtype in _SHORT
