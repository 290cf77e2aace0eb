"""Tiles of the last round in halves: emulated for both targets, chosen where they help, refused where they cannot be."""

from __future__ import annotations

from dataclasses import replace

import pytest

import lowering
import topologies
from tests.pipeline.plain import plain
from tests.pipeline.workloads import STOCK_FIRST, load
from tilelink.elaborate.schedule import elaborated
from tilelink.errors import NoLegalSchedule
from tilelink.ir.nodes import ComputeRole, Kernel
from tilelink.ir.schedule import Schedule
from tilelink.planner.cost import predict_us
from tilelink.proof.verify import verify
from tilelink.runtime.run import run_emulated

AG_GEMM, MLP = load("02_ag_gemm.py:ag_gemm"), load("05_mlp.py:mlp")
HALVES = {"algorithm": "direct", "compute": "triton", "tile": "16x32x16/4w2s", "tail": "halves"}
# on 8 SMs, columns of one rank
CASES = {
    "behind whole tiles": ({"mover": "CopyEngine()", "transfer": "push"}, 160),
    "beside programs that communicate": ({"mover": "CommSms(2)", "transfer": "push"}, 128),
    "through pointers": ({"mover": "Fused()", "transfer": "pull", "prefetch": "no"}, 160),
    "ragged": ({"mover": "CopyEngine()", "transfer": "push"}, 136),
    "a half that is empty": ({"mover": "CopyEngine()", "transfer": "push", "tile": "16x64x16/4w2s"}, 264),
    "an empty half, through pointers": (
        {"mover": "Fused()", "transfer": "pull", "prefetch": "no", "tile": "16x64x16/4w2s"},
        288,
    ),
}


def planned(name: str, num_ranks: int = 2) -> Schedule:
    pins, columns = CASES[name]
    sizes = {"M": 16 * num_ranks, "K": 64, "N": columns * num_ranks}
    return AG_GEMM.plan_for(topologies.load("laptop-switch", num_ranks), sizes, "bf16", {**HALVES, **pins})


def role_of(schedule: Schedule) -> ComputeRole:
    role = schedule.kernels()[0].compute
    assert role is not None
    return role


@pytest.mark.parametrize("target", STOCK_FIRST)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.quick(2)
def test_they_compute_what_whole_tiles_would(name: str, target: str) -> None:
    schedule = planned(name)
    role = role_of(schedule)
    assert 0 < role.halved == role.num_tiles % role.programs and 2 * role.halved <= role.programs
    outcome = run_emulated(schedule, lowering.emit(schedule, target), calls=3)
    assert outcome.equal, f"{schedule}\n{outcome}"


@pytest.mark.slow
@pytest.mark.parametrize("columns", [160, pytest.param(272, id="a half that is empty")])
@pytest.mark.parametrize("target", STOCK_FIRST)
def test_of_two_matmuls_in_a_row(target: str, columns: int) -> None:
    """The second one loads what the first one made, by pointer."""
    pins = {"algorithm": "direct", "compute": "triton", "hidden.tile": "16x32x16/4w2s", "hidden.tail": "halves"}
    sizes = {"M": 64, "H": 64, "F": 2 * columns}
    schedule = MLP.plan_for(topologies.load("laptop-switch", 2), sizes, "bf16", pins)
    assert "hidden_desc_16x16.store(" in lowering.emit(schedule, target)
    assert run_emulated(schedule, lowering.emit(schedule, target), calls=2).equal


def test_each_program_takes_halves_in_turn() -> None:
    schedule = planned("behind whole tiles")
    role, text = role_of(schedule), plain(lowering.emit(schedule))
    assert f"for tile in tl.range(program, {role.whole}, {role.programs}, flatten=True):" in text
    assert f"for tile in tl.range(program, {2 * role.halved}, {role.programs}, flatten=True):" in text
    assert "TensorDescriptor.from_tensor(w, [16, 16])" in text
    assert f"{2 * role.halved} tiles, prefetched:  # the last tiles, in halves" in str(schedule)


def test_the_planner_takes_them_where_few_tiles_are_left() -> None:
    """448 tiles of 128 x 128 for 132 SMs: three rounds, and 52 tiles."""
    topology, sizes = topologies.load("h200-nvswitch", 4), {"M": 1024, "K": 8192, "N": 28672}
    schedule = AG_GEMM.plan_for(topology, sizes, "bf16", {})
    whole = AG_GEMM.plan_for(topology, sizes, "bf16", {"tail": "whole"})
    assert role_of(schedule).halved == 52 and role_of(whole).halved == 0
    assert predict_us(schedule, topology) < 0.97 * predict_us(whole, topology)


@pytest.mark.parametrize(
    ("columns", "pins", "reason"),
    [
        (96, {"mover": "CommSms(2)"}, "0 tiles of out are left for 6 programs"),
        (
            224,
            {"mover": "CopyEngine()", "transfer": "push"},
            "6 tiles of out are left for 8 programs: halves would not end sooner",
        ),
        (160, {"mover": "CopyEngine()", "tile": "16x16x16/4w2s"}, "they are not at least 32 elements wide"),
    ],
)
def test_pins_that_ask_for_no_gain_are_refused(columns: int, pins: dict[str, str], reason: str) -> None:
    sizes = {"M": 32, "K": 64, "N": columns * 2}
    with pytest.raises(NoLegalSchedule, match=reason):
        AG_GEMM.plan_for(topologies.load("laptop-switch", 2), sizes, "bf16", {**HALVES, **pins})


def test_tiles_that_are_counted_stay_whole() -> None:
    sizes = {"M": 64, "K": 64, "N": 160}
    with pytest.raises(NoLegalSchedule, match="tiles of y cannot be halved: they are counted"):
        load("03_gemm_rs.py:gemm_rs").plan_for(topologies.load("laptop-switch", 2), sizes, "bf16", HALVES)


@pytest.mark.parametrize("sums", [{"sum": "epilogue"}, {}], ids=["own tiles apart", "tiles that count"])
def test_tiles_that_cannot_be_halved_stay_whole(sums: dict[str, str]) -> None:
    """Whatever a planned schedule says: steps have no halves of tiles that are counted, or that wait for parts."""
    pins = {"algorithm": "direct", "compute": "triton", "tile": "16x32x16/4w2s", "mover": "CopyEngine()", **sums}
    sizes = {"M": 64, "K": 64, "N": 128}
    good = load("03_gemm_rs.py:gemm_rs").plan_for(topologies.load("laptop-switch", 2), sizes, "bf16", pins)
    other = with_halves(good, 1)
    assert other != good and elaborated(other) == elaborated(good)
    assert verify(other).proved


def test_more_halves_and_narrow_ones_are_right_too() -> None:
    good = AG_GEMM.plan_for(
        topologies.load("laptop-switch", 2),
        {"M": 32, "K": 64, "N": 320},
        "bf16",
        {**HALVES, "tile": "16x16x16/4w2s", "tail": "whole"},
    )
    other = with_halves(good, role_of(good).num_tiles // 2)
    assert elaborated(other) != elaborated(good)
    assert verify(other).proved
    assert run_emulated(other, lowering.emit(other), calls=3).equal


def with_halves(schedule: Schedule, halved: int) -> Schedule:
    launches = (
        replace(one, compute=replace(one.compute, halved=halved))
        if isinstance(one, Kernel) and one.compute is not None
        else one
        for one in schedule.launches
    )
    return replace(schedule, launches=tuple(launches))
