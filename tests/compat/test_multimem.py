"""Multimem: one instruction, every rank's copy."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest
import torch
import triton.language as tl

from tests.compat import dialect_kernels as kernels
from tests.emulator.test_events import Recorder
from tilelink.compat.dialects import IllegalShmemArgument, NoMulticast
from tilelink.compat.dialects.symm_mem import SymmetricHandle, SymmMem
from tilelink.emulator import OutOfBounds, Race, World
from tilelink.emulator.events import Kind, Scope, Semantic, Via
from tilelink.emulator.policies import StarveRank
from tilelink.emulator.races.detector import RaceDetector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilelink.emulator import Policy

N = 32


class Ranks:
    """A buffer of `count` elements and one of 2 int32 words on each rank of a world."""

    def __init__(self, num_ranks: int, dtype: torch.dtype, count: int = N, **options: Any) -> None:
        self.world = World(num_ranks, num_sms=4, **{"multicast": True, **options})
        symms = [SymmMem(fabric) for fabric in self.world.fabrics]
        self.buffers = [symm.empty(count, dtype=dtype) for symm in symms]
        self.words = [symm.empty(2, dtype=torch.int32) for symm in symms]
        for word in self.words:
            word.zero_()
        self.handles = self._handles(symms, self.buffers)
        self.word_handles = self._handles(symms, self.words)

    def _handles(self, symms: Sequence[SymmMem], parts: Sequence[torch.Tensor]) -> list[SymmetricHandle]:
        return [symm.rendezvous(part) for symm, part in zip(symms, parts, strict=True)]

    def launch(self, rank: int, kernel: object, *args: object, **options: object) -> None:
        self.world.fabrics[rank].main().launch(kernel, (1,), *args, **options)

    def all_reduce(self, wait: bool = True) -> None:
        for rank, handle in enumerate(self.handles):
            arguments = (handle.multicast_ptr, self.buffers[rank], self.words[rank])
            signal = self.word_handles[rank].multicast_ptr
            sizes = {"NUM_RANKS": len(self.handles), "N": N, "WAIT": wait}
            self.launch(rank, kernels.all_reduce_by_multimem, *arguments, signal, rank, **sizes)
        self.world.run()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int32])
@pytest.mark.parametrize("num_ranks", [2, 4])
@pytest.mark.parametrize("seed", range(3))
def test_all_reduce_equals(dtype: torch.dtype, num_ranks: int, seed: int) -> None:
    ranks = Ranks(num_ranks, dtype, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    inputs = [(100 * torch.randn(N, generator=generator)).to(dtype) for _ in range(num_ranks)]
    for buffer, x in zip(ranks.buffers, inputs, strict=True):
        buffer.copy_(x)
    ranks.all_reduce()
    wide = torch.float32 if dtype.is_floating_point else torch.int32
    total = torch.zeros(N, dtype=wide)
    for x in inputs:
        total += x.to(wide)
    assert all(torch.equal(buffer, total.to(dtype)) for buffer in ranks.buffers)


@pytest.mark.parametrize("seed", range(2))
def test_a_multimem_access_needs_the_order_of_plain_ones(seed: int) -> None:
    for wait in (True, False):
        ranks = Ranks(4, torch.float32, seed=seed, observers=[RaceDetector(4)])
        for fabric, buffer in zip(ranks.world.fabrics, ranks.buffers, strict=True):
            fabric.main().copy(buffer, torch.ones(N))
        with contextlib.nullcontext() if wait else pytest.raises(Race, match="all_reduce_by_multimem"):
            ranks.all_reduce(wait)


@pytest.mark.parametrize("starved", [0, 1, 2])
def test_without_a_wait_for_the_peers_the_sum_is_wrong(starved: int) -> None:
    """Each rank's copy arrives by a copy in front of the kernel, so a starved rank has nothing yet."""

    def is_right(wait: bool) -> bool:
        policy: Policy = StarveRank(starved)
        ranks = Ranks(4, torch.float32, policy=policy)
        for fabric, buffer in zip(ranks.world.fabrics, ranks.buffers, strict=True):
            fabric.main().copy(buffer, torch.ones(N))
        ranks.all_reduce(wait)
        return all(buffer.tolist() == [4.0] * N for buffer in ranks.buffers)

    assert is_right(wait=True)
    assert not is_right(wait=False)


def test_bf16_is_summed_in_fp32_and_rounded_once() -> None:
    ranks = Ranks(4, torch.bfloat16)
    for buffer, value in zip(ranks.buffers, (256.0, 1.0, 1.0, 0.5), strict=True):
        buffer.fill_(value)  # in bf16, 256 + 1 is 256
    ranks.all_reduce()
    assert ranks.buffers[0].tolist() == [258.0] * N


@pytest.mark.parametrize(("dtype", "element"), [(torch.bfloat16, tl.bfloat16), (torch.int32, tl.int32)])
def test_a_reduction_adds_on_every_rank_once(dtype: torch.dtype, element: tl.dtype) -> None:
    ranks = Ranks(3, dtype)
    for buffer in ranks.buffers:
        buffer.fill_(1)
    for rank in range(3):
        ranks.launch(rank, kernels.red_block, ranks.handles[rank].multicast_ptr, ELEMENT=element, N=N)
    ranks.world.run()
    wanted = [1 + 3 * (lane + 1) for lane in range(N - 1)] + [1]
    assert [buffer.tolist() for buffer in ranks.buffers] == [wanted] * 3


def test_observers_see_one_access_of_each_copy() -> None:
    recorder = Recorder()
    ranks = Ranks(3, torch.float32, observers=[recorder])
    for buffer in ranks.buffers:
        buffer.zero_()
    ranks.all_reduce()
    accesses = [access for access in recorder.accesses("all_reduce_by_multimem") if access.task.rank == 1]
    starts = [buffer.data_ptr() for buffer in ranks.buffers]
    part = 4 * (N // 3)
    for kind in (Kind.LOAD, Kind.STORE):
        data = [access for access in accesses if access.kind is kind and access.via is Via.PLAIN]
        assert [int(access.addresses[0]) for access in data] == [start + part for start in starts]
        assert {access.semantic for access in data} == {Semantic.NONE}
        assert {access.place.function for access in data} == {"all_reduce_by_multimem"}
    signals = [access for access in accesses if access.semantic is Semantic.RELEASE]
    assert [int(access.addresses[0]) for access in signals] == [word.data_ptr() for word in ranks.words] * 2
    assert {(access.kind, access.scope) for access in signals} == {(Kind.ATOMIC, Scope.SYSTEM)}


def refused(ranks: Ranks, kernel: object, *args: object, **options: object) -> str:
    ranks.launch(0, kernel, *args, **options)
    with pytest.raises(NoMulticast) as caught:
        ranks.world.run()
    assert "multimem_ld_reduce" in str(caught.value) and "dialect_kernels.py" in str(caught.value.facts["place"])
    return str(caught.value.facts["reason"])


def test_links_without_multicast() -> None:
    ranks = Ranks(2, torch.float32, multicast=False)
    assert ranks.handles[0].multicast_ptr == 0
    reason = refused(ranks, kernels.sum_at, ranks.handles[0].multicast_ptr, torch.zeros(N), N=N)
    assert reason == "the links of this world have no multicast"


def test_addresses_outside_of_the_multicast_range() -> None:
    out = torch.zeros(64)
    ranks = Ranks(2, torch.float32)
    assert "over the end" in refused(ranks, kernels.sum_at, ranks.handles[0].multicast_ptr, out, N=64)
    ranks = Ranks(2, torch.float32)
    assert "one rank's own copy" in refused(ranks, kernels.sum_at, ranks.buffers[0].data_ptr(), out, N=N)
    ranks = Ranks(2, torch.float32)
    assert "in no multicast range" in refused(ranks, kernels.sum_at, 1 << 20, out, N=N)


def test_a_plain_access_of_a_multicast_address_is_out_of_bounds() -> None:
    ranks = Ranks(2, torch.float32)
    ranks.launch(0, kernels.plain_load, ranks.handles[0].multicast_ptr, torch.zeros(1))
    with pytest.raises(OutOfBounds):
        ranks.world.run()


def test_elements_that_the_switch_cannot_add() -> None:
    ranks = Ranks(2, torch.int8)
    ranks.launch(0, kernels.sum_bytes, ranks.handles[0].multicast_ptr, torch.zeros(1, dtype=torch.int8))
    with pytest.raises(IllegalShmemArgument, match="pointers to fp32, bf16, fp16, int32"):
        ranks.world.run()


@pytest.mark.parametrize("multicast", [True, False])
def test_the_multicast_address_of_an_openshmem_pointer(multicast: bool) -> None:
    ranks = Ranks(2, torch.float32, multicast=multicast)
    for rank, buffer in enumerate(ranks.buffers):
        buffer.copy_(torch.arange(N) + rank)
    out = torch.zeros(1)
    ranks.launch(1, kernels.through_remote_mc_ptr, ranks.buffers[1], out)
    ranks.world.run()
    assert out.item() == (3.0 if multicast else 0.0)
