"""The ten operators are proved for any number of calls, and what breaks them on purpose is refuted as what it is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.schedule.operators import OPERATORS, all_reduce_ll, moe, queue, two_level_rs
from tilelink.proof.happens_before.check import check, checked
from tilelink.proof.happens_before.refuted import Wrong
from tilelink.schedule.roles import Schedule, Sms

SIZES = [(name, size) for name in OPERATORS for size in (2, 3, 5) if name != "two_level_rs"]


def tables_of(name: str, *sizes: int) -> tuple[Schedule, dict[str, np.ndarray]]:
    operator = OPERATORS[name](*sizes)
    return operator.schedule, {name: table.numpy() for name, table in operator.tables().items()}


@pytest.mark.quick(18)
@pytest.mark.parametrize(("name", "size"), SIZES)
def test_an_operator_is_proved_for_any_number_of_calls(name: str, size: int) -> None:
    schedule, tables = tables_of(name, size)
    outcome = checked(schedule, tables)
    assert outcome.refutation is None
    assert outcome.call_period == (2 if name == "all_reduce_ll" else 1)
    assert outcome.rank_period == (size if tables else 1)  # tables say something else for each rank


def test_a_report_says_what_stands_for_what() -> None:
    said = str(checked(two_level_rs(3, 2).schedule))
    assert said.startswith("proved for any number of calls, of which 3 stand for all; ranks 0 to 1 stand for 6; ")
    assert str(checked(queue(3).schedule, calls=2)).startswith("proved for 2 calls; rank 0 stands for 3; ")
    assert str(checked(queue(3).schedule, symmetric=False, calls=2)).startswith("proved for 2 calls; each of 3 ranks; ")


@pytest.mark.parametrize("mesh", [(2, 2), (3, 2), (2, 3)], ids=str)
def test_two_levels_are_alike_from_node_to_node(mesh: tuple[int, int]) -> None:
    outcome = checked(two_level_rs(*mesh).schedule)
    assert outcome.refutation is None
    assert outcome.rank_period == mesh[1]


@pytest.mark.parametrize("name", OPERATORS)
def test_all_ranks_enumerated_are_proved_too(name: str) -> None:
    schedule, tables = tables_of(name)
    outcome = checked(schedule, tables, symmetric=False)
    assert outcome.refutation is None and outcome.rank_period == schedule.num_ranks


def test_words_of_ll_in_one_version_are_overwritten() -> None:
    schedule = all_reduce_ll(3, versions=1).schedule
    assert check(schedule) is None  # a program has two tiles: the words of the second one say that the first was read
    (launch,) = schedule.launches
    (role,) = launch.roles
    roles = (replace(role, engine=Sms(4)),)
    refuted = check(replace(schedule, launches=(replace(launch, roles=roles),)))
    assert refuted is not None and refuted.wrong is Wrong.OVERWRITTEN


def test_three_calls_do_not_tell_of_a_call_that_two_versions_reuse() -> None:
    assert checked(all_reduce_ll(3).schedule).calls == 5


def test_a_ring_of_one_place_is_proved() -> None:
    assert check(queue(3, slots=1).schedule) is None


def test_a_wrong_row_of_a_table_is_refuted() -> None:
    schedule, tables = tables_of("moe", 3)
    two = next(t for t in range(1, 5) if tables["to"][0, t] == tables["to"][0, 0])
    tables["row"][0, two] = tables["row"][0, 0]
    refuted = check(schedule, tables)
    assert refuted is not None and refuted.wrong in (Wrong.WRITTEN_BY_TWO, Wrong.NEVER_WRITTEN)


def test_a_token_that_comes_back_to_another_place_is_refuted() -> None:
    schedule, tables = tables_of("moe", 3)
    tables["token"][0, int(tables["to"][0, 0]), 0] = 1
    refuted = check(schedule, tables)
    assert refuted is not None


def test_an_entry_that_a_table_does_not_have_is_refuted() -> None:
    schedule, tables = tables_of("moe", 3)
    tables["rows"][0, int(tables["to"][0, 0])] += 1
    refuted = check(schedule, tables)
    assert refuted is not None and refuted.wrong is Wrong.NO_ENTRY


def test_counts_that_grow_with_the_call_hold_for_tables_that_stay() -> None:
    """`wait arrived >= call * rows`: if other calls have other rows, it is another count."""
    operator = moe(2, 3)
    same = {name: table.numpy() for name, table in operator.tables().items()}
    assert check(operator.schedule, [same, same, same]) is None
    empty = {"to": np.full((2, 3), 0), "row": np.array([[0, 1, 2], [0, 1, 2]]), "rows": np.array([[3, 0], [3, 0]])}
    token = np.full((2, 2, 3), -1)
    token[:, 0] = [0, 1, 2]
    refuted = check(operator.schedule, [same, {**empty, "token": token}, same])
    assert refuted is not None
