"""Why a schedule was chosen: families that lost are slower and planned by their pins, and a flip is one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

import topologies
from tests.pipeline.workloads import load
from tests.planner import grid
from tilelink.errors import UnknownPin
from tilelink.explanation import explanation_text
from tilelink.ir.spec import BoundSpec, bind
from tilelink.planner.choices import Pin, Pins, texts
from tilelink.planner.decisions import pins_of
from tilelink.planner.explain import Explanation, explain
from tilelink.planner.families import kind
from tilelink.planner.flips import NETWORK_RATES, RATES
from tilelink.planner.plan import plan
from topologies.topology import Topology

SIZES = {"M": 2048, "K": 4096, "N": 14336}
TOPOLOGY = topologies.load("h200-nvswitch", 4)


def bound(sizes: Mapping[str, int]) -> BoundSpec:
    return bind(grid.ag_gemm.spec, sizes, TOPOLOGY.num_ranks, "bf16")


def times(count: int) -> Callable[[], bool]:
    """True so many times."""
    left = iter(range(count))
    return lambda: next(left, None) is not None


def explained(pins: Mapping[str, object], searches: int, most: int = 100) -> Explanation:
    return explain(bound, SIZES, TOPOLOGY, pins, most, times(searches))


def kinds(pins: Pins) -> dict[Pin, object]:
    return {pin: kind(value) for pin, value in pins.items()}


def planned(topology: Topology, sizes: Mapping[str, int], pins: Mapping[str, str]) -> dict[Pin, object]:
    schedule = plan(bound(sizes), topology, pins)
    return kinds(pins_of(schedule.spec, topology, schedule.decided))


def test_what_is_chosen_and_what_lost() -> None:
    found = explained({}, 0)
    assert found.schedule.choices == plan(bound(SIZES), TOPOLOGY).choices
    assert found.account.total_us == pytest.approx(found.schedule.predicted_us, abs=1e-3)
    assert found.others and found.more == 0
    assert [one.us for one in found.others] == sorted(one.us for one in found.others)
    for one in found.others:
        assert one.differs.items() <= one.fields.items() and one.us > found.schedule.predicted_us
        assert one.lost_us > 0 and (one.term is None or one.term.part is one.lost_by)
    assert all(one.flip is None and one.why == "not tried" for one in found.walked)


@pytest.mark.slow
def test_pins_of_a_family_plan_it() -> None:
    found = explained({}, 0)
    for one in found.others:
        schedule = plan(bound(SIZES), TOPOLOGY, texts(one.fields))
        assert texts(one.fields).items() <= dict(schedule.choices).items()
        assert schedule.predicted_us <= one.us + 1e-3


def test_few_families() -> None:
    found = explained({}, 0, most=2)
    assert len(found.others) == 2 and found.more > 0


@pytest.mark.slow
@pytest.mark.parametrize("pins", [{"compute": "triton"}])
def test_a_flip_is_one(pins: dict[str, str]) -> None:
    """At its value the search chooses the family that it names, and before that the family of now."""
    found = explained(pins, 40)
    flips = [one.flip for one in found.walked if one.flip is not None]
    assert {flip.axis for flip in flips} & set(SIZES) and {flip.axis for flip in flips} & set(RATES)
    now = kinds(found.family)
    for flip in flips:
        for value, wanted in ((flip.before, now), (flip.value, kinds(flip.fields))):
            if flip.axis in SIZES:
                choices = planned(TOPOLOGY, {**SIZES, flip.axis: int(value)}, pins)
            else:
                choices = planned(RATES[flip.axis](TOPOLOGY, value), SIZES, pins)
            assert wanted.items() <= choices.items(), flip


def test_pins_are_checked() -> None:
    with pytest.raises(UnknownPin):
        explained({"moover": "Fused()"}, 0)


def test_rates_of_a_network_are_walked_as_far_as_they_are_likely() -> None:
    gather = load("11_reduce_scatter.py:all_gather")
    topology = topologies.load("h800-2-nodes")
    sizes = {"M": 64, "N": 4096}

    def of_ranks(some: Mapping[str, int]) -> BoundSpec:
        return bind(gather.spec, some, topology.num_ranks, "bf16")

    found = explain(of_ranks, sizes, topology, {}, 3, times(60))
    walked = {(one.axis, one.larger): one for one in found.walked}
    slower = walked["network latency", True].flip
    assert slower is not None and 1.0 < slower.value <= 1.5 and "Library" in str(slower.fields)
    assert walked["network bandwidth", False].axis and all(one.why != "not tried" for one in found.walked)
    text = explanation_text(found)
    assert "network latency x" in text and "is likely" in text
    single = explained({}, 0)
    assert not {one.axis for one in single.walked} & set(NETWORK_RATES)
