"""What is proved for any number of calls, with other arithmetic of the call in one or two places, holds in seven and eight."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from tests.proof.happens_before.small import NAMES, small
from tests.schedule.mutants import put, sites
from tilelink.proof.happens_before.calls import VARIES, Unlike, grows
from tilelink.proof.happens_before.check import check
from tilelink.schedule.index import Index, Number, call, least, rank
from tilelink.schedule.roles import Schedule

ARITHMETIC: tuple[Callable[[Index], Number], ...] = (
    lambda one: one // 2,
    lambda one: one * 2,
    lambda one: one % 2,
    lambda one: one % 3,
    lambda one: one + 1,
    lambda one: one - 1,
    lambda one: one * one,
    lambda one: (one + 1) // 2 * 2,
    lambda one: least(one, 2),
)


def _others(schedule: Schedule) -> Iterator[Schedule]:
    for path, node in sites(schedule.launches, ("launches",)):
        if node == call:
            for change in ARITHMETIC:
                new = put(schedule, path, lambda _, change=change: change(call))  # type: ignore[misc]
                assert isinstance(new, Schedule)
                yield new


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name != "moe_grouped"])
def test_no_schedule_is_proved_for_any_number_and_wrong_in_eight(name: str) -> None:
    schedule, tables = small(name, 2)
    once = list(_others(schedule))
    rng = random.Random(name)
    twice = [rng.choice(list(_others(one))) for one in once for _ in range(3)]
    proved = 0
    for one in (schedule, *once, *twice):
        if check(one, tables) is None:
            proved += 1
            assert check(one, tables, 7) is None and check(one, tables, 8) is None
    assert proved


def test_growth_over_calls() -> None:
    tile = Index("tile")
    assert grows(2 * call - 1, {}, 1) == 2 and grows(call % 3, {}, 3) == 0 and grows(call // 2, {}, 2) == 1
    assert grows((call - 1) * tile, {}, 1) is VARIES and grows(tile + rank, {}, 1) == 0
    for index in (call * call, call // 2, call % 2, least(call, 3), Index("rows", (call, rank))):
        with pytest.raises(Unlike):
            assert isinstance(index, Index)
            grows(index, {}, 1)
