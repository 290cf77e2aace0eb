"""The GPU's host side on a fake driver and fake symmetric memory: addresses, words, values, and what a module is told."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from triton import knobs

from tilelink.compat.triton_dist.device import peers
from tilelink.compat.triton_dist.host import state
from tilelink.compat.triton_dist.host.device import GpuRuntime
from tilelink.compat.triton_dist.host.errors import DriverFailed, IllegalWordTensor, NotFromHeap

HEAP = 1 << 18
STREAM = SimpleNamespace(cuda_stream=77)
OK, MISSING, BROKEN = 0, 500, 1


class Driver:
    """Writes down calls; module m has the word at 1000 + m, even modules have none."""

    CUresult = SimpleNamespace(CUDA_SUCCESS=OK, CUDA_ERROR_NOT_FOUND=MISSING)
    CUstreamWaitValue_flags = SimpleNamespace(CU_STREAM_WAIT_VALUE_EQ=1)

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.status = OK

    def cuModuleGetGlobal(self, module: int, name: bytes) -> tuple[int, int | None, int | None]:
        assert name == b"tilelink_triton_dist_state_d"
        return (OK, 1000 + module, 8) if module % 2 else (MISSING, None, None)

    def cuMemcpyHtoD(self, word: int, source: int, size: int) -> tuple[int]:
        self.calls.append(("word", word, int.from_bytes(ctypes.string_at(source, size), "little")))
        return (self.status,)

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: object) -> tuple[int]:
            self.calls.append((name, *arguments))
            return (self.status,)

        return call


class Handle:
    """Two heaps; the allocation of this rank begins 256 bytes before its heap."""

    def __init__(self, local: torch.Tensor) -> None:
        self.other = torch.full_like(local, 1)
        self.buffer_ptrs = [local.data_ptr() - 256, self.other.data_ptr() - 256]
        self.multicast_ptr = 1 << 40

    def get_remote_tensor(self, peer: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        assert (peer, shape, dtype) == (1, (HEAP,), torch.uint8)
        return self.other


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    fake = Driver()
    monkeypatch.setattr(state, "driver", fake)
    monkeypatch.setattr(state, "_words", [])
    monkeypatch.setattr(state, "_address", 0)
    monkeypatch.setattr(knobs.runtime.kernel_load_end_hook, "calls", [])
    return fake


@pytest.fixture
def runtime(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> GpuRuntime:
    """Rank 0 of 2."""
    monkeypatch.setenv("NVSHMEM_SYMMETRIC_SIZE", str(HEAP))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: STREAM)
    monkeypatch.setattr(dist, "get_rank", lambda group: 0)
    monkeypatch.setattr(dist, "get_world_size", lambda group: 2)
    monkeypatch.setattr(dist, "barrier", lambda group: None)
    monkeypatch.setattr(symm_mem, "empty", lambda size, dtype, device: torch.full((size,), 1, dtype=dtype))
    monkeypatch.setattr(symm_mem, "rendezvous", lambda tensor, group: Handle(tensor))
    return GpuRuntime("group")  # type: ignore[arg-type]


def test_the_table_of_a_rank(runtime: GpuRuntime) -> None:
    words = runtime._table.tolist()
    own, other = (heap.data_ptr() for heap in runtime._heaps)
    assert words[peers.RANK.value] == 0 and words[peers.NUM_RANKS.value] == 2
    assert (words[peers.HEAP.value], words[peers.HEAP_BYTES.value]) == (own, HEAP)
    assert words[peers.FIRST_SHIFT.value :] == [0, other - own]
    assert words[peers.MULTICAST.value] == (1 << 40) + 256
    assert words[peers.MEETING_WORDS.value] == own
    assert not runtime._heap[: 1 << 16].any()  # the words by which ranks meet


def test_peers_of_a_tensor_lie_at_the_same_place(runtime: GpuRuntime) -> None:
    first, second = runtime.create((3, 5), torch.float32), runtime.create((7,), torch.int64)
    for tensor in (first, second):
        here, there = runtime.peers(tensor)
        assert here.data_ptr() == tensor.data_ptr()
        assert there.data_ptr() - tensor.data_ptr() == runtime._heaps[1].data_ptr() - runtime._heap.data_ptr()
        assert (there.shape, there.dtype) == (tensor.shape, tensor.dtype)
    assert first.data_ptr() - runtime._heap.data_ptr() >= 1 << 16
    assert second.data_ptr() >= first.data_ptr() + first.nbytes
    runtime.free(first)
    assert runtime.create((2,), torch.int32).data_ptr() == first.data_ptr()
    with pytest.raises(NotFromHeap):
        runtime.peers(torch.zeros(1))


def test_modules_are_told_where_the_table_is(runtime: GpuRuntime, driver: Driver) -> None:
    (hook,) = knobs.runtime.kernel_load_end_hook.calls
    state.watch()
    assert len(knobs.runtime.kernel_load_end_hook.calls) == 1
    for module in (1, 2, 3):  # 2 asks for no rank
        hook(module, 0, "kernel", None, "hash")
    table = runtime._table.data_ptr()
    assert driver.calls == [("word", 1001, table), ("word", 1003, table)]
    runtime.close()
    assert driver.calls[2:] == [("word", 1001, 0), ("word", 1003, 0)]


def test_a_module_loaded_before_is_told_later(driver: Driver) -> None:
    state.loaded(5)
    state.publish(torch.zeros(4, dtype=torch.int64))
    assert driver.calls[0] == ("word", 1005, 0)
    assert driver.calls[1][1] == 1005 and driver.calls[1][2] != 0


class Word:
    """A word on a GPU, as far as stream operations look at it."""

    is_cuda = True

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def data_ptr(self) -> int:
        return 4096


@pytest.mark.parametrize(("dtype", "bits"), [(torch.int32, 32), (torch.uint32, 32), (torch.int64, 64)])
def test_stream_words(dtype: torch.dtype, bits: int, runtime: GpuRuntime, driver: Driver) -> None:
    word: Any = Word(dtype)
    runtime.wait_equal(word, -1, None)
    runtime.write(word, 5, SimpleNamespace(cuda_stream=3))
    assert driver.calls == [
        (f"cuStreamWaitValue{bits}", 77, 4096, (1 << bits) - 1, 1),
        (f"cuStreamWriteValue{bits}", 3, 4096, 5, 0),
    ]


def test_copies(runtime: GpuRuntime, driver: Driver) -> None:
    dst, src = torch.zeros(4), torch.ones(4)
    runtime.copy(dst, src, 12, None)
    assert driver.calls == [("cuMemcpyAsync", dst.data_ptr(), src.data_ptr(), 12, 77)]


def test_what_the_driver_refuses(runtime: GpuRuntime, driver: Driver) -> None:
    driver.status = BROKEN
    with pytest.raises(DriverFailed, match="cuMemcpyAsync"):
        runtime.copy(torch.zeros(1), torch.zeros(1), 4, None)
    with pytest.raises(IllegalWordTensor):
        runtime.write(torch.zeros(1), 0, None)
