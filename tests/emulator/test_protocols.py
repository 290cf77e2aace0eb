"""Ranks that decide differently: the first operation in which their host code departs from each other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import lowering
import topologies
from tests.emulator import kernels
from tests.pipeline.workloads import load, sizes
from tilelink.emulator import EmulatedFabric, World, first_difference
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.reference import make_inputs

INT = torch.int32
Call = Callable[[EmulatedFabric], None]


def enqueued(call: Call, ranks: int = 3) -> World:
    world = World(ranks)
    for fabric in world.fabrics:
        call(fabric)
    return world


def same_everywhere(fabric: EmulatedFabric) -> None:
    """Kernels, constants and sizes are equal; pointers, ranks as arguments and peers are not."""
    word = torch.zeros(fabric.num_ranks, dtype=INT)
    fabric.main().launch(kernels.notify, (1,), word[fabric.rank :], fabric.rank + 7)
    fabric.main().launch(kernels.fill, (1,), word, 1, 64, GUARD=True, BLOCK=fabric.rank)
    for step in range(1, fabric.num_ranks):
        peer = (fabric.rank + step) % fabric.num_ranks
        fabric.stream("push").copy(torch.zeros(3, dtype=INT), word)
        fabric.stream("push").write(word[peer : peer + 1], 4)


def other_kernel(fabric: EmulatedFabric) -> None:
    same_everywhere(fabric)
    kernel = kernels.wait if fabric.rank == 2 else kernels.notify
    fabric.main().launch(kernel, (1,), torch.zeros(1, dtype=INT), 1)


def other_grid(fabric: EmulatedFabric) -> None:
    fabric.main().launch(kernels.count_up, (4 + (fabric.rank == 1),), torch.zeros(8, dtype=INT))


def other_constant(fabric: EmulatedFabric) -> None:
    fabric.main().launch(kernels.fill, (1,), torch.zeros(64, dtype=INT), 1, 64, GUARD=fabric.rank == 0)


def other_size(fabric: EmulatedFabric) -> None:
    rows = 8 if fabric.rank == 1 else 4
    fabric.main().copy(torch.zeros(rows, 2), torch.ones(rows, 2))


def one_more(fabric: EmulatedFabric) -> None:
    for _ in range(1 + (fabric.rank == 2)):
        fabric.main().write(torch.zeros(1, dtype=INT), 1)


def other_threshold(fabric: EmulatedFabric) -> None:
    fabric.main().wait_at_least(torch.zeros(1, dtype=INT), 5 if fabric.rank == 1 else 6)


@pytest.mark.parametrize(
    ("call", "position", "rank", "texts"),
    [
        (other_kernel, 6, 2, ["launch notify", "launch wait"]),
        (other_grid, 0, 1, ["grid (4, 1, 1)", "grid (5, 1, 1)"]),
        (other_constant, 0, 1, ["GUARD=True", "GUARD=False"]),
        (other_size, 0, 1, ["copy float32[4, 2]", "copy float32[8, 2]"]),
        (one_more, 1, 2, ["rank 0 enqueues nothing more", "write on stream main, value=1"]),
        (other_threshold, 0, 1, ["value=6", "value=5"]),
    ],
)
def test_the_first_difference_is_named(call: Call, position: int, rank: int, texts: list[str]) -> None:
    difference = first_difference(enqueued(call).protocols())
    assert difference is not None
    assert (difference.position, difference.rank, difference.other_rank) == (position, 0, rank)
    assert all(text in str(difference) for text in texts)
    assert "test_protocols.py" in str(difference)


def test_numbers_that_are_the_rank_are_no_decision() -> None:
    world = enqueued(same_everywhere)
    assert [len(protocol) for protocol in world.protocols()] == [6, 6, 6]
    assert first_difference(world.protocols()) is None


def test_a_reset_forgets() -> None:
    world = enqueued(other_grid)
    world.reset_protocols()
    assert world.protocols() == ((), (), ())
    assert first_difference(world.protocols()) is None


@pytest.mark.parametrize("mover", ["CopyEngine()", "CommSms(2)"])
@pytest.mark.parametrize("name", ["02_ag_gemm.py:ag_gemm", "05_mlp.py:mlp"])
def test_emitted_operators_do_the_same_on_every_rank(name: str, mover: str) -> None:
    pins = {"algorithm": "direct", "mover": mover, "compute": "triton", "nest": "chunk by chunk"}
    schedule = load(name).plan_for(topologies.load("laptop-switch", 4), sizes(name, 4), "bf16", pins)
    build = operator_class(load_source(lowering.emit(schedule), schedule.name))
    world = World(4, num_sms=schedule.machine.num_sms)
    operators = [build(fabric) for fabric in world.fabrics]
    for operator, parts in zip(operators, make_inputs(schedule.spec, 1), strict=True):
        operator(*parts.values())
    assert all(world.protocols())
    assert first_difference(world.protocols()) is None
