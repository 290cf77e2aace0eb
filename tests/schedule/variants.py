"""Operators changed in fields that printing depends on: access, dtype, streams."""

from __future__ import annotations

from dataclasses import replace

import torch

from tests.schedule.operators import Operator
from tilelink.schedule.memory import Access, Region
from tilelink.schedule.roles import CopyEngine, Launch, Phase, Schedule, Who
from tilelink.schedule.steps import Load, Step, Store
from tilelink.schedule.walk import mapped, with_bodies


def by_descriptor(operator: Operator, *buffers: str) -> Operator:
    """Tiles of `buffers` on the own rank go through descriptors."""

    def described(region: Region) -> Region:
        own = region.buffer in buffers and str(region.at) == "rank"
        return replace(region, access=Access.DESCRIPTOR) if own else region

    def changed(step: Step) -> tuple[Step, ...]:
        return (replace(step, region=described(step.region)) if isinstance(step, Load | Store) else step,)

    return replace(operator, schedule=with_bodies(operator.schedule, lambda body: mapped(body, changed)))


def in_dtype(operator: Operator, dtype: str) -> Operator:
    """All buffers hold elements of `dtype`, in which small integers are exact; sums are rounded where they are stored."""
    buffers = tuple(replace(one, dtype=dtype) for one in operator.schedule.buffers)
    kind = getattr(torch, dtype)

    def reference(**inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        return [one.to(kind) for one in operator.reference(**{k: [p.float() for p in v] for k, v in inputs.items()})]

    return replace(operator, schedule=replace(operator.schedule, buffers=buffers), reference=reference)


def in_two_phases(operator: Operator) -> Operator:
    """The positions of a phase that has several are those of two phases, one behind the other."""

    def split(phase: Phase) -> tuple[Phase, ...]:
        if phase.who is not Who.EACH or not isinstance(phase.count, int) or phase.count < 3:
            return (phase,)
        return replace(phase, count=2), replace(phase, first=2, count=phase.count - 2, title="the other tiles")

    launches = tuple(
        replace(
            launch,
            roles=tuple(
                replace(role, phases=tuple(new for phase in role.phases for new in split(phase)))
                for role in launch.roles
            ),
        )
        for launch in operator.schedule.launches
    )
    return replace(operator, schedule=replace(operator.schedule, launches=launches))


def with_streams(operator: Operator, streams: int) -> Operator:
    """Roles of copy engines are fed by several streams."""
    launches = tuple(
        replace(
            launch,
            roles=tuple(
                replace(role, engine=CopyEngine(streams)) if isinstance(role.engine, CopyEngine) else role
                for role in launch.roles
            ),
        )
        for launch in operator.schedule.launches
    )
    return replace(operator, schedule=replace(operator.schedule, launches=launches))


def without_join(operator: Operator) -> Operator:
    """The last launch does not wait for side streams, so that a launch of its own ends the call."""
    *before, last = operator.schedule.launches
    launches = (*before, replace(last, joins=()))
    return replace(operator, schedule=replace(operator.schedule, launches=launches))


def waiting_one_by_one(schedule: Schedule) -> Schedule:
    """Each stream of a copy program waits for itself, instead of behind one wait of all."""
    launches: list[Launch] = []
    for launch in schedule.launches:
        before = launches[-1] if launches else None
        if before is not None and before.roles[0].name == f"{launch.roles[0].name}_begin":
            (begin,), (role,) = before.roles, launch.roles
            launch = replace(before, roles=(replace(role, phases=(*begin.phases, *role.phases)),))
            launches.pop()
        launches.append(launch)
    assert len(launches) < len(schedule.launches)
    return replace(schedule, launches=tuple(launches))
