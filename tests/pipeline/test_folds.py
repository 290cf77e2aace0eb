"""Folds of users over an axis that ranks share, or that a rank has: random ones against their definition, and what is refused."""

from __future__ import annotations

import random

import pytest
import torch

import topologies
from tests.pipeline.checked_calls import checked_calls
from tests.pipeline.fold_specs import Drawn, by_definition, drawn
from tilelink.errors import IllegalPin, NoLegalSchedule
from tilelink.ir.schedule import Schedule
from tilelink.planner.pins import checked_pins
from tilelink.planner.plan import plan_with
from tilelink.runtime.meaning import cut, whole_inputs

_MACHINES = ("laptop-mesh", "h100-nvswitch", "mi300x-full-mesh")


def scheduled(rng: random.Random, found: Drawn) -> Schedule:
    """With random tiles and splits, or as it is planned."""
    spec, out = found.spec, found.spec.outputs[0]
    machine = topologies.load(rng.choice(_MACHINES), spec.num_ranks)
    rows, block = (rng.choice([1, 2, 4, 8, 16]), rng.choice([8, 16, 32, 64]))
    pins: dict[str, object] = {f"{out}.fold": f"{rows}x{block}x1/{rng.choice([1, 4])}w{rng.choice([1, 3])}s"}
    pins[f"{out}.splits"] = str(rng.randint(1, 5))
    try:
        return plan_with(spec, machine, checked_pins(spec, machine, pins if rng.random() < 0.8 else {}))
    except (NoLegalSchedule, IllegalPin):
        return plan_with(spec, machine, {})


@pytest.mark.quick(8)
@pytest.mark.parametrize("seed", range(160))
def test_a_random_fold_computes_what_the_definition_says(seed: int) -> None:
    rng = random.Random(9000 + seed)
    found = drawn(rng, rng.choice([2, 2, 3, 3, 4, 8]))
    schedule, spec = scheduled(rng, found), found.spec
    for inputs, outputs in checked_calls(schedule, rng.choice(["triton", "triton-distributed"]), seed, 2):
        exact = by_definition(found.kind, whole_inputs(spec, inputs))
        for rank, results in enumerate(outputs):
            for name, one, result in zip(spec.outputs, exact, results, strict=True):
                part = cut(one, spec.value(name).placement, rank, spec.num_ranks)
                assert result.dtype == torch.float32
                assert torch.allclose(result.double(), part, rtol=1e-4, atol=1e-4), (found.kind, found.how)
