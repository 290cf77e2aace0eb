"""Puts numbers in the place of names that stand for one: `chunk = 0` says nothing where there is one chunk.

Names that extents depend on stay: `min(16, 8 - m)` is a tile of 16 rows, of which 8 exist. So do names that are compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilelink.schedule.index import Number, names_in, replaced
from tilelink.schedule.instance import reindexed
from tilelink.schedule.roles import Phase, Schedule
from tilelink.schedule.steps import For, If, Let, Step
from tilelink.schedule.walk import read, steps_in, with_phases, written


def folded(schedule: Schedule) -> Schedule:
    """`schedule` without names for numbers."""
    return with_phases(schedule, lambda _, phase: _phase(phase))


def _phase(phase: Phase) -> Phase:
    steps = tuple(steps_in(phase.body))
    extents = [extent for step in steps for region in (*read(step), *written(step)) for extent in region.extent]
    compared = [step.left for step in steps if isinstance(step, If)]
    found = _Folding(frozenset[str]().union(*map(names_in, (*extents, *compared))))
    let, known = found.let(phase.let, {})
    return replace(phase, let=let, body=found.body(phase.body, known))


class _Folding:
    """`kept`: names that stay."""

    def __init__(self, kept: frozenset[str]) -> None:
        self.kept = kept

    def let(self, let: Let, known: Mapping[str, Number]) -> tuple[Let, dict[str, Number]]:
        """Names that are left, and all numbers that are known behind them."""
        found, left = dict(known), list[tuple[str, Number]]()
        for name, index in let:
            index = replaced(index, found)
            if isinstance(index, int) and name not in self.kept:
                found[name] = index
            else:
                left.append((name, index))
        return tuple(left), found

    def body(self, body: tuple[Step, ...], known: Mapping[str, Number]) -> tuple[Step, ...]:
        return tuple(self.step(step, known) for step in body)

    def step(self, step: Step, known: Mapping[str, Number]) -> Step:
        match step:
            case For():
                let, inner = self.let(step.let, known)
                return replace(step, count=replaced(step.count, known), let=let, body=self.body(step.body, inner))
            case If():
                step = replace(step, body=self.body(step.body, known), others=self.body(step.others, known))
        return reindexed(step, lambda index: replaced(index, known)) if known else step
