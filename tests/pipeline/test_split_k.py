"""Tiles of the last round whose reductions several programs share: which they are, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import lowering
import topologies
from tests.pipeline.expert_specs import SPECS
from tests.pipeline.feature import COPIES
from tests.pipeline.features import of
from tests.pipeline.features import planned as row
from tests.pipeline.operators import AG_GEMM, GEMM_RS, MLP
from tests.pipeline.test_emitted import compiles
from tilelink.declaration import Overlap
from tilelink.errors import NoLegalSchedule
from tilelink.ir.nodes import ComputeRole
from tilelink.ir.schedule import Schedule
from tilelink.runtime.emulated import EmulatedRun

PUSHED = {**COPIES, "transfer": "push"}
SPLIT = {"algorithm": "direct", "compute": "triton", "tile": "16x16x16/4w2s", "tail": "split-k"}


def role_of(schedule: Schedule) -> ComputeRole:
    return next(one.compute for one in schedule.kernels() if one.compute is not None and one.compute.split)


@pytest.mark.parametrize("name", of("split k"))
def test_they_are_those_of_the_last_round(name: str) -> None:
    role = role_of(row(f"split k: {name}"))
    assert 0 < role.split == role.num_tiles % role.programs
    rounds = -(-role.split * role.splits // role.programs)
    assert role.splits >= 2 and rounds < role.splits  # sooner than whole tiles
    assert role.whole % role.programs == 0


def outputs(schedule: Schedule, order: int) -> list[torch.Tensor]:
    """Of all ranks, of two calls with the same inputs, in an order of programs that a seed draws."""
    run = EmulatedRun(schedule, lowering.emit(schedule), seed=order)
    run._seed = 0  # of the inputs
    for _ in range(2):
        run.call()
    run.finish()
    return [one for _, results in run.calls for found in results for one in found]


@pytest.mark.slow
def test_it_does_not_matter_which_program_ends_first() -> None:
    schedule = row("split k: beside programs that communicate")
    first, *others = (outputs(schedule, order) for order in range(6))
    assert all(torch.equal(*both) for other in others for both in zip(first, other, strict=True))


REFUSED: dict[str, tuple[Overlap, dict[str, int], dict[str, Any], str]] = {
    "no tile is left": (AG_GEMM, {"M": 32, "K": 64, "N": 256}, PUSHED, "0 tiles of out are left for 8 programs"),
    "too many tiles are left": (AG_GEMM, {"M": 32, "K": 64, "N": 240}, PUSHED, "would take as long as whole"),
    "one step along k": (AG_GEMM, {"M": 32, "K": 16, "N": 320}, {}, "have 1 steps along k"),
    "two matmuls in a loop": (
        MLP,
        {"M": 64, "H": 64, "F": 160},
        {"up.loop": "shared"},
        "they are not those of one matmul",
    ),
    "sums in the epilogue": (
        GEMM_RS,
        {"M": 64, "K": 64, "N": 80},
        {"sum": "epilogue"},
        "they add what others have made",
    ),
    "tiles in ping-pong": (
        GEMM_RS,
        {"M": 512, "K": 192, "N": 256},
        {"tile": "64x64x16/4w2s2g"},
        "cannot be computed by warpgroups in turns",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_pins_that_cannot_be_are_refused(case: str) -> None:
    spec, sizes, pins, reason = REFUSED[case]
    with pytest.raises(NoLegalSchedule, match=reason):
        spec.plan_for(topologies.load("laptop-switch", 2), sizes, "bf16", {**SPLIT, **pins})


def test_matmuls_of_experts_have_no_last_round_that_is_known() -> None:
    """So there is no such choice."""
    schedule = SPECS["ag_moe"].plan_for(
        topologies.load("laptop-switch", 2), {"T": 24, "H": 48, "F": 96, "E": 6, "K": 3}, "bf16", {}
    )
    assert not any(name.endswith(".tail") for name, _ in schedule.choices)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["triton", "triton-distributed"])
def test_a_real_size_compiles(target: str) -> None:
    """160 tiles of 128 x 256 for 132 SMs are one round and 28 tiles, which four programs share each."""
    sizes = {"M": 1024, "K": 27648, "N": 5120}
    pins = {"y.tile": "128x256x64/8w3s", "y.tail": "split-k", "y.compute": "triton", "out.sum": "kernel"}
    schedule = GEMM_RS.plan_for(topologies.load("h100-nvswitch", 4), sizes, "bf16", pins)
    assert (role_of(schedule).split, role_of(schedule).splits) == (28, 4)
    compiles(lowering.emit(schedule, target), "h100-nvswitch", "sm_90")
