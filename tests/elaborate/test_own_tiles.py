"""Own tiles that add parts slice by slice, and the order in which parts are added."""

from __future__ import annotations

import pytest

import topologies
from tests.elaborate.test_meaning import wrong_outputs
from tests.pipeline.workloads import load
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.schedule import Schedule
from tilelink.proof.happens_before.check import checked
from tilelink.schedule.index import names_in
from tilelink.schedule.steps import Compute, For, Load, Store, Wait
from tilelink.schedule.walk import all_steps

EPILOGUE = {"algorithm": "direct", "compute": "triton", "tile": "16x128x16/4w2s", "sum": "epilogue"}
MOVERS = {
    "fused": {"mover": "Fused()", "transfer": "push"},
    "copies, chunk by chunk": {"mover": "CopyEngine()", "transfer": "push", "chunks": "2", "prefetch": "no"},
    "copies, own tiles apart": {"mover": "CopyEngine()", "transfer": "push", "prefetch": "yes"},
    "SMs pull": {"mover": "CommSms(2)", "transfer": "pull"},
}


def planned(workload: str, sizes: dict[str, int], pins: dict[str, str], ranks: int = 2) -> Schedule:
    name = f"{workload}.py:{workload[3:]}"
    return load(name).plan_for(topologies.load("h200-nvswitch", ranks), sizes, "bf16", pins)


@pytest.mark.parametrize("cols", [256, 200])
@pytest.mark.parametrize("mover", MOVERS)
@pytest.mark.quick(1)
def test_slices_add_up_to_the_tile(mover: str, cols: int) -> None:
    sizes = {"M": 64, "K": 32, "N": cols}
    if cols % 128 and mover.startswith("copies"):
        sizes["M"] = 60
    schedule = planned("03_gemm_rs", sizes, EPILOGUE | MOVERS[mover])
    steps = elaborated(schedule)
    halved = [step.results for step in all_steps(steps) if isinstance(step, Compute) and step.op == "halves"]
    assert halved == [("y_0_64", "y_64_128")]
    stores = [step.region for step in all_steps(steps) if isinstance(step, Store) and step.region.buffer == "out"]
    assert len(stores) == 2
    assert wrong_outputs(schedule, 2, seed=1) == []
    assert checked(steps).refutation is None


def test_all_waits_come_in_front_of_all_slices() -> None:
    """A slice that waits would hold registers of the others meanwhile."""
    steps = elaborated(planned("03_gemm_rs", {"M": 64, "K": 32, "N": 256}, EPILOGUE | MOVERS["fused"]))
    of_parts = [
        isinstance(step, Wait)
        for step in all_steps(steps)
        if (isinstance(step, Wait) and step.signal == "y_parts_arrived")
        or (isinstance(step, Load) and step.region.buffer == "y_parts")
    ]
    assert of_parts == [True, False, False]


@pytest.mark.parametrize(("workload", "alone"), [("03_gemm_rs", True), ("04_gemm_ar", False)])
def test_results_of_all_ranks_are_added_in_one_order(workload: str, alone: bool) -> None:
    """A sum that every rank makes for itself begins with the same part on all of them, so that their bits agree; a sum that one
    rank makes begins with its own part."""
    pins = {"algorithm": "direct" if alone else "one-shot", "compute": "triton", "mover": "CopyEngine()"}
    pins |= {"sum": "kernel"} if alone else {}
    steps = elaborated(planned(workload, {"M": 48, "K": 96, "N": 64}, pins, 3))
    loops = [step for step in all_steps(steps) if isinstance(step, For) and step.variable == "step"]
    adding = [step for step in loops if any(isinstance(one, Compute) and one.op == "add" for one in step.body)]
    orders = [index for step in adding for _, index in step.let]
    assert len(orders) == 1
    assert ("rank" in names_in(orders[0])) is alone
