"""Gives values, indices, roles and streams names of their own, where buffers, tables or sizes have theirs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lowering.steps.closing import MAIN
from lowering.steps.naming import is_reserved
from tilelink.schedule.index import Index, Number, replaced
from tilelink.schedule.instance import with_indices
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import Compute, For, Let, Load, Step, Store
from tilelink.schedule.walk import all_steps, mapped, phases, with_bodies, with_phases


def with_own_names(schedule: Schedule) -> Schedule:
    """`schedule`, in which a value `out` beside a buffer `out` is `out_tile`, an index `out_index`, a role `out_role`, a stream
    `out_stream`."""
    given = {*schedule.shapes, *schedule.sizes}
    schedule = _with_indices(schedule, given)
    values = _renamed(dict.fromkeys(name for step in all_steps(schedule) for name in _values(step)), "tile", given)

    def change(step: Step) -> tuple[Step, ...]:
        return (_with_values(step, values),)

    schedule = with_bodies(schedule, lambda body: mapped(body, change))
    given |= set(values.values())
    streams = _renamed(dict.fromkeys(one.stream for one in schedule.launches if one.stream != MAIN), "stream", given)
    given |= set(streams.values())
    roles = _renamed(dict.fromkeys(role.name for _, role, _ in phases(schedule) if not role.by_host), "role", given)
    launches = tuple(
        replace(
            launch,
            stream=streams.get(launch.stream, launch.stream),
            joins=tuple(streams.get(name, name) for name in launch.joins),
            roles=tuple(replace(role, name=roles.get(role.name, role.name)) for role in launch.roles),
        )
        for launch in schedule.launches
    )
    origins = tuple((values.get(name, name), where) for name, where in schedule.origins)
    return replace(schedule, launches=launches, origins=origins)


def _with_indices(schedule: Schedule, given: set[str]) -> Schedule:
    bound = dict.fromkeys(name for _, _, phase in phases(schedule) for name, _ in phase.let)
    for step in all_steps(schedule):
        if isinstance(step, For):
            bound |= dict.fromkeys((step.variable, *(name for name, _ in step.let)))
    names = {name: new for name, new in _renamed(bound, "index", given).items() if name != new}
    if not names:
        return schedule
    by: dict[str, Number] = {name: Index(new) for name, new in names.items()}
    schedule = with_indices(schedule, lambda index: replaced(index, by))

    def let(pairs: Let) -> Let:
        return tuple((names.get(name, name), index) for name, index in pairs)

    def change(step: Step) -> tuple[Step, ...]:
        if not isinstance(step, For):
            return (step,)
        return (replace(step, variable=names.get(step.variable, step.variable), let=let(step.let)),)

    return with_phases(schedule, lambda _, phase: replace(phase, let=let(phase.let), body=mapped(phase.body, change)))


def _renamed(names: dict[str, None], kind: str, given: set[str]) -> dict[str, str]:
    return {name: f"{name}_{kind}" if name in given or is_reserved(kind, name) else name for name in names}


def _values(step: Step) -> Iterator[str]:
    match step:
        case Load():
            yield step.result
        case Compute():
            yield from step.results


def _with_values(step: Step, names: dict[str, str]) -> Step:
    match step:
        case Load():
            return replace(step, result=names[step.result])
        case Store():
            return replace(step, value=names.get(step.value, step.value))
        case Compute(op="own_place"):  # of a buffer
            return replace(step, results=tuple(names[one] for one in step.results))
        case Compute():
            operands = tuple(names.get(one, one) if isinstance(one, str) else one for one in step.operands)
            return replace(step, results=tuple(names[one] for one in step.results), operands=operands)
    return step
