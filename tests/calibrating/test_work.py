"""What a rank enqueues, on emulated ranks instead of GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tilelink.calibrating import measure, work
from tilelink.calibrating.kernels import copy_parts, ping_pong
from tilelink.calibrating.work import GpuWork
from tilelink.emulator import EmulatedFabric, World


class Launched:
    """A kernel that `[grid](...)` enqueues on the fabric whose turn it is."""

    turn: EmulatedFabric

    def __init__(self, kernel: object) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*arguments: object, **options: Any) -> None:
            Launched.turn.main().launch(self.kernel, grid, *arguments, **options)

        return launch


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that are emulated in no time."""
    for name, value in {"SM_COPY_BYTES": 3072, "BLOCK_BYTES": 256, "ROUND_TRIPS": 4, "POLLS": 10_000}.items():
        monkeypatch.setattr(measure, name, value)
    monkeypatch.setattr(work, "_BLOCK", 64)
    monkeypatch.setattr(work, "copy_parts", Launched(copy_parts))
    monkeypatch.setattr(work, "ping_pong", Launched(ping_pong))
    monkeypatch.setattr(EmulatedFabric, "device", torch.device("cpu"), raising=False)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)


def works(world: World, places: int = 1) -> list[GpuWork]:
    return [GpuWork(fabric, 4096, places) for fabric in world.fabrics]  # type: ignore[arg-type]


def run(world: World, one: Callable[[int], object]) -> None:
    """`one` on every rank, then what they have enqueued."""
    for fabric in world.fabrics:
        Launched.turn = fabric
        one(fabric.rank)
    world.run()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("push", [True, False])
@pytest.mark.parametrize("num_ranks", [2, 3])
def test_copies_arrive_and_are_checked(num_ranks: int, push: bool) -> None:
    world = World(num_ranks, num_sms=4)
    ranks = works(world)
    behind = [tuple((rank + 1 + step) % num_ranks for step in range(num_ranks - 1)) for rank in range(num_ranks)]
    for rank in ranks:
        rank.clear()
    assert all(rank.wrong_words(peers) > 700 for rank, peers in zip(ranks, behind, strict=True))
    run(world, lambda rank: ranks[rank].copy(behind[rank], 3, push=push)())
    assert [rank.wrong_words(peers) for rank, peers in zip(ranks, behind, strict=True)] == [0] * num_ranks
    ranks[1].landing.local[5] = -1
    assert [rank.wrong_words(peers) for rank, peers in zip(ranks, behind, strict=True)] == [
        0,
        1,
        *[0] * (num_ranks - 2),
    ]
    assert ranks[0].wrong_words(()) == 0


@pytest.mark.usefixtures("small")
def test_a_copy_engine_pushes() -> None:
    world = World(2)
    ranks = works(world)
    run(world, lambda rank: ranks[rank].push(1 - rank, 2048)())
    assert torch.equal(ranks[0].landing.local[:512], ranks[1].source.local[:512])
    assert not ranks[0].landing.local[512:].any()


@pytest.mark.usefixtures("small")
def test_words_of_two_levels() -> None:
    """Rank 0 plays with rank 1, then with rank 2, each with a word of its own."""
    world = World(3, num_sms=1)
    ranks = works(world, places=2)
    for place, peer in enumerate((1, 2)):
        pair = {0: peer, peer: 0}

        def play(rank: int, place: int = place, pair: dict[int, int] = pair) -> None:
            if rank in pair:
                ranks[rank].words(pair[rank], place, first=rank == 0, atomic=True)()

        run(world, play)
    assert [state.tolist() for rank in ranks for state in rank.states] == [[4, 0]] * 4
    assert not any(rank.words_lost() for rank in ranks)
    ranks[2].states[0][1] = 1
    assert [rank.words_lost() for rank in ranks] == [False, False, True]
