"""Programs of one kernel that go on with the next one: emulated, for both targets; and where they may not."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import pytest

import lowering
import tilelink
import topologies
from tests.pipeline.workloads import STOCK_FIRST, load
from tilelink import Shard, Tensor, dims
from tilelink.declaration import Overlap
from tilelink.ir.nodes import Kernel
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import Wait
from tilelink.runtime.run import run_emulated

M, N, K = dims("M N K")
GEMM_AR = load("04_gemm_ar.py:gemm_ar")
TWO_SHOT = {"algorithm": "two-shot", "out_whole.mover": "Fused()", "out_whole.transfer": "push"}
TRITON = {"y.compute": "triton", "y.tile": "16x32x16/4w2s", "out.tile": "16x16x0/4w1s"}


@tilelink.overlap
def folded(x: Annotated[Tensor, (M, K), Shard(1)], w: Annotated[Tensor, (K, N), Shard(0)]) -> Tensor:
    """Elementwise operations that fold into the copy."""
    y = tilelink.matmul(x, w)
    z = tilelink.all_reduce(y)
    return z * tilelink.relu(z)


SCHEDULES = {
    "after a sum of what the library made": {"y.compute": "library", "y_parts.mover": "Fused()"},
    "after tiles that add what copy engines bring": {
        **TRITON,
        "y_parts.mover": "CopyEngine()",
        "out_part.sum": "epilogue",
    },
    "after tiles that store everywhere": {**TRITON, "y_parts.mover": "Fused()", "out_part.sum": "epilogue"},
    "in chunks": {**TRITON, "y_parts.mover": "Fused()", "out_part.sum": "epilogue", "out_whole.chunks": "3"},
}


def planned(num_ranks: int, pins: dict[str, str], overlap: Overlap = GEMM_AR) -> Schedule:
    sizes = {"M": 40 * num_ranks, "K": 32 * num_ranks, "N": 64}
    return overlap.plan_for(topologies.load("laptop-switch", num_ranks), sizes, "bf16", pins)


def joined(schedule: Schedule) -> list[str]:
    return [kernel.name for kernel in schedule.kernels() if kernel.joined]


@pytest.mark.parametrize("target", STOCK_FIRST)
@pytest.mark.parametrize(
    "num_ranks", [2, pytest.param(3, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.quick(2)
def test_runs(name: str, num_ranks: int, target: str) -> None:
    schedule = planned(num_ranks, {**TWO_SHOT, **SCHEDULES[name]})
    assert joined(schedule) == ["out_kernel"]
    result = run_emulated(schedule, lowering.emit(schedule, target), calls=3, seed=num_ranks)
    assert result.equal, f"{result.lines()}\n{schedule}"


def test_one_launch_less() -> None:
    schedule = planned(4, {**TWO_SHOT, **SCHEDULES["after tiles that store everywhere"]})
    apart = replace(
        schedule, launches=tuple(replace(x, joined=False) if isinstance(x, Kernel) else x for x in schedule.launches)
    )
    one, two = lowering.emit(schedule), lowering.emit(apart)
    assert one.count("main.launch(") == two.count("main.launch(") - 1
    assert "def out_kernel(" in two
    assert "def out_kernel(" not in one
    assert str(schedule).count(" tiles:") == 2 and "out_kernel" not in str(schedule)


def test_the_own_part_is_awaited_where_programs_of_the_launch_make_it() -> None:
    schedule = planned(2, {**TWO_SHOT, **SCHEDULES["after tiles that store everywhere"]})
    (kernel,) = [kernel for kernel in schedule.kernels() if kernel.joined]
    assert kernel.compute is not None
    assert [step.own for step in kernel.compute.body if isinstance(step, Wait)] == [True]
    assert "wait out_whole_arrived[m_segment, chunk] >= call" in str(schedule)
    assert "if m_segment != rank" not in str(schedule)


@pytest.mark.parametrize(
    "pins",
    [
        {**TRITON, "y_parts.mover": "Fused()", "out_part.sum": "epilogue", "out.tile": "64x256x0/8w1s"},
        {**TRITON, "y_parts.mover": "CommSms(2)", "out_part.sum": "epilogue"},
        {**TRITON, "mover": "CopyEngine()", "out_whole.mover": "CopyEngine()", "out_part.sum": "epilogue"},
        {**TRITON, "y_parts.mover": "Fused()", "out_whole.transfer": "pull", "out_part.sum": "epilogue"},
    ],
    ids=["other warps", "beside communication", "copy engines bring the parts", "parts are pulled"],
)
def test_a_launch_of_its_own(pins: dict[str, str]) -> None:
    assert joined(planned(2, {**TWO_SHOT, **pins})) == []


@pytest.mark.parametrize("num_ranks", [2, 4])
@pytest.mark.quick(1)
def test_what_folds_into_the_copy_goes_on_too(num_ranks: int) -> None:
    pins = {"algorithm": "two-shot", "mover": "Fused()", "transfer": "push", "compute": "triton", "sum": "epilogue"}
    tiles = {"y.tile": "16x32x16/4w2s"}
    schedule = planned(num_ranks, {**pins, **tiles}, folded)
    result = run_emulated(schedule, lowering.emit(schedule), calls=2)
    assert result.equal, f"{result.lines()}\n{schedule}"
