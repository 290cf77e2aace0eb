"""What is not overlapped: all of it, with pins that do what is said of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.report.pages import WORKLOADS
from tilelink.planner.plan import plan
from tilelink.planner.terms import account_of
from tilelink.report.exposed import WHERE, exposed_of, work_us
from tilelink.report.facts import Facts


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.quick(1)
def test_with_the_matmuls_it_is_the_predicted_time(name: str, facts: Callable[[str], Facts]) -> None:
    of = facts(name)
    found = exposed_of(of.account, of.explanation.others, of.course, of.topology)
    total = work_us(of.account) + sum(one.term.us for one in found)
    assert total == pytest.approx(of.account.total_us, abs=0.05 * len(of.account.critical))
    assert all(one.where in WHERE and one.why.endswith(".") for one in found)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ag_gemm", "gemm_rs", "gather"])
def test_a_pin_to_try_plans_what_it_says(name: str, facts: Callable[[str], Facts]) -> None:
    of = facts(name)
    found = exposed_of(of.account, of.explanation.others, of.course, of.topology)
    tried = {one.pins: one for one in found if one.pins}
    assert tried
    for pins, one in tried.items():
        other = plan(of.schedule.spec, of.topology, dict(pins))
        assert other.predicted_us <= one.pinned_us + 1e-2  # the best one with these pins
        assert one.pinned_us > of.account.total_us
        spent = account_of(other, of.topology)
        assert spent.us(one.term.part) < of.account.us(one.term.part) or one.spent_us < one.instead_of_us


def test_a_family_that_spends_more_is_not_proposed(facts: Callable[[str], Facts]) -> None:
    of = facts("ag_gemm")
    for one in exposed_of(of.account, of.explanation.others, of.course, of.topology):
        assert not one.pins or one.spent_us < one.instead_of_us <= of.account.us(one.term.part) + 1e-9
