"""One value whose parts are summed twice, or that something else arrives for: the sum in its epilogue orders the tiles."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Annotated, TypeAlias

import pytest

import lowering
import tilelink
import topologies
from tilelink import Partial, Shard, Tensor, dims
from tilelink.emulator.errors import Deadlock
from tilelink.ir.nodes import ComputeRole, Kernel
from tilelink.ir.order import Nest
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import bind
from tilelink.planner.sample import sample_schedule
from tilelink.proof.bug_class import BugClass
from tilelink.proof.verify import verify
from tilelink.runtime.run import run_emulated

M, N, K = dims("M N K")
X: TypeAlias = Annotated[Tensor, (M, K), Shard(1)]
W: TypeAlias = Annotated[Tensor, (K, N), Shard(0)]


@tilelink.overlap
def rows_and_columns(x: X, w: W) -> tuple[Tensor, ...]:
    y = tilelink.matmul(x, w)
    return tilelink.reduce_scatter(y, dim=0), tilelink.reduce_scatter(y, dim=1)


@tilelink.overlap
def rows_twice(x: X, w: W) -> tuple[Tensor, ...]:
    y = tilelink.matmul(x, w)
    return tilelink.relu(tilelink.reduce_scatter(y, dim=0)), tilelink.silu(tilelink.reduce_scatter(y, dim=0))


@tilelink.overlap
def rows_and_all(x: X, w: W) -> tuple[Tensor, ...]:
    y = tilelink.matmul(x, w)
    return tilelink.reduce_scatter(y, dim=0), tilelink.all_reduce(y)


@tilelink.overlap
def columns_that_arrive(x: Annotated[Tensor, (M, K), Partial()], v: Annotated[Tensor, (K, N), Shard(1)]) -> Tensor:
    z = tilelink.matmul(x, tilelink.all_gather(v, dim=1))
    return tilelink.reduce_scatter(z, dim=1)


OPERATORS = (rows_and_columns, rows_twice, rows_and_all, columns_that_arrive)
# parts along columns, while those of the other sum lie along rows
COLUMNS = {"out_0.sum": "kernel", "out_1.sum": "epilogue", "tile": "16x16x32/4w2s", "mover": "CommSms(2)"}
# parts rank by rank, while those of the other sum leave chunk by chunk
ROWS = {
    "y_parts.nest": "chunk by chunk",
    "y_parts.chunks": "2",
    "out_1_part_from_parts.nest": "rank by rank",
    "out_1_part_from_parts.chunks": "4",
    "out_1.algorithm": "two-shot",
    "out_1_part.sum": "epilogue",
    "out_0.sum": "kernel",
    "y.tile": "16x16x32/4w2s",
}


def host(schedule: Schedule) -> ComputeRole:
    """The role of the matmul."""
    (role,) = (kernel.compute for kernel in schedule.kernels() if kernel.compute and kernel.compute.name in ("y", "z"))
    return role


def reordered(schedule: Schedule, **order: str) -> Schedule:
    """The schedule with another order of the matmul's tiles."""
    role = host(schedule)
    other = replace(role, order=replace(role.order, **order))  # type: ignore[arg-type]
    launches = (
        replace(launch, compute=other) if isinstance(launch, Kernel) and launch.compute == role else launch
        for launch in schedule.launches
    )
    return replace(schedule, launches=tuple(launches))


def check_runs(schedule: Schedule) -> None:
    assert run_emulated(schedule, lowering.emit(schedule), calls=2).equal, str(schedule)


@pytest.mark.parametrize("transfer", ["push", pytest.param("pull", marks=pytest.mark.slow)])
def test_the_sum_along_columns_orders_segments_of_columns(transfer: str) -> None:
    schedule = rows_and_columns.plan("laptop-switch", 3, M=48, N=15, K=51, pin=COLUMNS | {"transfer": transfer})
    order = host(schedule).order
    assert (order.major, order.minor, order.ranks.first) == ("n", "m", 1)
    check_runs(schedule)


def test_its_chunks_order_the_tiles() -> None:
    schedule = rows_and_all.plan("laptop-mesh", 2, M=128, N=16, K=32, pin=ROWS)
    assert host(schedule).order.nest is Nest.RANK_MAJOR
    check_runs(schedule)


def test_in_another_order_it_hangs() -> None:
    """The proof is not too strict: own tiles that come before tiles of the same program for which peers wait."""
    schedule = rows_and_columns.plan("laptop-switch", 3, M=48, N=15, K=51, pin=COLUMNS | {"transfer": "push"})
    wrong = reordered(schedule, major="m", minor="n")
    assert BugClass.CIRCLE in {finding.bug for finding in verify(wrong).findings}
    with pytest.raises(Deadlock):
        run_emulated(wrong, lowering.emit(wrong), calls=1)


@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, 12))])
@pytest.mark.slow
def test_schedules_of_the_space(block: int) -> None:
    for seed in range(20 * block, 20 * block + 20):
        rng = random.Random(seed)
        num_ranks, operator = rng.choice((2, 3, 4)), rng.choice(OPERATORS)
        sizes = {name: num_ranks * rng.choice((3, 16, 17, 20, 64)) for name in operator.spec.symbols()}
        topology = topologies.load(rng.choice(("laptop-switch", "laptop-mesh")), num_ranks)
        schedule = sample_schedule(bind(operator.spec, sizes, num_ranks, "bf16"), topology, rng)
        proof = verify(schedule)
        assert proof.proved, f"seed {seed}\n{schedule}\n{chr(10).join(proof.lines())}"
        if seed % 20 == 0:
            check_runs(schedule)
