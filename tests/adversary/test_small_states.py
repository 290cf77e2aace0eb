"""`verify` has a small form of each schedule that merges states: it keeps the packets, folds and whether tokens are ragged."""

from __future__ import annotations

import random

import pytest

import lowering
import topologies
from tests.pipeline.workloads import load
from tilelink.adversary.small import small_form
from tilelink.adversary.subject import of_schedule
from tilelink.adversary.trials import Scenario, Trial, run_trial
from tilelink.ir.calls import StateMerge
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import bind
from tilelink.planner.sample import sample_schedule

DECODE = {"B": 4, "S": 8192, "Q": 32, "G": 4, "D": 128}
PROJECTED = DECODE | {"H": 4096}
GIVEN = {"B": 8, "Q": 32, "D": 128}
SPECS = {"flash_decode": DECODE, "decode_and_keep": DECODE, "decode_and_project": PROJECTED, "merge": GIVEN}


def merge_of(schedule: Schedule) -> StateMerge:
    (found,) = (one for one in schedule.launches if isinstance(one, StateMerge))
    return found


def check(name: str, seed: int) -> None:
    rng = random.Random(seed)
    operator, topology = load(f"12_flash_decode.py:{name}"), topologies.load("h200-nvswitch", rng.choice((2, 4)))
    sizes = SPECS[name]
    if "S" in sizes and rng.random() < 0.5:  # tokens that are no whole tiles
        sizes = sizes | {"S": topology.num_ranks * rng.randint(700, 900)}
    schedule = sample_schedule(bind(operator.spec, sizes, topology.num_ranks, "bf16"), topology, rng)
    small = small_form(operator.spec, schedule, topology)
    assert [type(launch) for launch in small.launches] == [type(launch) for launch in schedule.launches]
    one, other = merge_of(small), merge_of(schedule)
    assert (one.protocol, one.how.dim, one.how.logs) == (other.protocol, other.how.dim, other.how.logs)
    assert (one.splits > 1) == (other.splits > 1)
    if one.how.keys:
        assert bool(one.how.tokens % one.block) == bool(other.how.tokens % other.block)
    outcome = run_trial(
        of_schedule(small, lowering.emit(small)), Trial(Scenario.REPLAYS, "producers-last", seed, calls=2)
    )
    assert outcome.error is None, f"{small}\n{outcome.error}"
    assert outcome.steps > 0 and outcome.difference is None


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.slow
def test_it_runs_right(name: str, seed: int) -> None:
    check(name, seed)
