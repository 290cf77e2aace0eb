"""The simulated tile loop: its positions are those of the order, its times those of a loop over programs."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tilelink.ir.nodes import Axis, ComputeRole
from tilelink.ir.order import Nest, RankOrder, TileOrder
from tilelink.planner.loop import Index, Loop, Times, positions


@st.composite
def roles(draw: st.DrawFn) -> ComputeRole:
    segments, minor = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    nest = draw(st.sampled_from(Nest))
    group, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    late = nest is Nest.CHUNK_MAJOR and segments > 1 and draw(st.booleans())
    tiles = group * groups if late else draw(st.integers(1, 7))
    extent = tiles * 16 - draw(st.integers(0, 15))
    ranks = RankOrder(segments, segments, 1)
    axes = (Axis("m", extent, segments, 16, False), Axis("n", minor * 8, 1, 8, False), Axis("k", 32, 1, 16, True))
    order = TileOrder("m", "n", ranks, ranks, nest, group, late)
    return ComputeRole("y", draw(st.integers(1, 9)), axes, order, prefetch=False, body=())


@given(roles())
def test_positions(role: ComputeRole) -> None:
    major, minor = role.axes[0], role.axes[1]
    found = positions(role)
    wanted = list(role.order.sequence(major.tiles, minor.tiles, major.segments))
    assert found.place.tolist() == [place for place, _, _ in wanted]
    assert found.first_row.tolist() == [row * 16 for _, row, _ in wanted]
    assert found.end_row.tolist() == [min(major.extent, row * 16 + 16) for _, row, _ in wanted]
    assert found.column.tolist() == [column for _, _, column in wanted]


@given(st.integers(1, 6), st.lists(st.tuples(st.floats(0, 50), st.booleans()), min_size=1, max_size=30))
def test_times(programs: int, tiles: list[tuple[float, bool]]) -> None:
    """Each program takes its tiles one after the other; own tiles end no earlier than what they add, and take longer."""
    ready = np.array([us for us, _ in tiles])
    own = np.array([mine for _, mine in tiles])

    def late(ends: Times, at: Index) -> Times:
        return np.full(len(at), 40.0)

    ends = Loop(programs, 5.0, 3.0, 2.0).run(ready, own, late)
    now = [5.0] * programs
    for position, (us, mine) in enumerate(tiles):
        program = position % programs
        now[program] = max(now[program], us) + 3.0
        if mine:
            now[program] = max(now[program], 40.0) + 2.0
        assert ends[position] == now[program]


@given(st.integers(1, 6), st.lists(st.tuples(st.floats(0, 50), st.floats(0.1, 9)), min_size=1, max_size=30))
def test_times_of_unequal_tiles(programs: int, tiles: list[tuple[float, float]]) -> None:
    ready, each = (np.array([tile[which] for tile in tiles]) for which in (0, 1))

    def late(ends: Times, at: Index) -> Times:
        raise AssertionError("no tile adds parts")

    loop = Loop(programs, 5.0, float(each.mean()), 0.0, each_us=each)
    ends = loop.run(ready, np.zeros(len(tiles), bool), late)
    now = [5.0] * programs
    for position, (us, takes) in enumerate(tiles):
        now[position % programs] = max(now[position % programs], us) + takes
        assert abs(ends[position] - now[position % programs]) < 1e-9
