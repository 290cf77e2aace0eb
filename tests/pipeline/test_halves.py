"""Tiles of the last round in halves: emulated for both targets, chosen where they help, refused where they cannot be."""

from __future__ import annotations

from dataclasses import replace

import pytest

import lowering
import topologies
from tests.pipeline.features import of
from tests.pipeline.features import planned as row
from tests.pipeline.operators import AG_GEMM
from tests.pipeline.plain import plain
from tests.pipeline.workloads import load
from tilelink.elaborate.schedule import elaborated
from tilelink.errors import NoLegalSchedule
from tilelink.ir.nodes import ComputeRole, Kernel
from tilelink.ir.schedule import Schedule
from tilelink.proof.verify import verify
from tilelink.runtime.run import run_emulated

HALVES = {"algorithm": "direct", "compute": "triton", "tile": "16x32x16/4w2s", "tail": "halves"}
CASES = of("halves")


def planned(name: str) -> Schedule:
    return row(f"halves: {name}")


def role_of(schedule: Schedule) -> ComputeRole:
    role = schedule.kernels()[0].compute
    assert role is not None
    return role


@pytest.mark.parametrize("name", [name for name in CASES if "two matmuls" not in name])
@pytest.mark.quick(2)
def test_they_are_those_of_the_last_round(name: str) -> None:
    role = role_of(planned(name))
    assert 0 < role.halved == role.num_tiles % role.programs and 2 * role.halved <= role.programs


def test_each_program_takes_halves_in_turn() -> None:
    schedule = planned("behind whole tiles")
    role, text = role_of(schedule), plain(lowering.emit(schedule))
    assert f"for tile in tl.range(program, {role.whole}, {role.programs}, flatten=True):" in text
    assert f"for tile in tl.range(program, {2 * role.halved}, {role.programs}, flatten=True):" in text
    assert "TensorDescriptor.from_tensor(w, [16, 16])" in text
    assert f"{2 * role.halved} tiles, prefetched:  # the last tiles, in halves" in str(schedule)


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


@pytest.mark.slow
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
