"""Functions of the dialect that tell more of the memory model, multicast, and what is refused."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.compat.triton_dist.shimmed import COUNT, load, on_all, symmetric, world
from tilelink.compat.dialects import IllegalShmemArgument, NoMulticast, NotEmulated
from tilelink.compat.dialects.simt import PerThreadCode
from tilelink.compat.triton_dist import install
from tilelink.compat.triton_dist.device.language import wait
from tilelink.emulator import Deadlock, NarrowScope, Race
from tilelink.emulator.events import Scope

FILE = Path(__file__).with_name("more_kernels.py")


@cache
def kernels() -> Any:
    assert install()
    return load(FILE, "more_hand_written_kernels")


def reduced(multicast: bool) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    emulated = world(3, races=True, multicast=multicast)

    def host(group: Any) -> tuple[torch.Tensor, torch.Tensor]:
        x, out = symmetric(16), torch.zeros(16)
        x.fill_(group.rank() + 1)
        kernels().reduce_by_multicast[(1,)](x, out, COUNT=16)
        return x, out

    results = on_all(emulated, host)
    emulated.run()
    return [x for x, _ in results], [out for _, out in results]


def test_multicast() -> None:
    xs, outs = reduced(multicast=True)
    assert all(out.tolist() == [6.0] * 16 for out in outs)
    for rank, x in enumerate(xs):
        own = float(rank + 1)
        assert x.tolist() == [1.0] * 8 + [own] * 2 + [1.0] * 2 + [own] * 4


def test_links_without_multicast() -> None:
    with pytest.raises(NoMulticast):
        reduced(multicast=False)


def test_vectors_and_numbers_of_the_machine() -> None:
    emulated = world(1)
    narrow = torch.tensor([1, 2, 3, 4], dtype=torch.int32)
    wide, out = torch.tensor([5, 6, 0, 0]), torch.zeros(11, dtype=torch.int32)
    on_all(emulated, lambda _: kernels().vectors[(1,)](narrow, wide, out))
    emulated.run()
    assert out.tolist() == [4, 3, 2, 1, 1, 1, 4, 4, 2, 3, 33]
    assert wide.tolist() == [5, 6, 11, 1 | 4 << 32]


def pushed(kernel: str, num_ranks: int = 2, programs: int = 1, words: int = 1, **constants: Any) -> list[torch.Tensor]:
    emulated = world(num_ranks, races=True)

    def host(_: Any) -> torch.Tensor:
        data, flag, out = symmetric(COUNT), symmetric(words, dtype=torch.int64), torch.zeros(COUNT)
        getattr(kernels(), kernel)[(programs,)](data, flag, out, N=COUNT, **constants)
        return out

    outs = on_all(emulated, host)
    emulated.run()
    return outs


def test_a_fence_makes_a_relaxed_store_a_release() -> None:
    assert all(torch.equal(out, torch.full((COUNT,), 4.0)) for out in pushed("publish_by_fence"))
    with pytest.raises(Race):
        pushed("publish_without_fence")


def test_loads_and_stores_of_a_word_that_peers_share_have_system_scope() -> None:
    pushed("look_at_a_word", STORED="sys", LOADED="sys")
    for stored, loaded, line in [("sys", "gpu", "ld(flag"), ("gpu", "sys", " st("), ("gpu", "gpu", "")]:
        with pytest.raises(NarrowScope) as caught:
            pushed("look_at_a_word", STORED=stored, LOADED=loaded)
        assert line in f" {caught.value.narrow.place.text}"
        assert caught.value.narrow.scope is Scope.GPU
    pushed("look_at_a_word", num_ranks=1, STORED="gpu", LOADED="gpu")


def test_a_wait_is_no_barrier_of_the_program() -> None:
    with pytest.raises(Race):
        pushed("wait_is_no_barrier", num_ranks=1, programs=2, words=2)


def test_words_of_a_file_for_amd() -> None:
    emulated = world(3, races=True)
    operators = on_all(emulated, lambda group: kernels().AmdPush(group, COUNT))
    outs = on_all(emulated, lambda group: operators[group.rank()]())
    emulated.run()
    for rank, out in enumerate(outs):
        assert torch.equal(out, torch.full((COUNT,), float((rank - 1) % 3)))
        assert operators[rank].signal[rank].tolist() == [7, 1, 5]


def run_one(kernel: str, *tensors: torch.Tensor, num_ranks: int = 1, **constants: Any) -> None:
    emulated = world(num_ranks)
    on_all(emulated, lambda _: getattr(kernels(), kernel)[(1,)](*tensors, **constants))
    emulated.run()


def test_no_more_words_than_lanes() -> None:
    run_one("too_many", torch.ones(32, dtype=torch.int64), COUNT=32)
    with pytest.raises(IllegalShmemArgument, match="at most 32"):
        run_one("too_many", torch.ones(33, dtype=torch.int64), COUNT=33)


@pytest.mark.parametrize(("scope", "semantic"), [("system", "acquire"), ("sys", "release")])
def test_words_of_scope_and_semantic(scope: str, semantic: str) -> None:
    with pytest.raises(IllegalShmemArgument, match="Legal: "):
        run_one("wait_with", torch.ones(1, dtype=torch.int64), SCOPE=scope, SEMANTIC=semantic)


def test_the_value_comes_before_the_token() -> None:
    with pytest.raises(IllegalShmemArgument, match="the value comes first"):
        run_one("swapped", torch.ones(1), torch.zeros(1, dtype=torch.int32))


def test_symm_at_takes_one_pointer() -> None:
    with pytest.raises(IllegalShmemArgument, match="one scalar pointer"):
        run_one("symm_at_of_many", torch.ones(8), N=8)


@pytest.mark.parametrize(
    ("kernel", "reason"), [("barrier_of_one_thread", "would hang"), ("either_thread", "`if` without `else`")]
)
def test_threads_that_part(kernel: str, reason: str) -> None:
    with pytest.raises(PerThreadCode, match=reason):
        run_one(kernel, torch.zeros(1, dtype=torch.int32))


def test_nobody_raises_the_word() -> None:
    with pytest.raises(Deadlock, match=r"flags\[0\] of rank 0 \(value 0\) == 1"):
        run_one("wait_with", torch.zeros(1, dtype=torch.int64), SCOPE="sys", SEMANTIC="acquire")


def test_outside_of_a_world() -> None:
    with pytest.raises(NotEmulated):
        wait(0, 1, "sys", "acquire")
