"""Overlap changes when tiles are computed, never what they are: bit by bit the results of the loop without communication."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import lowering
import topologies
from tests.planner.operators import ag_gemm
from tilelink.emulator import World
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.reference import make_inputs

RANKS = 4
SIZES = {"M": 256, "K": 128, "N": 256}
TILE = {"compute": "triton", "tile": "32x32x32/4w2s"}


def results(pins: dict[str, str]) -> list[torch.Tensor]:
    machine = topologies.load("h200-nvswitch", RANKS)
    machine = replace(machine, gpu=replace(machine.gpu, num_sms=12))
    schedule = ag_gemm.plan_for(machine, SIZES, "bf16", {**TILE, **pins})
    build = operator_class(load_source(lowering.emit(schedule), "same_bits"))
    world = World(RANKS, num_sms=12, seed=3)
    operators = [build(fabric) for fabric in world.fabrics]
    inputs = make_inputs(schedule.spec, 5)
    outputs = [operator(*parts.values()) for operator, parts in zip(operators, inputs, strict=True)]
    world.run()
    return outputs


@pytest.mark.parametrize("mover", ["CopyEngine()", "CommSms(2)"])
@pytest.mark.parametrize("chunks", [pytest.param("1", marks=pytest.mark.slow), "2"])
def test_ag_gemm(mover: str, chunks: str) -> None:
    alone = results({"algorithm": "library"})
    overlapped = results({"algorithm": "direct", "mover": mover, "transfer": "push", "chunks": chunks})
    assert all(torch.equal(one, other) for one, other in zip(alone, overlapped, strict=True))
