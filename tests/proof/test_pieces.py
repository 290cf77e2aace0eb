"""Tiles in whose epilogue sums are added in pieces: what is cut in halves may be no product, but what is loaded."""

from __future__ import annotations

from dataclasses import replace

import lowering
import tilelink
import topologies
from tests.proof.planted import refuted
from tilelink import Partial, Tensor, dims
from tilelink.elaborate.schedule import elaborated
from tilelink.proof.verify import verify
from tilelink.runtime.run import run_emulated
from tilelink.schedule.steps import Compute, Step
from tilelink.schedule.walk import all_steps

M, N = dims("M N")
PINS = {"sum": "epilogue", "shots": "2", "protocol": "simple", "mover": "CopyEngine()", "mul_out.tile": "32x128x0/8w1s"}


@tilelink.overlap
def half(x: Tensor(M, N, placement=Partial())) -> Tensor:  # type: ignore[valid-type]
    return tilelink.all_reduce(x * 0.5)


SCHEDULE = half.plan_for(topologies.load("laptop-switch", 4), {"M": 24, "N": 96}, "fp32", PINS)


def test_pieces_of_what_is_loaded() -> None:
    assert any(isinstance(step, Compute) and step.op == "halves" for step in all_steps(elaborated(SCHEDULE)))
    assert verify(SCHEDULE).proved
    assert run_emulated(SCHEDULE, lowering.emit(SCHEDULE), calls=2).equal


def test_pieces_in_another_order_are_refuted() -> None:
    def turned(step: Step) -> tuple[Step, ...]:
        if isinstance(step, Compute) and step.op == "halves":
            return (replace(step, results=step.results[::-1]),)
        return (step,)

    assert refuted(SCHEDULE, turned)
