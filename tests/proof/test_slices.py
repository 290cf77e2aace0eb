"""Parts of a slice, gathered along the other dimension, are what is gathered: for tiles that need all of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

import lowering
import tilelink
import topologies
from tests.pipeline import user_ops
from tests.proof.planted import refuted
from tilelink import Shard, Tensor, dims
from tilelink.ir.schedule import Schedule
from tilelink.proof.verify import verify
from tilelink.runtime.run import run_emulated
from tilelink.schedule.steps import Load, Step, Store

M, K, N = dims("M K N")


@tilelink.overlap
def upper(x: Tensor(2 * M, K, placement=Shard(1)), w: Tensor(K, N)) -> Tensor:  # type: ignore[valid-type]
    return user_ops.OPS["squared_relu_matmul"](tilelink.all_gather(x[M:], dim=1), w)


def planned(pins: dict[str, str]) -> Schedule:
    return upper.plan_for(topologies.load("laptop-switch", 4), {"M": 24, "K": 32, "N": 24}, "fp32", pins)


@pytest.mark.parametrize("pins", [{}, {"algorithm": "ll"}, {"mover": "Library()"}, {"mover": "CopyEngine()"}], ids=str)
def test_whole_rows_of_a_slice(pins: dict[str, str]) -> None:
    """Every schedule of it had been refuted."""
    schedule = planned(pins)
    assert verify(schedule).proved
    assert run_emulated(schedule, lowering.emit(schedule), calls=2).equal


def test_other_rows_are_refuted() -> None:
    def one_row_up(step: Step) -> tuple[Step, ...]:
        if isinstance(step, Load) and step.region.buffer == "x":
            row, *rest = step.region.start
            return (replace(step, region=replace(step.region, start=(row - 1, *rest))),)
        return (step,)

    def one_part_on(step: Step) -> tuple[Step, ...]:
        if isinstance(step, Store) and len(step.region.start) == 3:
            part, *rest = step.region.start
            return (replace(step, region=replace(step.region, start=((part + 1) % 4, *rest))),)
        return (step,)

    assert refuted(planned({"algorithm": "ll"}), one_row_up)
    assert refuted(planned({"algorithm": "ll"}), one_part_on)
