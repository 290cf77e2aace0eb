"""Named terms of a predicted time: they add up to it, and what is said to be hidden runs beside the critical path."""

from __future__ import annotations

import random

import pytest

from tests.planner.grid import sampled_cells
from tests.planner.test_bounds_of_choices import sampled
from tilelink.ir.schedule import Schedule
from tilelink.planner.build import build
from tilelink.planner.cost import predict_us
from tilelink.planner.decisions import choices_of
from tilelink.planner.layout import Illegal, Problem
from tilelink.planner.terms import Part, account_of
from topologies.topology import Topology

SAVES = {"higher clocks while tensor cores rest", "no launch between kernels that are one"}


def check(schedule: Schedule, topology: Topology) -> None:
    account, shown = account_of(schedule, topology), str(schedule.choices)
    assert account.total_us == pytest.approx(predict_us(schedule, topology), abs=1e-9), shown
    assert sum(term.us for term in account.critical) == pytest.approx(account.total_us, abs=1e-6), shown
    assert all((term.us < 0) == (term.what in SAVES) for term in account.critical), account.critical
    assert not any(term.hidden_by for term in account.critical)
    assert all(0 < term.us <= account.total_us + 10 and term.hidden_by for term in account.hidden), account.hidden
    assert len({term.what for term in account.critical}) == len(account.critical)
    assert sum(map(account.us, Part)) == pytest.approx(account.total_us, abs=1e-6)


@pytest.mark.quick(3)
@pytest.mark.parametrize("seed", range(60))
def test_terms_add_up(seed: int) -> None:
    rng = random.Random(seed)
    (cell,) = sampled_cells(1, seed)
    for structure, chosen in sampled(cell, rng, 12):
        try:
            schedule = build(Problem(structure, choices_of(structure, chosen)))
        except Illegal:
            continue
        check(schedule, cell.topology)
