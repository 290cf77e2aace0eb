"""The host side as far as it needs no GPU: the heap, its errors, launch options, functions without a rank."""

from __future__ import annotations

import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.compat.triton_dist.shimmed import on_all, world
from tilelink.compat.triton_dist.host import errors, utils
from tilelink.compat.triton_dist.host.allocation import SIZE_VARIABLE, Allocator, heap_bytes
from tilelink.compat.triton_dist.host.device import _is_short
from tilelink.compat.triton_dist.host.errors import (
    HeapFull,
    IllegalSize,
    IllegalWordTensor,
    NotFromHeap,
    NotInitialized,
    TritonDistError,
    UnknownRanks,
)

KIB = 1024


@given(st.lists(st.one_of(st.integers(0, 5000), st.none()), max_size=60))
def test_pieces_are_aligned_disjoint_and_come_back(wanted: list[int | None]) -> None:
    """A number takes a piece of so many bytes, None gives the oldest back."""
    allocator = Allocator(512, 64 * KIB)
    held: list[tuple[int, int]] = []
    for size in wanted:
        if size is None:
            if held:
                allocator.give(held.pop(0)[0])
            continue
        try:
            start = allocator.take(size)
        except HeapFull as full:
            assert full.facts["asked_bytes"] == size
            continue
        assert start % 512 == 0 and start >= 512 and start + size <= 64 * KIB
        assert all(start + max(size, 1) <= other or other + max(length, 1) <= start for other, length in held)
        held.append((start, size))
    for start, _ in held:
        allocator.give(start)
    assert allocator.take(63 * KIB + 512) == 512  # all of it is one piece again


def test_a_full_heap_says_how_to_make_it_larger() -> None:
    allocator = Allocator(0, KIB)
    with pytest.raises(HeapFull, match=SIZE_VARIABLE):
        allocator.take(2 * KIB)


def test_a_piece_is_given_back_once() -> None:
    allocator = Allocator(0, 4 * KIB)
    start = allocator.take(100)
    allocator.give(start)
    with pytest.raises(NotFromHeap):
        allocator.give(start)


@pytest.mark.parametrize(("text", "size"), [("1G", 1 << 30), ("512m", 512 << 20), ("1.5K", 1536), ("1000", 1024)])
def test_the_size_of_the_heap(text: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SIZE_VARIABLE, text)
    assert heap_bytes() == size


@pytest.mark.parametrize("text", ["", "big", "-1", "0", "1T"])
def test_an_illegal_size(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SIZE_VARIABLE, text)
    with pytest.raises(IllegalSize):
        heap_bytes()


def test_without_a_rank() -> None:
    with pytest.raises(NotInitialized, match="nvshmem_create_tensor"):
        utils.nvshmem_create_tensor((1,), torch.int32)


def test_without_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UnknownRanks, match="RANK, LOCAL_RANK, WORLD_SIZE"):
        utils.initialize_distributed()


def test_a_stream_word_is_an_integer_on_a_gpu() -> None:
    with pytest.raises(IllegalWordTensor):
        _is_short("_wait_eq_cuda", torch.zeros(1, dtype=torch.int32))


def test_options_and_answers() -> None:
    assert utils.launch_cooperative_grid_options() == {"launch_cooperative_grid": True}
    assert utils.is_nvshmem_multimem_supported() is False
    assert utils.NVSHMEM_SIGNAL_DTYPE is torch.int64


def test_an_emulated_rank() -> None:
    emulated = world(3)
    groups = on_all(emulated, lambda _: utils.initialize_distributed(seed=3))
    assert [(group.rank(), group.size()) for group in groups] == [(0, 3), (1, 3), (2, 3)]
    assert on_all(emulated, lambda _: utils.supports_p2p_native_atomic()) == [True] * 3
    made = on_all(emulated, lambda group: utils.nvshmem_create_tensors((4,), torch.float32, group.rank(), 3))
    assert [peers[1].data_ptr() for peers in made] == [made[0][1].data_ptr()] * 3
    assert made[0][0].isnan().all()  # not zeroed
    on_all(emulated, lambda group: utils.nvshmem_free_tensor_sync(made[group.rank()][group.rank()]))
    with pytest.raises(NotFromHeap):
        on_all(emulated, lambda group: utils.nvshmem_free_tensor_sync(made[group.rank()][group.rank()]))
    on_all(emulated, lambda _: utils.finalize_distributed())


def test_errors_cross_processes() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, TritonDistError)]
    error = HeapFull(asked_bytes=1, free_bytes=2, heap_bytes=3, variable="X")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.facts) == (HeapFull, str(error), error.facts)
    assert all("Legal: " in kind.template for kind in kinds if kind is not TritonDistError)
