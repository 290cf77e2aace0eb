"""Random graphs, random sizes, 2, 3, 4 and 8 ranks, random schedules of the space: all equal to the torch reference."""

from __future__ import annotations

import random

import pytest

import lowering
import topologies
from tests.pipeline.random_specs import random_spec
from tilelink.planner.sample import sample_schedule
from tilelink.runtime.run import run_emulated


def check(seed: int, ranks: tuple[int, ...]) -> None:
    rng = random.Random(seed)
    num_ranks = rng.choice(ranks)
    spec = random_spec(rng, num_ranks)
    topology = topologies.load(rng.choice(("laptop-switch", "laptop-mesh")), num_ranks)
    schedule = sample_schedule(spec, topology, rng)
    result = run_emulated(schedule, lowering.emit(schedule), calls=2, seed=seed)
    assert result.equal, f"seed {seed}: {result.lines()}\n{schedule}"


@pytest.mark.parametrize("seed", [*range(16), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(16, 24))])
@pytest.mark.quick(4)
def test_some_schedules(seed: int) -> None:
    check(seed, (2, 3, 4))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_many_schedules(block: int) -> None:
    for seed in range(1000 + 20 * block, 1020 + 20 * block):
        check(seed, (2, 3, 4))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5000, 5012))
def test_eight_ranks(seed: int) -> None:
    check(seed, (8,))
