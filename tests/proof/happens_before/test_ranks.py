"""Ranks that are alike are seen by the text of a schedule, and where the text does not say so, all are looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.schedule.network_operators import OPERATORS as NETWORK
from tests.schedule.operators import IN, OUT, SYM, finish, finished, m, ranks, segment, tile, two_level_rs
from tilelink.proof.happens_before.check import checked
from tilelink.proof.happens_before.ranks import Moved, in_block, moved, rank_turns, still
from tilelink.schedule.index import Index, Number, call, evaluate, least, rank
from tilelink.schedule.memory import Buffer, Region, Signal
from tilelink.schedule.network import TRANSPORTS
from tilelink.schedule.ranges import Range
from tilelink.schedule.roles import Launch, Phase, Role, Schedule, Sms
from tilelink.schedule.steps import If, Load, Notify, Store, Wait

SIZE, ROWS, TILE = 4, 100, 16


def gathered(extent: Number, start: Number = segment * ROWS + m * TILE) -> Schedule:
    """Every rank puts its rows at all ranks; parts of 100 rows lie behind each other, and tiles have 16."""
    tiles = -(-ROWS // TILE)
    own = Region("y", (rank * ROWS + m * TILE,), (extent,), segment)
    send = (
        Load("t", Region("x", (m * TILE,), (TILE,))),
        Store("t", own),
        Notify("came", (rank,), segment, call, tiles),
    )
    take = (Wait("came", (segment,), call, ("y",)), Load("t", Region("y", (start,), (extent,))))
    done = Store("t", Region("out", (start,), (extent,)))
    order = (("segment", (rank + tile // tiles) % SIZE), ("m", tile % tiles))
    roles = (
        Role("send", Sms(2), (finished(SIZE), Phase(SIZE * tiles, send, order))),
        Role("take", Sms(2), (Phase(SIZE * tiles, (*take, done), order), finish(SIZE))),
    )
    buffers = (
        Buffer("x", IN, (ROWS,), "float16"),
        Buffer("y", SYM, (SIZE * ROWS,), "float16"),
        Buffer("out", OUT, (SIZE * ROWS,), "float16"),
    )
    signals = (Signal("done", (1,)), Signal("came", (SIZE,)))
    return Schedule("gather", ranks(SIZE), buffers, signals, (Launch("main", roles),))


def test_parts_that_are_no_whole_number_of_tiles_turn() -> None:
    outcome = checked(gathered(least(TILE, ROWS - m * TILE)))
    assert outcome.refutation is None and outcome.rank_period == 1


def test_what_the_text_does_not_show_is_enumerated() -> None:
    over = gathered(TILE)  # the last tile of a part reaches into the next one
    assert rank_turns(over).period == SIZE
    refuted = checked(over).refutation
    assert refuted is not None
    wrapped = checked(gathered(least(TILE, ROWS - m * TILE), segment * ROWS + m * TILE + rank))
    assert wrapped.rank_period == SIZE


@pytest.mark.parametrize("mesh", [(4, 2), (2, 4), (8, 8)], ids=str)
def test_ranks_of_two_levels_are_alike_in_both(mesh: tuple[int, int]) -> None:
    turns = rank_turns(NETWORK["all_gather"](*mesh, TRANSPORTS["NVSHMEM put_signal"]).schedule)
    assert (turns.period, turns.inner) == (1, mesh[1])
    at = np.arange(mesh[0] * mesh[1])
    assert sorted(turns.numbers(0, turn) for turn in at.tolist()) == at.tolist()
    for turn in at.tolist():
        there = turns.numbers(at, turn)
        assert np.array_equal(there // mesh[1], (at // mesh[1] + turn // mesh[1]) % mesh[0])
        assert np.array_equal(there % mesh[1], (at % mesh[1] + turn % mesh[1]) % mesh[1])
        assert np.array_equal(turns.numbers(there, int(turns.back(np.array(turn)))), at)


@pytest.mark.parametrize("mesh", [(4, 2), (2, 4)], ids=str)
def test_a_rank_that_is_unlike_inside_of_its_node(mesh: tuple[int, int]) -> None:
    """The first one of each node tells itself once more."""
    schedule = NETWORK["all_gather"](*mesh, TRANSPORTS["NVSHMEM put_signal"]).schedule
    first = If(Index("%", (rank, mesh[1])), 0, (Notify("done", (0,), rank),))
    launch = schedule.launches[0]
    role = replace(launch.roles[0], phases=(*launch.roles[0].phases, Phase(1, (first,))))
    changed = replace(schedule, launches=(replace(launch, roles=(role, *launch.roles[1:])), *schedule.launches[1:]))
    for unlike in (
        changed,
        two_level_rs(*mesh).schedule,
    ):  # which adds parts of a node in one order on all of its ranks
        turns = rank_turns(unlike)
        assert (turns.period, turns.inner) == (mesh[1], 1)


def _index(inner: st.SearchStrategy[Number]) -> st.SearchStrategy[Number]:
    def make(op: str, left: Number, right: Number, by: int) -> Number:
        return Index(op, (left, right if op in "+-" else by))

    return st.builds(make, st.sampled_from(["+", "-", "*", "//", "%"]), inner, inner, st.integers(1, 8))


INDICES = st.recursive(st.one_of(st.integers(-3, 9), st.sampled_from([rank, Index("tile")])), _index, max_leaves=8)


@given(INDICES, st.sampled_from([(4, 1), (4, 2), (6, 2), (6, 3)]), st.integers(0, 6))
def test_an_index_moves_as_it_is_said_to(index: Number, sizes: tuple[int, int], at: int) -> None:
    size, period = sizes
    said = moved(index, {"rank": Moved(period, size, Range(0, size - 1)), "tile": still(0, 6)})
    _moves(index, said, size, at, lambda one: (one + period) % size)


@given(INDICES, st.sampled_from([(4, 2), (6, 2), (6, 3), (8, 4), (12, 4)]), st.integers(0, 6))
def test_an_index_moves_inside_of_its_block_as_it_is_said_to(index: Number, sizes: tuple[int, int], at: int) -> None:
    size, block = sizes
    said = moved(index, {"rank": Moved(1, block, Range(0, size - 1), whole=True), "tile": still(0, 6)})
    _moves(index, said, size, at, lambda one: one // block * block + (one + 1) % block)


def _moves(index: Number, said: Moved, size: int, at: int, renamed: Callable[[int], int]) -> None:
    for one in range(size):
        here, there = (int(evaluate(index, {"rank": r, "tile": at})) for r in (one, renamed(one)))
        assert said.range.low <= here <= said.range.high
        assert here % said.multiple == 0 if said.multiple else here == 0
        by = there - here - said.by
        assert by == 0 if said.mod == 0 else by % said.mod == 0
        if said.whole:
            assert there // said.mod == here // said.mod


PARTS = st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(1, 4))


@given(PARTS, st.integers(0, 3), st.integers(1, 6), st.integers(0, 2))
def test_places_in_parts_of_ranks_turn(sizes: tuple[int, int, int], first: int, long: int, skew: int) -> None:
    """Where it is said how places of a region turn, each of them does."""
    rows, nodes, local = sizes
    start = (rank // local * local + (rank + skew) % local) * rows + Index("m")
    said = in_block(
        start, long, {"rank": Moved(1, local, Range(0, nodes * local - 1), whole=True), "m": still(0, first)}
    )
    if said is None:
        assert first + long > rows or local == 1
        return
    for r in range(nodes * local):
        for row in range(first + 1):
            here, there = (
                int(evaluate(start, {"rank": one, "m": row})) for one in (r, r // local * local + (r + 1) % local)
            )
            for lane in range(long):
                place = here + lane
                block = place // said.mod * said.mod
                assert block + (place - block + said.by) % said.mod == there + lane
