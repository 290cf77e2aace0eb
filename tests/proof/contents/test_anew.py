"""Sums that are put where their summands lay: read first, place by place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.planner.operators import gemm_ar
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.schedule import Schedule as Planned
from tilelink.proof.contents.check import contents
from tilelink.schedule.index import Index
from tilelink.schedule.instance import instantiated
from tilelink.schedule.roles import Phase, Schedule
from tilelink.schedule.steps import Load, Store
from tilelink.schedule.walk import steps_in


def planned() -> Planned:
    pin = {"algorithm": "ll", "compute": "triton"}
    return gemm_ar.plan("h200-nvswitch", 2, M=32, K=64, N=2048, pin=pin)


def adding(phase: Phase) -> bool:
    """Whether the phase reads and writes the place of the sums."""
    steps = list(steps_in(phase.body))
    reads = any(isinstance(one, Load) and one.region.buffer == "out" for one in steps)
    return reads and any(isinstance(one, Store) and one.region.buffer == "out" for one in steps)


def with_phase(schedule: Schedule, change: object) -> Schedule:
    launches = []
    for launch in schedule.launches:
        roles = []
        for role in launch.roles:
            phases = tuple(change(one) if adding(one) else one for one in role.phases)  # type: ignore[operator]
            roles.append(replace(role, phases=phases))
        launches.append(replace(launch, roles=tuple(roles)))
    found = replace(schedule, launches=tuple(launches))
    assert found != schedule
    return found


def read_behind(phase: Phase) -> Phase:
    """The summand is read again when the sum lies there."""
    load = next(one for one in phase.body if isinstance(one, Load) and one.region.buffer == "out")
    return replace(phase, body=(*phase.body, load))


def read_of_the_one_before(phase: Phase) -> Phase:
    """Each position reads what the one before has written."""
    (load,) = (one for one in phase.body if isinstance(one, Load) and one.region.buffer == "out")
    back = tuple(one - 1 if isinstance(one, Index) else one for one in load.region.start)
    moved = replace(load, region=replace(load.region, start=back))
    return replace(phase, body=tuple(moved if one is load else one for one in phase.body))


def test_what_is_read_first_is_right() -> None:
    plan = planned()
    steps = instantiated(elaborated(plan))
    assert any(adding(one) for launch in steps.launches for role in launch.roles for one in role.phases)
    assert list(contents(steps, plan.spec)) == []


@pytest.mark.parametrize("change", [read_behind, read_of_the_one_before])
def test_what_may_have_been_written_is_refuted(change: object) -> None:
    plan = planned()
    found = list(contents(with_phase(instantiated(elaborated(plan)), change), plan.spec))
    assert any("may have written" in finding.fact for finding in found), found
