"""What GPUs of a group have of each other's bytes, looked at before anything is compiled: here ranks are threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

import topologies
from lowering.host import hosts
from tests.pipeline.workloads import load
from tilelink.errors import PeersDiffer
from tilelink.runtime import operator, peers
from tilelink.runtime.peers import Wrong, wrong_words

RANKS, WORDS = 3, 64


def looked_at(change: Callable[[int, list[torch.Tensor]], list[torch.Tensor]]) -> list[list[Wrong]]:
    """`change`: what a rank has in the place of the memory of all ranks."""
    memory = [torch.full((RANKS, WORDS), -1, dtype=torch.int32) for _ in range(RANKS)]
    barrier, found = threading.Barrier(RANKS), [list[Wrong]() for _ in range(RANKS)]

    def meet() -> None:
        barrier.wait(10)

    def run(rank: int) -> None:
        found[rank] = wrong_words(rank, change(rank, list(memory)), meet)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(RANKS)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return found


def test_links_that_carry_all() -> None:
    assert looked_at(lambda _, memory: memory) == [[], [], []]


def test_memory_that_is_not_that_of_the_peer() -> None:
    def change(rank: int, memory: list[torch.Tensor]) -> list[torch.Tensor]:
        return memory if rank else [memory[0], torch.zeros_like(memory[1]), memory[2]]

    found = looked_at(change)
    assert {one[:3] for one in found[1]} == {(0, 1, "kernels"), (0, 1, "copies")}
    assert {one[:3] for one in found[0]} == {(1, 0, "loads of kernels"), (1, 0, "loads of copies")}
    assert all(one.words == WORDS for some in found for one in some) and not found[2]


@contextmanager
def one_word_lost() -> Iterator[None]:
    whole = peers._WAYS["copies"]

    def lossy(source: torch.Tensor, target: torch.Tensor) -> None:
        whole(source, target)
        target[7] = 0

    peers._WAYS["copies"] = lossy
    yield
    peers._WAYS["copies"] = whole


def test_one_word_is_enough() -> None:
    with one_word_lost():
        found = looked_at(lambda _, memory: memory)
    assert [len(one) for one in found] == [4, 4, 4]
    assert {(one.by, one.words) for some in found for one in some} == {("copies", 1), ("loads of copies", 1)}


def test_all_ranks_raise_what_one_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Group:
        group_name = "of a test"

        def rank(self) -> int:
            return 1

        def size(self) -> int:
            return 2

    class Handle:
        def get_remote_tensor(self, rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype)

    def gather(found: list[list[Wrong]], mine: list[Wrong], group: object) -> None:
        found[:] = [[Wrong(1, 0, "copies", 3)], mine]

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(symm_mem, "empty", lambda shape, dtype, device: torch.zeros(shape, dtype=dtype))
    monkeypatch.setattr(symm_mem, "rendezvous", lambda *_: Handle())
    monkeypatch.setattr(peers, "wrong_words", lambda *_: [])
    monkeypatch.setattr(hosts, "node_of", lambda group, _: hosts.Node(2, (0, 1), group))
    monkeypatch.setattr(dist, "all_gather_object", gather)
    with pytest.raises(PeersDiffer, match="rank 1 to rank 0 by copies, 3 of 262,144 words"):
        peers.check_peers(cast("dist.ProcessGroup", Group()))
    assert "of a test" not in peers._CHECKED
    monkeypatch.setattr(dist, "all_gather_object", lambda found, mine, group: None)
    peers.check_peers(cast("dist.ProcessGroup", Group()))
    assert "of a test" in peers._CHECKED


@pytest.mark.parametrize(
    ("pins", "language", "looked"),
    [
        ({"mover": "CopyEngine()"}, "triton", True),
        ({"mover": "OwnKernel()", "protocol": "lamport"}, "triton", True),
        ({"mover": "Library()"}, "triton", False),
        ({"mover": "CopyEngine()"}, "triton-distributed", False),
    ],
)
def test_only_what_peers_reach_needs_their_links(
    pins: dict[str, str], language: str, looked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[object]()
    monkeypatch.setattr(operator, "check_peers", seen.append)
    sizes = {"M": 256, "K": 64, "N": 128}
    schedule = load("02_ag_gemm.py:ag_gemm").plan_for(topologies.load("h200-nvswitch", 2), sizes, "bf16", pins)
    operator.check_links(None, schedule, language)
    assert seen == [None] * looked
