"""The small form of a schedule keeps its choices, and what divides what."""

from __future__ import annotations

import random

import pytest

import lowering
import topologies
from tests.pipeline.attention_specs import How, spec_of
from tests.pipeline.workloads import SIZES, load
from tilelink.adversary.small import small_form
from tilelink.adversary.subject import of_schedule
from tilelink.adversary.trials import Scenario, Trial, run_trial
from tilelink.ir.movers import CommSms
from tilelink.ir.nodes import Exchange
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import bind
from tilelink.planner.sample import sample_schedule

REAL = {"M": 8192, "K": 4096, "N": 14336, "H": 4096, "F": 14336, "B": 8 * 2025, "C": 128}
RAGGED = {"M": 8 * 129, "K": 8 * 69, "N": 8 * 101, "H": 8 * 69, "F": 8 * 101, "B": 8 * 101, "C": 72}


def sampled(seed: int) -> tuple[Schedule, Schedule]:
    rng = random.Random(seed)
    overlap = load(rng.choice(sorted(SIZES)))
    topology = topologies.load("h200-nvswitch", rng.choice((2, 4)))
    sizes = {name: rng.choice((REAL, RAGGED))[name] for name in overlap.spec.symbols()}
    schedule = sample_schedule(bind(overlap.spec, sizes, topology.num_ranks, "bf16"), topology, rng)
    return schedule, small_form(overlap.spec, schedule, topology)


def kinds(exchange: Exchange) -> tuple[object, ...]:
    mover = CommSms if isinstance(exchange.mover, CommSms) else exchange.mover
    return exchange.name, mover, exchange.transfer, exchange.order.nest, exchange.chunks > 1, exchange.own_copied


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.quick(8)
def test_structure_is_kept(seed: int) -> None:
    schedule, small = sampled(seed)
    assert [type(launch) for launch in small.launches] == [type(launch) for launch in schedule.launches]
    assert list(map(kinds, small.exchanges)) == list(map(kinds, schedule.exchanges))
    for one, other in zip(small.kernels(), schedule.kernels(), strict=True):
        assert one.compute is not None and other.compute is not None
        assert [type(step) for step in one.compute.body] == [type(step) for step in other.compute.body]
    assert all(kernel.programs <= 20 for kernel in small.kernels())


@pytest.mark.parametrize("seed", range(100, 104))
@pytest.mark.quick(2)
def test_it_runs_right(seed: int) -> None:
    _, small = sampled(seed)
    outcome = run_trial(
        of_schedule(small, lowering.emit(small)), Trial(Scenario.REPLAYS, "producers-last", seed, calls=2)
    )
    assert outcome.error is None, f"{small}\n{outcome.error}"
    assert outcome.steps > 0 and outcome.difference is None


@pytest.mark.quick(1)
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("pins", [{}, {"mover": "CopyEngine()"}, {"mover": "Library()", "compute": "library"}], ids=str)
@pytest.mark.parametrize("how", [How(), How(causal=True), How(causal=True, window=700)], ids=str)
def test_attention_has_whole_tiles_whoever_brings_its_keys(
    how: How, pins: dict[str, str], width: int, ranks: int
) -> None:
    if how.window and "compute" in pins:
        pytest.skip("the library has no windows")
    topology, spec = topologies.load("h200-nvswitch", ranks), spec_of("gathered", how)
    schedule = spec.plan_for(topology, {"B": 1, "S": 4096, "Q": 8, "G": 2, "D": width}, "bf16", pins)
    small = small_form(spec.spec, schedule, topology)
    assert [type(launch) for launch in small.launches] == [type(launch) for launch in schedule.launches]


@pytest.mark.slow
def test_slices_cut_in_the_same_proportion() -> None:
    """A size that only the bound of a slice has would be as large as what it cuts."""
    operator = load("../tests/mutation/fused_weight.py:uneven")
    topology = topologies.load("h200-nvswitch", 4)
    schedule = operator.plan_for(topology, {"M": 4096, "K": 4096, "N": 3072, "F": 1024})
    sizes = dict(small_form(operator.spec, schedule, topology).spec.sizes)
    assert sizes["F"] == sizes["N"] // 3
