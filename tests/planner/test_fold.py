"""Elementwise ops fold into the largest matmul that they can, whichever operand comes first in the spec."""

from __future__ import annotations

from typing import Annotated

import pytest

import topologies
from tilelink import Shard, Tensor, all_gather, dims, overlap, reduce_scatter
from tilelink.declaration import Overlap
from tilelink.plan import Plan
from tilelink.planner.group import Group, group_ops
from tilelink.runtime.run import run_emulated

M, K, N, R = dims("M K N R")
X = Annotated[Tensor, (M, K), Shard(1)]
W = Annotated[Tensor, (K, N), Shard(0)]
A = Annotated[Tensor, (K, R), Shard(0)]
B = Annotated[Tensor, (R, N)]
FULL = {"M": 8192, "K": 14336, "N": 4096, "R": 64}
SMALL = {"M": 64, "K": 64, "N": 32, "R": 16}


@overlap
def large_first(x: X, w: W, a: A, b: B) -> Tensor:
    return reduce_scatter(x @ w + (x @ a) @ b, dim=0)


@overlap
def small_first(x: X, w: W, a: A, b: B) -> Tensor:
    return reduce_scatter((x @ a) @ b + x @ w, dim=0)


@overlap
def chained(
    x: Annotated[Tensor, (M, K), Shard(0)], w: Annotated[Tensor, (K, N)], b: Annotated[Tensor, (N, N)]
) -> Tensor:
    """The second matmul needs the first, so that only its own epilogue can add the two, though it is the smaller one."""
    first = all_gather(x, dim=0) @ w
    return first + first @ b


def of(operator: Overlap, sizes: dict[str, int]) -> dict[str, int]:
    """The sizes that the operator has."""
    return {name: size for name, size in sizes.items() if name != "R" or operator is not chained}


def groups(operator: Overlap) -> tuple[Group, ...]:
    return group_ops(operator.graph(4, "bf16", **of(operator, FULL)), frozenset())


def planned(operator: Overlap, topology: str, ranks: int, sizes: dict[str, int]) -> Plan:
    return operator.plan_for(topologies.load(topology, ranks), of(operator, sizes), "bf16", {})


@pytest.mark.parametrize("operator", [large_first, small_first])
def test_the_larger_matmul_adds(operator: Overlap) -> None:
    found = groups(operator)
    (adding,) = (group for group in found if len(group.ops) > 1)
    assert [axis.extent for axis in adding.anchor.axes] == [FULL["M"], FULL["N"], FULL["K"] // 4]
    for at, group in enumerate(found):  # a group needs only groups before it
        assert not {value for later in found[at:] for value in later.made} & set(group.reads())


def test_what_depends_on_it_adds() -> None:
    found = groups(chained)
    assert [len(group.ops) for group in found] == [1, 2]
    assert found[1].anchor.axes[2].extent == FULL["N"] < FULL["K"]


@pytest.mark.slow
def test_both_orders_take_as_long() -> None:
    times = [planned(one, "h200-nvswitch", 4, FULL).predicted_us for one in (large_first, small_first)]
    assert times[0] == pytest.approx(times[1])


@pytest.mark.parametrize("operator", [large_first, small_first, chained])
@pytest.mark.quick(1)
def test_all_give_what_torch_gives(operator: Overlap) -> None:
    schedule = planned(operator, "laptop-switch", 2, SMALL)
    assert run_emulated(schedule, schedule.emit(), calls=2).equal
