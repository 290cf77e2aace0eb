"""Programs of one kernel that go on with the next one: what that saves, and where they may not."""

from __future__ import annotations

from dataclasses import replace

import pytest

import lowering
from tests.pipeline.features import of, planned
from tilelink.ir.nodes import Kernel
from tilelink.ir.steps import Wait

TWO_SHOT = {"algorithm": "two-shot", "out_whole.mover": "Fused()", "out_whole.transfer": "push"}
TRITON = {"y.compute": "triton", "y.tile": "16x32x16/4w2s", "out.tile": "16x16x0/4w1s"}


def test_one_launch_less() -> None:
    schedule = planned("joined: after tiles that store everywhere", 4)
    apart = replace(
        schedule, launches=tuple(replace(x, joined=False) if isinstance(x, Kernel) else x for x in schedule.launches)
    )
    one, two = lowering.emit(schedule), lowering.emit(apart)
    assert one.count("main.launch(") == two.count("main.launch(") - 1
    assert "def out_kernel(" in two
    assert "def out_kernel(" not in one
    assert str(schedule).count(" tiles:") == 2 and "out_kernel" not in str(schedule)


def test_the_own_part_is_awaited_where_programs_of_the_launch_make_it() -> None:
    schedule = planned("joined: after tiles that store everywhere")
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
    schedule = replace(of("joined")["in chunks"], pins={**TWO_SHOT, **pins}).plan()
    assert not any(kernel.joined for kernel in schedule.kernels())
