"""What a measured call takes beyond computing alone: parts that add up, of those who compute."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilelink.profiling.parts import BEGIN, BETWEEN, CALLS, COPIES, LAST, TILES, parts_of
from tilelink.profiling.timeline import Doing


class One(NamedTuple):
    rank: int
    lane: str
    doing: str
    where: str
    start_us: float
    end_us: float


@st.composite
def calls(draw: st.DrawFn) -> list[One]:
    lanes = ["stream main", "stream copy_x", "program 0", "program 0, x_moves", "program 1"]
    found = list[One]()
    for rank in range(draw(st.integers(1, 3))):
        for lane in draw(st.lists(st.sampled_from(lanes), min_size=1, unique=True)):
            now = draw(st.floats(0, 20))
            for _ in range(draw(st.integers(1, 5))):
                begin = now + draw(st.sampled_from([0.0, 0.0, 1.5]))
                now = begin + draw(st.floats(0.1, 30))
                doing = draw(st.sampled_from(Doing)).value
                found.append(One(rank, lane, doing, draw(st.sampled_from(["a", "b: wait x"])), begin, now))
    return found


@given(calls(), st.floats(1, 100), st.floats(0, 100))
def test_parts_add_up(spans: list[One], call_us: float, alone_us: float) -> None:
    found = parts_of(spans, call_us, alone_us)
    last = max(spans, key=lambda span: span.end_us).rank
    computes = any(one.doing == "tile" and "," not in one.lane for one in spans if one.rank == last)
    if found is None:
        assert not computes
        return
    assert found.rank == last
    assert computes
    assert sum(us for _, us in found.parts) == pytest.approx(call_us - alone_us, abs=1e-6)
    assert all(us > -1e-9 for what, us in found.parts if what not in (TILES, CALLS))


def test_streams_are_looked_at_where_no_program_computes() -> None:
    spans = [
        One(0, "stream copy_x", "move", "copy", 0.0, 30.0),
        One(0, "stream main", "tile", "matmul", 5.0, 25.0),
        One(0, "stream main", "wait", "x_waits", 25.0, 31.0),
        One(0, "stream main", "tile", "matmul", 32.0, 52.0),
        One(0, "program 0", "end", "finish_kernel", 53.0, 55.0),
    ]
    found = parts_of(spans, 56.0, 38.0)
    assert found is not None
    assert dict(found.parts) == {
        BEGIN: 5.0,
        "wait in x_waits": 6.0,
        TILES: 2.0,
        BETWEEN: 1.0,
        LAST: 3.0,
        CALLS: 1.0,
    }


def test_a_group_that_loads_is_beside_its_program() -> None:
    spans = [
        One(0, "program 0", "tile", "y_turns", 0.0, 20.0),
        One(0, "program 0, y_loads", "move", "y_loads", 0.0, 19.0),
        One(0, "program 1", "move", "x_moves", 0.0, 4.0),
        One(0, "program 1", "tile", "y_turns", 4.0, 24.0),
    ]
    found = parts_of(spans, 24.0, 20.0)
    assert found is not None
    assert {what: us for what, us in found.parts if us} == {LAST: 2.0, COPIES: 2.0}
