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
from tilelink.errors import NoLegalSchedule
from tilelink.ir.nodes import ComputeRole, Kernel
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import IfOwn
from tilelink.proof.verify import verify

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


def test_the_proof_refutes_halves_that_branch() -> None:
    """Own tiles may have a loop of their own, in which there are no halves."""
    pins = {
        "algorithm": "direct",
        "compute": "triton",
        "tile": "16x32x16/4w2s",
        "mover": "CopyEngine()",
        "sum": "epilogue",
    }
    sizes = {"M": 64, "K": 64, "N": 128}
    good = load("03_gemm_rs.py:gemm_rs").plan_for(topologies.load("laptop-switch", 2), sizes, "bf16", pins)
    (kernel,) = good.kernels()
    assert kernel.compute is not None
    branch = kernel.compute.body[-1]
    assert isinstance(branch, IfOwn)
    role = replace(kernel.compute, halved=1, body=(*kernel.compute.body[:-1], replace(branch, others=())))
    launches = tuple(replace(kernel, compute=role) if launch == kernel else launch for launch in good.launches)
    found = verify(replace(good, launches=launches)).findings
    assert any("tiles are halved, and wait as whole ones" in finding.fact for finding in found), found


@pytest.mark.parametrize(
    ("name", "halved", "fact"),
    [("03_gemm_rs.py:gemm_rs", 1, "halved, and count as whole ones"), ("02_ag_gemm.py:ag_gemm", 99, "99 of")],
)
def test_the_proof_refutes_halves_that_are_none(name: str, halved: int, fact: str) -> None:
    pins = {"algorithm": "direct", "compute": "triton", "tile": "16x32x16/4w2s", "mover": "CopyEngine()"}
    sizes = {"M": 64, "K": 64, "N": 128}
    good = load(name).plan_for(topologies.load("laptop-switch", 2), sizes, "bf16", pins)
    launches = tuple(
        replace(launch, compute=replace(launch.compute, halved=halved))
        if isinstance(launch, Kernel) and launch.compute is not None
        else launch
        for launch in good.launches
    )
    found = verify(replace(good, launches=launches)).findings
    assert any(fact in finding.fact for finding in found), found


def test_the_proof_refutes_halves_that_are_too_narrow_for_a_matmul() -> None:
    good = AG_GEMM.plan_for(
        topologies.load("laptop-switch", 2),
        {"M": 32, "K": 64, "N": 320},
        "bf16",
        {**HALVES, "tile": "16x16x16/4w2s", "tail": "whole"},
    )
    role = role_of(good)
    halved = role.num_tiles % role.programs
    launches = tuple(
        replace(launch, compute=replace(role, halved=halved)) if isinstance(launch, Kernel) else launch
        for launch in good.launches
    )
    assert halved and verify(good).proved
    found = verify(replace(good, launches=launches)).findings
    (finding,) = found
    assert finding.fact.startswith("tiles are halved to 8 columns, and matmuls need at least 16")
