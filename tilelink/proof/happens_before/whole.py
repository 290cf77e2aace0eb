"""Loads from buffers that another launch writes, as loads of all of them.

Tiles of one order on all ranks load, say, ids of which each rank has gathered the own ones first: what is written turns with
ranks (`ranks`), what is loaded does not. Loads of everything do not care. They are more than there are, so that what is proved of
them holds; a refutation may be of loads that nobody makes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from tilelink.ir.enums import Protocol
from tilelink.schedule.index import names_in, rank
from tilelink.schedule.memory import Memory, Region
from tilelink.schedule.roles import Launch, Phase, Plain, Role, Schedule
from tilelink.schedule.steps import For, If, Load, Step
from tilelink.schedule.walk import mapped, steps_in, written


class Whole(NamedTuple):
    """`schedule` with loads of whole buffers; `loads`: these alone as they are, of which no order is asked."""

    schedule: Schedule
    loads: Schedule


def with_whole_loads(schedule: Schedule) -> Whole | None:
    """None if it loads nothing of that kind."""
    local = {
        one.name
        for one in schedule.buffers
        if one.memory in (Memory.LOCAL, Memory.INPUT) and one.protocol is Protocol.SIMPLE
    }
    whole, loads = [], []
    for launch in schedule.launches:
        steps = [step for role in launch.roles for phase in role.phases for step in steps_in(phase.body)]
        quiet = local - {region.buffer for step in steps for region in written(step)}
        whole.append(_changed(launch, _Loads(schedule, quiet)))
        loads.append(_changed(launch, _Loads(schedule, quiet), alone=True))
    if whole == list(schedule.launches):
        return None
    return Whole(replace(schedule, launches=tuple(whole)), replace(schedule, launches=tuple(loads)))


class _Loads(NamedTuple):
    schedule: Schedule
    quiet: set[str]  # buffers that the launch does not write

    def part(self, step: Step) -> Region | None:
        """The region of a load that may as well be of the whole buffer."""
        if not isinstance(step, Load) or step.region.buffer not in self.quiet or step.region.at != rank:
            return None
        region = step.region
        indices = (*region.start, *region.extent, *step.origin)
        by_call = any("call" in names_in(one) for one in indices)
        return None if by_call or region.extent == self.schedule.shapes[region.buffer] else region

    def whole(self, step: Step) -> tuple[Step, ...]:
        region = self.part(step)
        if region is None or not isinstance(step, Load):
            return (step,)
        shape = self.schedule.shapes[region.buffer]
        return (replace(step, region=replace(region, start=(0,) * len(shape), extent=shape), origin=()),)

    def alone(self, step: Step) -> tuple[Step, ...]:
        return (step,) if isinstance(step, For | If) or self.part(step) is not None else ()


def _changed(launch: Launch, loads: _Loads, *, alone: bool = False) -> Launch:
    def phase(one: Phase) -> Phase:
        body = mapped(one.body, loads.alone if alone else loads.whole)
        return replace(one, body=body, pipelining=Plain() if alone else one.pipelining)

    def role(one: Role) -> Role:
        return replace(one, phases=tuple(map(phase, one.phases)))

    return replace(launch, roles=tuple(map(role, launch.roles)))
