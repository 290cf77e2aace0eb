"""The kernels that are timed: right on emulated ranks, and compiled for a GPU without one."""

from __future__ import annotations

import re

import pytest
import torch

from tilelink.calibrating.kernels import copy_parts, ping_pong
from tilelink.emulator import World
from tilelink.runtime.aot import RecordedLaunch, compile_launch

INT = torch.int32
BLOCK = 64


@pytest.mark.parametrize("push", [True, False])
@pytest.mark.parametrize(("ranks", "programs"), [(2, 3), (3, 2)])
def test_parts_arrive_at_places_of_their_own(ranks: int, programs: int, push: bool) -> None:
    world, peers, blocks = World(ranks, num_sms=4), ranks - 1, 3
    size = peers * blocks * BLOCK
    sides = []
    for fabric in world.fabrics:
        source, landing = (fabric.symmetric((size,), INT) for _ in range(2))
        source.local.copy_(torch.arange(size, dtype=INT) + 100_000 * (fabric.rank + 1))
        here, there = (source, landing) if push else (landing, source)
        order = [(fabric.rank + 1 + step) % ranks for step in range(peers)]
        pointers = torch.tensor([int(there.pointers[peer]) for peer in order])
        fabric.main().launch(
            copy_parts, (programs,), here.local, pointers, blocks, PEERS=peers, PUSH=push, BLOCK=BLOCK, num_warps=8
        )
        sides.append(landing.local)
    world.run()
    for rank, side in enumerate(sides):
        parts = side.view(peers, blocks * BLOCK)
        for part in range(peers):
            owner = (rank + 1 + part) % ranks
            begin = (peers - 1 - part) * blocks * BLOCK + 100_000 * (owner + 1)
            assert torch.equal(parts[part], torch.arange(begin, begin + blocks * BLOCK, dtype=INT))


def played(world: World, states: list[torch.Tensor], launches: int, polls: int, atomic: bool, absent: bool) -> None:
    """Both ranks launch the kernel, or the second one nothing."""
    for fabric in world.fabrics:
        words = fabric.symmetric((1,), INT)
        if absent and fabric.rank == 1:
            continue
        arguments = words.local, words.pointers, 1 - fabric.rank, states[fabric.rank], 5, polls
        for _ in range(launches):
            fabric.main().launch(ping_pong, (1,), *arguments, FIRST=fabric.rank == 0, ATOMIC=atomic, num_warps=1)
    world.run()


@pytest.mark.parametrize("atomic", [True, False])
def test_words_go_to_and_fro(atomic: bool) -> None:
    states = [torch.zeros(2, dtype=INT) for _ in range(2)]
    played(World(2, num_sms=1, seed=3, peer_atomics=atomic), states, 3, 100_000, atomic, absent=False)
    assert [state.tolist() for state in states] == [[15, 0]] * 2


def test_a_peer_that_does_not_answer_ends_all_launches() -> None:
    states = [torch.zeros(2, dtype=INT) for _ in range(2)]
    played(World(2, num_sms=1), states, 3, 20, atomic=True, absent=True)
    assert [state.tolist() for state in states] == [[15, 1], [0, 0]]


def launch_of_copy(push: bool, peers: int) -> RecordedLaunch:
    local = torch.empty(1 << 24, dtype=INT, device="meta")
    pointers = torch.empty(peers, dtype=torch.int64, device="meta")
    options: dict[str, object] = {"PEERS": peers, "PUSH": push, "BLOCK": 8192, "num_warps": 8}
    return RecordedLaunch(copy_parts, (4,), (local, pointers, 2048), options)


@pytest.mark.parametrize("push", [True, False])
def test_copies_compile_to_vectors(push: bool) -> None:
    """16 bytes a thread and instruction on both sides."""
    ptx = compile_launch(launch_of_copy(push, 1), "sm_90").asm["ptx"]
    for kind in ("ld", "st"):
        found = re.findall(rf"\b{kind}\.global\S*", ptx)
        wide = [one for one in found if ".v4.b32" in one]
        assert len(wide) == 8  # 32 KiB by 256 threads
        assert len(found) - len(wide) == (kind == "ld")  # the address of the peer


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("atomic", [True, False])
def test_words_compile(first: bool, atomic: bool) -> None:
    words, state = (torch.empty(2, dtype=INT, device="meta") for _ in range(2))
    pointers = torch.empty(2, dtype=torch.int64, device="meta")
    options: dict[str, object] = {"FIRST": first, "ATOMIC": atomic, "num_warps": 1}
    launch = RecordedLaunch(ping_pong, (1,), (words, pointers, 1, state, 2000, 4096), options)
    ptx = compile_launch(launch, "sm_90").asm["ptx"]
    assert ptx.count("ld.global.sys.acquire.b32") == 1  # what the compiler makes of an added 0
    assert ptx.count("atom.global.sys.release.exch.b32") == atomic
