"""Who ends a call beside copy engines: a program of the last kernel where copy streams can tell it, else a launch."""

from __future__ import annotations

import pytest

import lowering
import topologies
from tests.pipeline.workloads import load
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.nodes import CopyProgram, Finish
from tilelink.ir.schedule import Schedule
from tilelink.runtime.run import run_emulated

PUSHED = {"algorithm": "direct", "mover": "CopyEngine()", "transfer": "push", "chunks": "2"}
CASES = {  # name -> example, topology, pins, whether a program ends the call, streams that tell it
    "copies feed tiles": ("02_ag_gemm.py:ag_gemm", "laptop-switch", {"compute": "triton"}, True, 1),
    "tiles feed copies": ("03_gemm_rs.py:gemm_rs", "laptop-switch", {"compute": "triton", "sum": "kernel"}, True, 1),
    "the library is last": ("02_ag_gemm.py:ag_gemm", "laptop-switch", {"compute": "library"}, False, 0),
    "the library is first": ("03_gemm_rs.py:gemm_rs", "laptop-switch", {"compute": "library"}, True, 1),
    "streams cannot wait for words": (
        "02_ag_gemm.py:ag_gemm",
        "laptop-mesh",
        {"compute": "triton", "nest": "chunk by chunk"},
        False,
        0,
    ),
    "links without atomics": ("02_ag_gemm.py:ag_gemm", "l20-pcie", {"compute": "triton"}, False, 0),
}


def planned(example: str, topology: str, pins: dict[str, str]) -> Schedule:
    sizes = {"M": 128, "K": 64, "N": 64}
    return load(example).plan_for(topologies.load(topology, 2), sizes, "bf16", {**PUSHED, **pins})


@pytest.mark.parametrize("name", CASES)
def test_who_ends_the_call(name: str) -> None:
    example, topology, pins, within, streams = CASES[name]
    schedule = planned(example, topology, pins)
    finish = schedule.launches[-1]
    assert isinstance(finish, Finish)
    copies = [launch for launch in schedule.launches if isinstance(launch, CopyProgram)]
    assert copies
    assert finish.within is within
    assert sum(launch.streams for launch in copies if launch.tells_end) == streams
    assert any(signal.name == "copied" for signal in elaborated(schedule).signals) == (streams > 0)
    source = lowering.emit(schedule)
    assert ("(counts + COPIED" in source) is within
    assert run_emulated(schedule, source, calls=3).equal
