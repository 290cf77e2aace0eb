"""Library calls: collectives and matmul, against torch."""

from __future__ import annotations

import pytest
import torch

from tilelink.emulator import CollectiveMismatch, Deadlock, World


def inputs(num_ranks: int, rows: int, dtype: torch.dtype = torch.bfloat16) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(rows, 8).to(dtype) for _ in range(num_ranks)]


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_all_gather(num_ranks: int) -> None:
    world = World(num_ranks)
    xs = inputs(num_ranks, 4)
    outs = [torch.zeros(num_ranks * 4, 8).bfloat16() for _ in xs]
    for fabric, out, x in zip(world.fabrics, outs, xs, strict=True):
        fabric.main().all_gather(out, x)
    world.run()
    for out in outs:
        assert torch.equal(out, torch.cat(xs))


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_reductions_round_once(num_ranks: int) -> None:
    world = World(num_ranks, seed=2)
    xs = inputs(num_ranks, num_ranks * 2)
    total = torch.stack([x.float() for x in xs]).sum(0).bfloat16()
    outs = [torch.zeros(2, 8).bfloat16() for _ in xs]
    for fabric, out, x in zip(world.fabrics, outs, xs, strict=True):
        fabric.main().reduce_scatter(out, x)
        fabric.main().all_reduce(x)
    world.run()
    for rank in range(num_ranks):
        assert torch.equal(outs[rank], total[rank * 2 : rank * 2 + 2])
        assert torch.equal(xs[rank], total)


def test_streams_meet_apart() -> None:
    """Collectives are matched by their number on a stream, also over several runs."""
    world = World(2, seed=1)
    a, b = inputs(2, 2, torch.float32), inputs(2, 3, torch.float32)
    for _ in range(2):
        for fabric in world.fabrics:
            names = ("a", "b") if fabric.rank else ("b", "a")
            for name in names:
                fabric.stream(name).all_reduce((a if name == "a" else b)[fabric.rank])
        world.run()
    assert torch.equal(a[0], a[1])
    assert torch.equal(b[0], b[1])


def test_matmul_sums_in_fp32() -> None:
    world = World(1)
    a, b = torch.randn(8, 64).bfloat16(), torch.randn(64, 4).bfloat16()
    out = torch.zeros(8, 4).bfloat16()
    world.fabrics[0].main().matmul(out, a, b)
    world.run()
    assert torch.equal(out, (a.float() @ b.float()).bfloat16())


def test_ranks_that_call_different_collectives() -> None:
    world = World(2)
    first, second = inputs(2, 4)
    world.fabrics[0].main().all_reduce(first)
    world.fabrics[1].main().all_reduce(second[:2])
    with pytest.raises(CollectiveMismatch) as caught:
        world.run()
    facts = caught.value.facts
    assert (facts["stream"], facts["number"]) == ("main", 0)
    assert {str(facts["own"]), str(facts["other"])} == {
        "all_reduce of bfloat16[4, 8]",
        "all_reduce of bfloat16[2, 8]",
    }


def test_a_rank_that_does_not_come() -> None:
    world = World(3)
    for fabric, x in zip(world.fabrics[:2], inputs(2, 4), strict=True):
        fabric.main().all_reduce(x)
    with pytest.raises(Deadlock, match="ranks 2 to come to all_reduce"):
        world.run()
