"""Every operator at every site of a schedule: what a planner with one bug could have planned."""

from __future__ import annotations

from collections.abc import Iterator

from tilelink.ir.schedule import Schedule
from tilelink.mutation import launches, operands, resources, roles, slots, steps
from tilelink.mutation.mutant import ScheduleMutant
from tilelink.mutation.sites import Operator

_OPERATORS: tuple[Operator, ...] = (
    *steps.OPERATORS,
    *operands.OPERATORS,
    *roles.OPERATORS,
    *launches.OPERATORS,
    *resources.OPERATORS,
    *slots.OPERATORS,
)


def schedule_operators() -> tuple[str, ...]:
    """Names of all operators, in the order in which `mutants` applies them."""
    return tuple(_name(operator) for operator in _OPERATORS)


def mutants(schedule: Schedule) -> Iterator[ScheduleMutant]:
    """Schedules that differ from `schedule` and from each other in one decision; the same ones in the same order each
    time. Nobody checks that they can be lowered: a planner's bug need not stop there."""
    seen = {schedule}
    for operator in _OPERATORS:
        for site, mutated in operator(schedule):
            if mutated not in seen:
                seen.add(mutated)
                yield ScheduleMutant(_name(operator), site, mutated)


def _name(operator: Operator) -> str:
    return operator.__name__.replace("_", " ")
