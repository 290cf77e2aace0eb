"""A layer of experts whose rows return gives the same bits on any number of ranks, and where one rank has all experts."""

from __future__ import annotations

import pytest
import torch

import lowering
import topologies
from tests.pipeline.expert_specs import SPECS, alone
from tilelink.declaration import Overlap
from tilelink.runtime.emulated import EmulatedRun

SIZES = {"T": 48, "H": 64, "F": 80, "E": 8, "K": 3}
TILES = {"h.tile": "16x32x16/4w2s", "grouped_matmul_out_3.tile": "16x32x16/4w2s"}
CALLS = 6  # each has ids of another kind


def results(operator: Overlap, ranks: int, pins: dict[str, object]) -> list[torch.Tensor]:
    """Of each call, for all tokens."""
    schedule = operator.plan_for(topologies.load("laptop-switch", ranks), SIZES, "bf16", pins)
    run = EmulatedRun(schedule, lowering.emit(schedule), seed=5)
    for _ in range(CALLS):
        run.call()
    run.finish()
    whole = operator is alone
    return [torch.cat([found for (found,) in outputs[: 1 if whole else None]]) for _, outputs in run.calls]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("transfer", ["push", "pull"])
def test_the_number_of_ranks_does_not_show(transfer: str, ranks: int) -> None:
    wanted = results(alone, 2, {**TILES})
    found = results(SPECS["ep_layer"], ranks, {**TILES, "out.adder": "receiver", "out_rows.transfer": transfer})
    assert all(one.abs().sum() > 0 for one in wanted[:2])
    assert [torch.equal(*both) for both in zip(found, wanted, strict=True)] == [True] * CALLS


def test_it_shows_where_sums_travel() -> None:
    """So that the test above can fail."""
    wanted = results(alone, 2, {**TILES})
    found = results(SPECS["ep_layer"], 4, {**TILES, "out.adder": "sender"})
    assert not all(torch.equal(*both) for both in zip(found, wanted, strict=True))
