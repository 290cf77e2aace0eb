"""Ranks with fewer experts than others: what a call or a sum is told of them is true of each rank, or refuted."""

from __future__ import annotations

from dataclasses import replace

import pytest

import topologies
from tests.pipeline.expert_specs import SPECS
from tests.proof.planted import Change, refuted
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.schedule import Schedule as Planned
from tilelink.ir.spec import Route
from tilelink.proof.contents.tables import Sorts, is_of
from tilelink.proof.verify import verify
from tilelink.schedule.index import Number, greatest, least, rank
from tilelink.schedule.instance import instantiated
from tilelink.schedule.memory import Law
from tilelink.schedule.steps import LIST_ROWS, SORT_ROWS, Call, Compute, Step
from tilelink.schedule.walk import mapped, with_bodies

RANKS, EXPERTS, MOST = 4, 5, 2  # 2, 2, 1 and no expert
SIZES = {"T": 48, "H": 64, "F": 64, "E": EXPERTS, "K": 2}
HAS = greatest(least(MOST, EXPERTS - rank * MOST), 0)


def planned(adder: str, experts: int = EXPERTS, **pins: object) -> Planned:
    topology = topologies.load("laptop-switch", RANKS)
    given = {"out.adder": adder} | {name.replace("__", "."): value for name, value in pins.items()}
    return SPECS["ep_layer"].plan_for(topology, SIZES | {"E": experts}, "bf16", given)


def told(first: Number = rank * MOST, own: Number = HAS, every: Number = EXPERTS) -> Change:
    """The index program is told other numbers."""

    def change(step: Step) -> tuple[Step, ...]:
        if isinstance(step, Call) and step.function == SORT_ROWS:
            return (replace(step, numbers=(first, own, every, *step.numbers[3:])),)
        return (step,)

    return change


def added(own: Number = HAS, first: Number = rank * MOST) -> Change:
    """Rows of other experts are added."""

    def change(step: Step) -> tuple[Step, ...]:
        if isinstance(step, Compute) and step.op == "combined":
            return (replace(step, operands=(*step.operands[:4], own, first)),)
        return (step,)

    return change


BUGS: dict[str, Change] = {
    "each rank is told that it has the most": told(own=MOST),
    "each rank is told that it has what the last but one has": told(own=1),
    "ranks without experts are told a negative number": told(own=least(MOST, EXPERTS - rank * MOST)),
    "experts of as many ranks as are full": told(every=2 * MOST),
    "all that equal parts would have": told(own=MOST, every=RANKS * MOST),
    "ids behind the last expert are legal": told(every=RANKS * MOST),
    "experts begin where ranks had one each": told(first=rank),
    "the experts are the first rank's": told(first=0),
    "the last ranks have more, not the first": told(first=greatest(EXPERTS - (RANKS - rank) * MOST, 0)),
}
SUMS: dict[str, Change] = {
    "rows of as many experts as the first rank has": added(own=MOST),
    "rows of one expert": added(own=1),
    "rows of no expert": added(own=0),
    "rows of experts from the next one on": added(first=rank * MOST + 1),
}


@pytest.mark.parametrize("adder", ["sender", "receiver"])
def test_the_schedule_is_proved(adder: str) -> None:
    proof = verify(planned(adder))
    assert proof.proved, "\n".join(proof.lines())


@pytest.mark.parametrize("adder", ["sender", "receiver"])
def test_equal_numbers_are_no_change(adder: str) -> None:
    """So that bugs below are what is refuted."""
    steps = instantiated(elaborated(planned(adder)))
    changes = (told(), added()) if adder == "sender" else (told(),)
    for change in changes:
        assert with_bodies(steps, lambda body, change=change: mapped(body, change)) == steps  # type: ignore[misc]


@pytest.mark.parametrize("bug", [*BUGS, *SUMS])
def test_a_bug_is_found(bug: str) -> None:
    assert refuted(planned("sender"), BUGS.get(bug) or SUMS[bug])


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_found_where_rows_return(bug: str) -> None:
    assert refuted(planned("receiver"), BUGS[bug])


@pytest.mark.parametrize("experts", [EXPERTS, 8])
def test_a_schedule_for_other_experts_is_refuted(experts: int) -> None:
    """That of 5 experts for 8, and of 8 for 5: on 4 ranks both have 2 at most."""
    other = 13 - experts
    steps = elaborated(planned("sender", other))
    assert not verify(planned("sender", experts), steps).proved


@pytest.mark.parametrize(("most", "proved"), [(MOST, True), (1, False), (MOST + 1, False), (EXPERTS, False)])
def test_rows_that_travel_are_those_of_the_experts_of_each_rank(most: int, proved: bool) -> None:
    """Lists are of as many experts for each rank, also where the last ones have fewer."""

    def change(step: Step) -> tuple[Step, ...]:
        if isinstance(step, Call) and step.function == LIST_ROWS:
            return (replace(step, numbers=(most, *step.numbers[1:])),)
        return (step,)

    schedule = planned("sender", rows_value__mover="NeededRows()")
    steps = instantiated(elaborated(schedule))
    found = with_bodies(steps, lambda body: mapped(body, change))
    assert (found == steps) is proved
    assert verify(schedule, found).proved is proved


def test_ranks_have_each_expert_once() -> None:
    """As the law says that no row is of two ranks, and rows that return are all that there are."""
    for ranks in range(1, 10):
        for experts in range(1, 30):
            route = Route(experts, parts=ranks)
            assert [one for rank in range(ranks) for one in route.own(rank)] == list(range(experts))
            assert max(len(route.own(rank)) for rank in range(ranks)) == len(route.own(0))


def test_only_numbers_of_the_routing_are_taken() -> None:
    route = Route(EXPERTS, parts=RANKS)
    right = Sorts((0, 2, 4, 6), (2, 2, 1, 0), EXPERTS, 2, 128)
    assert is_of(right, route)
    assert is_of(replace(right, first=(0, 2, 4, 99)), route), "where there are none, none is the first"
    for wrong in ({"own": (2, 2, 1, -1)}, {"own": (2, 2, 2, 2)}, {"first": (0, 2, 3, 6)}, {"every": 8}):
        assert not is_of(replace(right, **wrong), route)


def test_a_law_that_does_not_hold_is_not_believed() -> None:
    """Ranks that are told of one expert twice have rows in common."""
    schedule = planned("receiver")
    steps = instantiated(elaborated(schedule))
    assert any(Law.APART in one.laws for one in steps.tables)
    found = with_bodies(steps, lambda body: mapped(body, told(first=rank)))
    lines = "\n".join(verify(schedule, found).lines())
    assert f"it is not true that it has {Law.APART.value}" in lines
