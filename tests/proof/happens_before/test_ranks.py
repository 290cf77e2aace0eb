"""Ranks that are alike are seen by the text of a schedule, and where the text does not say so, all are looked at."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.schedule.operators import IN, OUT, SYM, finish, finished, m, ranks, segment, tile, two_level_rs
from tilelink.proof.happens_before.check import checked
from tilelink.proof.happens_before.ranks import Moved, moved, rank_period, still
from tilelink.schedule.index import Index, Number, call, evaluate, least, rank
from tilelink.schedule.memory import Buffer, Region, Signal
from tilelink.schedule.ranges import Range
from tilelink.schedule.roles import Launch, Phase, Role, Schedule, Sms
from tilelink.schedule.steps import Load, Notify, Store, Wait

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
    assert rank_period(over)[0] == SIZE
    refuted = checked(over).refutation
    assert refuted is not None
    wrapped = checked(gathered(least(TILE, ROWS - m * TILE), segment * ROWS + m * TILE + rank))
    assert wrapped.rank_period == SIZE


@pytest.mark.parametrize("mesh", [(4, 2), (2, 4), (8, 8)], ids=str)
def test_the_period_of_a_mesh_is_a_node(mesh: tuple[int, int]) -> None:
    assert rank_period(two_level_rs(*mesh).schedule)[0] == mesh[1]


def _index(inner: st.SearchStrategy[Number]) -> st.SearchStrategy[Number]:
    def make(op: str, left: Number, right: Number, by: int) -> Number:
        return Index(op, (left, right if op in "+-" else by))

    return st.builds(make, st.sampled_from(["+", "-", "*", "//", "%"]), inner, inner, st.integers(1, 8))


INDICES = st.recursive(st.one_of(st.integers(-3, 9), st.sampled_from([rank, Index("tile")])), _index, max_leaves=8)


@given(INDICES, st.sampled_from([(4, 1), (4, 2), (6, 2), (6, 3)]), st.integers(0, 6))
def test_an_index_moves_as_it_is_said_to(index: Number, sizes: tuple[int, int], at: int) -> None:
    size, period = sizes
    said = moved(index, {"rank": Moved(period, size, Range(0, size - 1)), "tile": still(0, 6)})
    for one in range(size):
        here, there = (int(evaluate(index, {"rank": r, "tile": at})) for r in (one, (one + period) % size))
        assert said.range.low <= here <= said.range.high
        by = there - here - said.by
        assert by == 0 if said.mod == 0 else by % said.mod == 0
