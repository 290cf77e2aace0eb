"""Stamped sources of experts and attention: loops end where the device says, and groups of warps do unlike things."""

from __future__ import annotations

import itertools

import pytest

import lowering
import topologies
from tests.pipeline.attention_specs import How, spec_of
from tests.pipeline.expert_specs import SPECS
from tests.profiling.test_timeline import call
from tilelink.ir.schedule import Schedule
from tilelink.profiling.stamps import Moment, stamped
from tilelink.profiling.timeline import Doing, Span
from tilelink.runtime.run import run_emulated

EXPERTS = {"T": 64, "H": 64, "F": 64, "E": 4, "K": 2}
KEYS = {"B": 1, "S": 512, "Q": 2, "G": 1, "D": 64}
WARPS = {"mover": "CopyWarps()", "tile": "128x64x64/4w2s2g"}


def planned(name: str) -> Schedule:
    if name == "attention":
        topology = topologies.load("h200-nvswitch", 2)
        return spec_of("gathered", How(causal=True)).plan_for(topology, KEYS, "bf16", WARPS)
    return SPECS[name].plan_for(topologies.load("laptop-switch", 2), EXPERTS, "bf16")


def by_lane(found: list[Span]) -> dict[str, list[Span]]:
    lanes: dict[str, list[Span]] = {}
    for span in found:
        lanes.setdefault(span.lane, []).append(span)
    return lanes


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ag_moe", "ep_layer", "attention"])
def test_results_stay_equal(name: str) -> None:
    schedule = planned(name)
    assert run_emulated(schedule, stamped(lowering.emit(schedule)).source, calls=2).equal


@pytest.mark.parametrize("name", ["ag_moe", "attention"])
def test_the_time_of_a_program_is_accounted_for(name: str) -> None:
    schedule = planned(name)
    for found in call(schedule, stamped(lowering.emit(schedule))):
        for mine in by_lane(found).values():
            assert all(one.end_us == other.start_us for one, other in itertools.pairwise(mine))


def test_each_part_of_keys_has_its_wait_and_each_group_its_lane() -> None:
    schedule = planned("attention")
    marked = stamped(lowering.emit(schedule))
    first, last = call(schedule, marked)
    lanes = by_lane(last)
    groups = {lane.split(", ")[1] for lane in lanes if "," in lane}
    assert "out_loads" in groups and any(group.endswith("_moves") for group in groups)
    assert all(span.doing in (Doing.MOVE, Doing.WAIT) for lane in lanes if "," in lane for span in lanes[lane])
    # the last rank awaits keys of the first one for each tile, and the first rank those of nobody
    tiles = sum(span.doing is Doing.TILE and span.where == "out_rows" for span in last)
    for words in ("KEYS_ARRIVED", "VALUES_ARRIVED"):
        assert sum(span.doing is Doing.WAIT and words in span.where for span in last) == tiles > 0
        assert not [span for span in first if span.doing is Doing.WAIT and words in span.where]


def test_a_loop_has_words_for_the_most_tiles() -> None:
    """How many tiles experts have is known in the call."""
    schedule = planned("ag_moe")
    (role,) = (one.compute for one in schedule.kernels() if one.compute is not None)
    (loop,) = (site for site in stamped(lowering.emit(schedule)).sites if site.moment is Moment.TILE)
    assert loop.turns == -(-role.num_tiles // role.programs)
