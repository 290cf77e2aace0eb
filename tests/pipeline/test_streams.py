"""A stream of copies for each peer, or one for all: the same results, and what the cost model makes of it."""

from __future__ import annotations

import pytest

import lowering
import topologies
from tests.pipeline.workloads import STOCK_FIRST, load
from tilelink.declaration import Overlap
from tilelink.errors import IllegalPin, NoLegalSchedule
from tilelink.ir.nodes import CopyProgram, Kernel
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.run import run_emulated

AG_GEMM, GEMM_RS = load("02_ag_gemm.py:ag_gemm"), load("03_gemm_rs.py:gemm_rs")
GEMM_AR, MLP = load("04_gemm_ar.py:gemm_ar"), load("05_mlp.py:mlp")
COPIES = {"mover": "CopyEngine()", "streams": "peer", "chunks": "2"}
CASES: dict[str, tuple[Overlap, dict[str, int], dict[str, str]]] = {
    "tiles feed copies": (GEMM_RS, {"M": 64, "K": 64, "N": 64}, {"compute": "triton"}),
    "copies feed tiles": (AG_GEMM, {"M": 64, "K": 64, "N": 64}, {"compute": "triton"}),
    "rank by rank": (GEMM_RS, {"M": 64, "K": 64, "N": 64}, {"compute": "triton", "nest": "rank by rank"}),
    "pulls": (GEMM_RS, {"M": 64, "K": 64, "N": 64}, {"transfer": "pull"}),
    "the library in pieces": (GEMM_RS, {"M": 64, "K": 64, "N": 64}, {"compute": "library"}),
    "both halves of an all_reduce": (
        GEMM_AR,
        {"M": 64, "K": 64, "N": 64},
        {"algorithm": "in-place", "outputs": "reused", "compute": "triton"},
    ),
    "two exchanges": (MLP, {"M": 64, "H": 64, "F": 64}, {"algorithm": "direct", "compute": "triton"}),
}


@pytest.mark.parametrize("target", STOCK_FIRST)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.quick(2)
def test_a_stream_for_each_peer(name: str, target: str) -> None:
    operator, sizes, pins = CASES[name]
    schedule = operator.plan_for(topologies.load("laptop-switch", 4), sizes, "bf16", {**COPIES, **pins})
    copies = [launch for launch in schedule.launches if isinstance(launch, CopyProgram)]
    assert copies and all(launch.streams == 3 for launch in copies)
    assert run_emulated(schedule, lowering.emit(schedule, target), calls=4).equal


def test_streams_that_programs_hold_up_take_an_sm_each() -> None:
    """Streams of pulls wait for the number of a call, which only the device knows."""
    machine, sizes = topologies.load("laptop-switch", 4), {"M": 64, "K": 64, "N": 64}
    schedule = AG_GEMM.plan_for(machine, sizes, "bf16", {**COPIES, "compute": "triton", "transfer": "pull"})
    build = operator_class(load_source(lowering.emit(schedule), "pulls"))
    (kernel,) = (launch for launch in schedule.launches if isinstance(launch, Kernel))
    assert build.NUM_SMS == schedule.grid(kernel) + 3 <= schedule.machine.num_sms  # type: ignore[attr-defined]


def test_who_stores_has_no_streams() -> None:
    machine, sizes = topologies.load("laptop-switch", 4), {"M": 64, "K": 64, "N": 64}
    with pytest.raises(NoLegalSchedule):
        GEMM_RS.plan_for(machine, sizes, "bf16", {"mover": "Fused()", "streams": "peer"})
    with pytest.raises(IllegalPin, match="streams=many"):
        GEMM_RS.plan_for(machine, sizes, "bf16", {"streams": "many"})


def test_starts_hide_behind_other_streams() -> None:
    """Every chunk passes one port; what a stream needs to start a copy is under way meanwhile."""
    machine, sizes = topologies.load("h200-nvswitch", 4), {"M": 8192, "K": 11008, "N": 4096}
    pins = {"algorithm": "in-place", "outputs": "reused", "mover": "CopyEngine()", "chunks": "8"}
    one, each = (GEMM_AR.plan_for(machine, sizes, "bf16", {**pins, "streams": text}) for text in ("one", "peer"))
    assert each.predicted_us < 0.97 * one.predicted_us
