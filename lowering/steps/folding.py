"""Puts numbers in the place of names that stand for one: `chunk = 0` says nothing where there is one chunk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilelink.schedule.index import Number, replaced
from tilelink.schedule.roles import Phase, Schedule
from tilelink.schedule.steps import For, If, Let, Step
from tilelink.schedule.walk import reindexed


def folded(schedule: Schedule) -> Schedule:
    """`schedule` without names for numbers."""
    launches = tuple(
        replace(launch, roles=tuple(replace(role, phases=tuple(map(_phase, role.phases))) for role in launch.roles))
        for launch in schedule.launches
    )
    return replace(schedule, launches=launches)


def _phase(phase: Phase) -> Phase:
    let, known = _let(phase.let, {})
    return replace(phase, let=let, body=_body(phase.body, known))


def _let(let: Let, known: Mapping[str, Number]) -> tuple[Let, dict[str, Number]]:
    """Names that are left, and all numbers that are known behind them."""
    found, kept = dict(known), list[tuple[str, Number]]()
    for name, index in let:
        index = replaced(index, found)
        if isinstance(index, int):
            found[name] = index
        else:
            kept.append((name, index))
    return tuple(kept), found


def _body(body: tuple[Step, ...], known: Mapping[str, Number]) -> tuple[Step, ...]:
    return tuple(_step(step, known) for step in body)


def _step(step: Step, known: Mapping[str, Number]) -> Step:
    match step:
        case For():
            let, inner = _let(step.let, known)
            count = replaced(step.count, known)
            return replace(step, count=count, let=let, body=_body(step.body, inner))
        case If():
            step = replace(step, body=_body(step.body, known), others=_body(step.others, known))
    return reindexed(step, lambda index: replaced(index, known)) if known else step
