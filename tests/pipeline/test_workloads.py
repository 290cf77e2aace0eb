"""Every workload with every mover and transfer, all dtypes, 2, 3, 4 and 8 ranks, on a switch and on a mesh."""

from __future__ import annotations

from dataclasses import replace

import pytest

import lowering
import topologies
from tests.pipeline.workloads import SIZES, has, load, overlapping, sizes, space
from tilelink.errors import IllegalPin, NoLegalSchedule
from tilelink.ir.steps import IfOwn
from tilelink.runtime.run import run_emulated

PINS = {
    "planned": {},
    "copy engine push": {"mover": "CopyEngine()", "transfer": "push"},
    "copy engine pull": {"mover": "CopyEngine()", "transfer": "pull"},
    "SMs push": {"mover": "CommSms(2)", "transfer": "push"},
    "SMs pull": {"mover": "CommSms(2)", "transfer": "pull"},
    "fused push": {"mover": "Fused()", "transfer": "push"},
    "fused pull": {"mover": "Fused()", "transfer": "pull"},
    "library": {"mover": "Library()"},
    "library everywhere": {"mover": "Library()", "compute": "library"},
}


def check(name: str, topology: str, num_ranks: int, dtype: str, pins: dict[str, str], calls: int = 2) -> None:
    schedule = load(name).plan_for(_machine(topology, num_ranks), sizes(name, num_ranks), dtype, dict(pins))
    result = run_emulated(schedule, lowering.emit(schedule), calls=calls, seed=num_ranks)
    assert result.equal, f"{result.lines()}\n{schedule}"


def refused(name: str, pins: dict[str, str]) -> None:
    with pytest.raises(IllegalPin) as caught:
        load(name).plan_for(_machine("laptop-switch", 2), sizes(name, 2), "bf16", pins)
    assert caught.value.facts["value"] not in space(name).get(str(caught.value.facts["name"]), frozenset())


def _machine(name: str, num_ranks: int):  # type: ignore[no-untyped-def]
    return topologies.load(name, num_ranks)


QUICK = [pytest.param(name, marks=[pytest.mark.slow] if "mlp" in name else []) for name in SIZES]


@pytest.mark.parametrize("topology", ["laptop-mesh", pytest.param("laptop-switch", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", QUICK)
@pytest.mark.quick(1)
def test_planned(name: str, topology: str) -> None:
    check(name, topology, 4, "bf16", {}, calls=3)


@pytest.mark.slow
@pytest.mark.parametrize("mover", ["CopyEngine()", "CommSms(2)"])
@pytest.mark.parametrize("name", SIZES)
def test_overlapped(name: str, mover: str) -> None:
    """At sizes this small the library wins: have something to overlap all the same."""
    pins = overlapping(name, mover=mover)
    if has(name, pins):
        check(name, "laptop-switch", 4, "bf16", pins, calls=3)
    else:
        refused(name, pins)


def in_turns(*num_ranks: int) -> list[tuple[str, str, int]]:
    """Every workload with every kind of pins, on so many ranks in turn: neighbours of a row or column differ in them."""
    cells = [(row, column, name, label) for row, name in enumerate(SIZES) for column, label in enumerate(PINS)]
    return [(name, label, num_ranks[(row + column) % len(num_ranks)]) for row, column, name, label in cells]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "label", "num_ranks"), in_turns(2, 3))
def test_every_mover(name: str, label: str, num_ranks: int) -> None:
    pins = dict(PINS[label])
    if "transfer" in pins and "protocol" in space(name):
        pins["protocol"] = "simple"
    if not has(name, pins):
        refused(name, pins)
        return
    try:
        check(name, "laptop-switch" if num_ranks == 2 else "laptop-mesh", num_ranks, "bf16", pins)
    except NoLegalSchedule as error:
        # pushing from tiles needs tiles that make the source, pulling into them tiles that read the parts one by one
        assert label in ("fused push", "fused pull"), error


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
@pytest.mark.parametrize("name", SIZES)
def test_dtypes(name: str, dtype: str) -> None:
    check(name, "laptop-switch", 4, dtype, {})


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_eight_ranks(name: str) -> None:
    check(name, "laptop-mesh", 8, "bf16", {})


@pytest.mark.slow
@pytest.mark.parametrize("chunks", [1, 2, 3, 5])
@pytest.mark.parametrize("nest", ["rank by rank", "chunk by chunk"])
def test_chunks_that_tiles_straddle(chunks: int, nest: str) -> None:
    pins = {"algorithm": "direct", "chunks": str(chunks), "nest": nest, "tile": "16x16x16/4w2s"}
    check("02_ag_gemm.py:ag_gemm", "laptop-switch", 3, "bf16", {**pins, "mover": "CommSms(2)"})
    check("03_gemm_rs.py:gemm_rs", "laptop-switch", 3, "bf16", {**pins, "mover": "CopyEngine()", "sum": "kernel"})


ADDED = {"y_parts.mover": "CopyEngine()", "y_parts.transfer": "push", "sum": "epilogue", "y.compute": "triton"}
GATHERED = {
    "algorithm": "two-shot",
    "out_whole.mover": "CopyEngine()",
    "out_whole.transfer": "push",
    "out_whole.nest": "chunk by chunk",
    "out_whole.chunks": "2",
}


@pytest.mark.parametrize(
    ("name", "pins", "prefetch", "late", "slices"),
    [
        ("03_gemm_rs.py:gemm_rs", {"y.tile": "32x128x32/4w2s", "y_parts.nest": "rank by rank"}, True, False, 2),
        pytest.param(
            *("03_gemm_rs.py:gemm_rs", {"y.tile": "16x64x32/4w2s2p", "y_parts.nest": "rank by rank"}, True, False, 1),
            marks=pytest.mark.slow,
        ),
        ("03_gemm_rs.py:gemm_rs", {"y.tile": "32x256x32/4w2s", "y_parts.nest": "chunk by chunk"}, False, True, 4),
        (
            "04_gemm_ar.py:gemm_ar",
            {**GATHERED, "y.tile": "32x128x32/4w2s", "y_parts.nest": "chunk by chunk"},
            False,
            True,
            2,
        ),
    ],
)
@pytest.mark.quick(1)
def test_own_tiles(name: str, pins: dict[str, str], prefetch: bool, late: bool, slices: int) -> None:
    """Own tiles in a loop of their own, a round late, and in slices of columns."""
    machine = topologies.load("h200-nvswitch", 4)
    machine = replace(machine, gpu=replace(machine.gpu, num_sms=6))
    bound = {"M": 512, "K": 128, "N": 256}
    schedule = load(name).plan_for(machine, bound, "bf16", {**ADDED, **pins, "y_parts.chunks": "2"})
    (role,) = (k.compute for k in schedule.kernels() if k.compute is not None and k.compute.name == "y")
    branch = role.body[-1]
    assert isinstance(branch, IfOwn)
    assert (role.prefetch, role.order.late, branch.slices) == (prefetch, late, slices)
    result = run_emulated(schedule, lowering.emit(schedule), calls=3, seed=4)
    assert result.equal, f"{result.lines()}\n{schedule}"
