"""A stream of copies for each peer, or one for all: the SMs that they hold, and where there are none."""

from __future__ import annotations

import pytest

import lowering
import topologies
from tests.pipeline.operators import AG_GEMM, GEMM_RS
from tilelink.errors import IllegalPin, NoLegalSchedule
from tilelink.ir.nodes import Kernel
from tilelink.runtime.load import load_source, operator_class

COPIES = {"mover": "CopyEngine()", "streams": "peer", "chunks": "2"}


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
