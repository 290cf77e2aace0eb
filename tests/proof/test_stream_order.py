"""Where launches follow each other on the stream, nothing is counted; wherever they do not, a count is asked for."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

import topologies
from tests.planner.grid import chain
from tests.proof.test_refuted import planned
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.nodes import CommRole, CopyProgram, Kernel, Publish
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import IfOwn, Notify, Step
from tilelink.proof.verify import verify

SIZES = {"M": 64, "K": 64, "H": 64, "N": 64}
BY_PACKETS = {
    "matmul_out_sum.algorithm": "lamport-tiles"
}  # the tiles of one launch make a value that another one gathers
MOVERS = {
    "programs": {"mover": "CommSms(2)", "transfer": "push"},
    "programs that pull": {"mover": "CommSms(2)", "transfer": "pull"},
    "copies": {"mover": "CopyEngine()", "transfer": "push"},
    "copies that pull": {"mover": "CopyEngine()", "transfer": "pull"},
    "tiles that pull": {"mover": "Fused()", "transfer": "pull"},
}


@cache
def chained(mover: str) -> Schedule:
    return chain.plan_for(topologies.load("laptop-switch", 4), SIZES, "bf16", BY_PACKETS | MOVERS[mover])


def at(schedule: Schedule, kind: type) -> int:
    return next(index for index, launch in enumerate(schedule.launches) if isinstance(launch, kind))


def moved(schedule: Schedule, kind: type) -> Schedule:
    """The first launch of a kind comes before all others."""
    launches = list(schedule.launches)
    return replace(schedule, launches=(launches.pop(at(schedule, kind)), *launches))


@pytest.mark.parametrize("mover", MOVERS)
def test_a_source_of_an_earlier_launch_needs_no_count(mover: str) -> None:
    schedule = chained(mover)
    assert not any(signal.name.endswith("_count") for signal in elaborated(schedule).signals)
    assert verify(schedule).proved, verify(schedule).lines()


def test_programs_of_the_launch_that_makes_the_source_need_one() -> None:
    schedule = chained("programs")
    first, second = (launch for launch in schedule.launches if isinstance(launch, Kernel))
    (role,) = second.comm
    assert isinstance(role, CommRole)
    changed = {id(first): replace(first, comm=(role,)), id(second): replace(second, comm=())}
    launches = tuple(changed.get(id(launch), launch) for launch in schedule.launches)
    assert not verify(replace(schedule, launches=launches)).proved


def test_a_stream_that_is_not_forked_after_the_source_needs_one() -> None:
    schedule = chained("copies")
    launches = tuple(
        replace(launch, after_source=False) if isinstance(launch, CopyProgram) else launch
        for launch in schedule.launches
    )
    assert not verify(replace(schedule, launches=launches)).proved
    assert not verify(moved(schedule, CopyProgram)).proved


@pytest.mark.parametrize("mover", ["programs that pull", "copies that pull", "tiles that pull"])
def test_peers_are_told_after_the_launch(mover: str) -> None:
    assert not verify(moved(chained(mover), Publish)).proved


def uncounted(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    kept = [step for step in steps if not isinstance(step, Notify)]
    return tuple(
        replace(step, own=uncounted(step.own), others=uncounted(step.others)) if isinstance(step, IfOwn) else step
        for step in kept
    )


# every kind of exchange whose source tiles make in the launch beside which it is moved
COUNTED = [
    ("rs", "CopyEngine()", "push"),
    ("rs", "CopyEngine()", "pull"),
    ("rs", "CommSms(2)", "push"),
    ("rs", "CommSms(2)", "pull"),
    ("rs", "Fused()", "push"),
    ("rs", "Fused()", "pull"),
    ("ar", "CopyEngine()", "push"),
    ("ar", "CommSms(2)", "push"),
    ("ar", "Fused()", "push"),
    ("ar in place", "CopyEngine()", "push"),
]


@pytest.mark.parametrize("base", COUNTED, ids=" ".join)
def test_a_count_that_is_needed(base: tuple[str, str, str]) -> None:
    """Without the steps that count the schedule is refuted."""
    schedule = planned(*base)
    launches = tuple(
        replace(launch, compute=replace(launch.compute, body=uncounted(launch.compute.body)))
        if isinstance(launch, Kernel) and launch.compute is not None
        else launch
        for launch in schedule.launches
    )
    assert launches != schedule.launches
    assert not verify(replace(schedule, launches=launches)).proved
