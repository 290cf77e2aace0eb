"""Clocks that are kept as what they are made of say what clocks say that hold a number for each program."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.proof.happens_before.small import small
from tests.schedule.mutants import mutants
from tests.schedule.network_operators import OPERATORS as NETWORK
from tests.schedule.operators import OPERATORS
from tilelink.proof.happens_before import added, clocks, columns, walk
from tilelink.proof.happens_before.added import Told
from tilelink.proof.happens_before.check import ordered
from tilelink.proof.happens_before.columns import Columns
from tilelink.proof.happens_before.events import Events
from tilelink.proof.happens_before.expand import expanded
from tilelink.proof.happens_before.flights import with_flights
from tilelink.proof.happens_before.lanes import by_call
from tilelink.proof.happens_before.ranks import rank_turns
from tilelink.proof.happens_before.turns import Turns
from tilelink.proof.happens_before.walk import Walk
from tilelink.schedule.index import Ints
from tilelink.schedule.instance import instantiated
from tilelink.schedule.network import TRANSPORTS


class Whole:
    """The definition: a number for each program, and the larger one of two."""

    def __init__(self, turns: Turns, width: int, most: int) -> None:
        self.turns, self.width = turns, width
        self.kept = [np.zeros(turns.ranks * width, np.int64)]

    def __getitem__(self, clock: int) -> Ints:
        return self.kept[clock]

    def _new(self, clock: Ints, programs: Ints, times: Ints) -> int:
        np.maximum.at(clock, programs, times)
        self.kept.append(clock)
        return len(self.kept) - 1

    def joined(self, clock: int, told: Told) -> int:
        here, new = np.arange(len(self.kept[0])), self.kept[clock].copy()
        for one, turn in zip(told.clocks.tolist(), told.turns.tolist(), strict=True):
            new = np.maximum(new, self.kept[one][self.turns.numbers(here, turn, self.width)])
        return self._new(new, told.programs, told.times)

    def met(self, some: Sequence[int]) -> int:
        return self.ended(some, np.zeros(0, np.int64), np.zeros(0, np.int64))

    def with_ends(self, *_: object) -> None:
        """Nothing is found by them."""

    def ended(self, some: Sequence[int], programs: Ints, times: Ints, _calls: int = 0) -> int:
        return self._new(np.maximum.reduce([self.kept[one] for one in some]), programs, times)

    def knows(self, clock: int, turn: int, program: int, time: int) -> bool:
        return bool(self.kept[clock][self.turns.numbers(program, turn, self.width)] >= time)

    def unaware(self, *_: object) -> int:
        return -1


def walked(name: str) -> Walk:
    if name in NETWORK:
        schedule = with_flights(instantiated(NETWORK[name](2, 3, TRANSPORTS["NVSHMEM put_signal_nbi"]).schedule))
        return Walk(Events(expanded(schedule, {}, 3, rank_turns(schedule)))).walked()
    operator = OPERATORS[name](4)
    schedule = instantiated(operator.schedule)
    tables, _ = by_call({table: entries.numpy() for table, entries in operator.tables().items()})
    return Walk(Events(expanded(schedule, tables, 3, rank_turns(schedule)))).walked()


@pytest.mark.parametrize("name", ["ag_gemm", "gemm_rs", "queue", *NETWORK])
@pytest.mark.parametrize(("few", "in_a_row"), [(1, 1), (16, 64)])
def test_each_segment_knows_what_is_defined(
    name: str, few: int, in_a_row: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "FEW", few)
    monkeypatch.setattr(clocks, "LARGE", 0)
    monkeypatch.setattr(added, "IN_A_ROW", in_a_row)
    monkeypatch.setattr(clocks, "IN_A_ROW", in_a_row)
    found = walked(name)
    monkeypatch.setattr(walk, "Clocks", Whole)
    whole = walked(name)
    assert len(found.clock_of) == len(whole.clock_of) > 10
    programs = np.arange(len(whole.clocks[0]))
    for mine, theirs in zip(found.clock_of.tolist(), whole.clock_of.tolist(), strict=True):
        at = whole.clocks[theirs]
        for program in programs[::7].tolist():  # asked one by one, before it is added up
            assert found.clocks.knows(mine, 0, program, int(at[program]))
            assert not found.clocks.knows(mine, 0, program, int(at[program]) + 1)
        assert found.clocks.knows_all(mine, programs, at).all()
        assert found.clocks.know(programs * 0 + mine, programs, at).all()
        assert not found.clocks.know(programs * 0 + mine, programs, at + 1).any()
        assert np.array_equal(found.clocks[mine], at)


@pytest.mark.parametrize("name", ["ag_gemm", "gemm_rs", "queue"])
def test_mutants_are_refuted_as_where_all_is_added_up(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule, tables = small(name)
    some = random.Random(name).sample(list(mutants(schedule)), 30)
    whole = [ordered(mutant, tables).refutation for _, mutant in some]
    monkeypatch.setattr(clocks, "LARGE", 0)
    assert any(whole)
    assert [ordered(mutant, tables).refutation for _, mutant in some] == whole


ROWS = st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=2), min_size=40, max_size=40)


@given(st.lists(ROWS, min_size=2, max_size=6))
def test_columns_are_joined_rank_by_rank(values: list[list[list[int]]]) -> None:
    kept = Columns(Turns(40, 1), 2, 9)
    made = []
    for rows in values:
        programs, times = np.arange(80), np.array(rows).reshape(-1)
        made.append(kept.having(kept.of[0], programs, times))
        assert np.array_equal(kept.values(made[-1]), times)
    for one, first in zip(made, values, strict=True):
        for other, second in zip(made, values, strict=True):
            joined = kept.values(kept.maximum(one, other))
            assert np.array_equal(joined, np.maximum(first, second).reshape(-1))
