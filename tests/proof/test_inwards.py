"""Last tiles that are shifted inwards: rows that are stored twice, in another place, or not at all are refuted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import topologies
from tests.pipeline.operators import AG_GEMM, GEMM_AR, GEMM_RS
from tests.proof.planted import Change, refuted
from tilelink.declaration import Overlap
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.schedule import Schedule as Planned
from tilelink.proof.verify import verify
from tilelink.schedule.index import Index, Number, least
from tilelink.schedule.instance import instantiated
from tilelink.schedule.memory import Access
from tilelink.schedule.roles import Phase, Schedule
from tilelink.schedule.steps import Load, Store
from tilelink.schedule.walk import with_phases

m, m_new = Index("m"), Index("m_new")
PARTS = {"compute": "triton", "tile": "16x16x16/4w2s", "tail": "whole", "protocol": "simple", "mover": "CopyEngine()"}


def planned(operator: Overlap = AG_GEMM, **more: object) -> Planned:
    """Parts of 22 rows in tiles of 16: the second one begins at row 6, and stores rows from 16 on."""
    sums = {} if operator is AG_GEMM else {"sum": "kernel"} | ({"shots": "2"} if operator is GEMM_AR else {})
    pins = {**PARTS, "transfer": "push", **sums, **more}
    return operator.plan_for(topologies.load("laptop-switch", 2), {"M": 44, "K": 64, "N": 64}, "bf16", pins)


def stored(new: Callable[[Store], Store]) -> Change:
    return lambda step: (new(step),) if isinstance(step, Store) and step.skip != 0 else (step,)


def loaded(new: Callable[[Load], Load]) -> Change:
    return lambda step: (new(step),) if isinstance(step, Load) and step.result == "left" else (step,)


def beginning(step: Load, row: Number) -> Load:
    *lead, _, col = step.region.start
    return replace(step, region=replace(step.region, start=(*lead, row, col)))


def rows(step: Store, first: Number, extent: Number) -> Store:
    """The same columns of other rows; `first` counts from the first row that is new."""
    *lead, row, col = step.region.start
    *before, _, cols = step.region.extent
    start = (*lead, row + first, col)
    return replace(step, region=replace(step.region, start=start, extent=(*before, extent, cols)))


BUGS: dict[str, Change] = {
    "a row too few is left out": stored(lambda one: replace(one, skip=one.skip - 1)),
    "a row too many is left out": stored(lambda one: replace(one, skip=one.skip + 1)),
    "no row is left out": stored(lambda one: replace(one, skip=0)),
    "all rows are stored, those of the tile before once more": stored(
        lambda one: replace(rows(one, m - m_new, 16), skip=0)
    ),
    "a row is stored twice": stored(lambda one: replace(rows(one, -1, one.region.extent[-2]), skip=one.skip - 1)),
    "a row is stored by nobody": stored(lambda one: replace(rows(one, 1, least(15, 21 - m_new)), skip=one.skip + 1)),
    "the last row is stored by nobody": stored(lambda one: rows(one, 0, least(16, 21 - m_new))),
    "nothing is stored": lambda step: () if isinstance(step, Store) and step.skip != 0 else (step,),
    "rows are left out by a descriptor": stored(
        lambda one: replace(one, region=replace(one.region, access=Access.DESCRIPTOR))
    ),
    "rows are loaded where they are new": loaded(lambda one: beginning(one, m_new)),
    "rows are loaded one row later": loaded(lambda one: beginning(one, one.region.start[-2] + 1)),
}


def lets(value: Number) -> Callable[[Schedule], Schedule]:
    """The last tile begins elsewhere."""

    def changed(phase: Phase) -> Phase:
        return replace(phase, let=tuple((name, value if name == "m" else index) for name, index in phase.let))

    return lambda steps: with_phases(steps, lambda _, phase: changed(phase))


SHIFTS: dict[str, Number] = {
    "not shifted": m_new,
    "shifted too far": least(m_new, 5),
    "shifted too little": least(m_new, 7),
}


@pytest.mark.parametrize("operator", [AG_GEMM, GEMM_RS, GEMM_AR], ids=["ag_gemm", "gemm_rs", "gemm_ar"])
def test_schedules_are_proved(operator: Overlap) -> None:
    schedule = planned(operator)
    proof = verify(schedule)
    assert schedule.shifts_rows
    assert proof.proved, "\n".join(proof.lines())


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_found(bug: str) -> None:
    assert refuted(planned(), BUGS[bug])


@pytest.mark.parametrize("shift", SHIFTS)
def test_another_beginning_is_found(shift: str) -> None:
    schedule = planned()
    steps = instantiated(elaborated(schedule))
    found = lets(SHIFTS[shift])(steps)
    assert found != steps
    assert not verify(schedule, found).proved
