"""Lanes of the time line, the courses that they are drawn from, and the maps of tile orders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from tilelink.report.facts import Facts
from tilelink.report.gantt import ticks
from tilelink.report.heat_map import heat_map
from tilelink.report.lanes import WAIT, Lane, program_lanes, rank_lanes

WITH_TILES = ["ag_gemm", "gemm_rs", "mlp", "attention", "experts", "nodes"]


def lanes_of(of: Facts, rank: int) -> dict[str, Lane]:
    return {lane.name: lane for lane in rank_lanes(of.schedule, of.course, of.account, of.limits.gb_per_s, rank)}


@pytest.mark.parametrize("name", [*WITH_TILES, "library", "gather"])
@pytest.mark.quick(1)
def test_bars_lie_within_the_call(name: str, facts: Callable[[str], Facts]) -> None:
    of = facts(name)
    for lane in lanes_of(of, 1).values():
        for bar in lane.bars:
            assert -1e-9 <= bar.begin <= bar.end <= of.course.drawn_us + 1e-6, (lane.name, bar)
            assert 0 < bar.share <= 1


@pytest.mark.parametrize("name", [*WITH_TILES, "library", "gather"])
@pytest.mark.quick(1)
def test_the_critical_path_has_no_gap(name: str, facts: Callable[[str], Facts]) -> None:
    of = facts(name)
    bars = lanes_of(of, 0)["critical path"].bars
    assert bars[0].begin == pytest.approx(0.0, abs=1e-3)
    ends = [bar.end for bar in bars]
    assert [bar.begin for bar in bars[1:]] == pytest.approx(ends[:-1], abs=0.05)
    assert ends[-1] == pytest.approx(of.course.drawn_us, abs=0.05)


def test_what_a_rank_sends_a_peer_receives(facts: Callable[[str], Facts]) -> None:
    of = facts("ag_gemm")
    ranks = range(of.schedule.num_ranks)
    sent, came = Counter[tuple[int, int, float]](), Counter[tuple[int, int, float]]()
    for rank in ranks:
        lanes = lanes_of(of, rank)
        for bar in lanes["link out"].bars:
            sent[rank, int(bar.title.split(" rank ")[1].split(":")[0]), bar.begin] += 1
        for bar in lanes["link in"].bars:
            came[int(bar.title.split(" rank ")[1].split(":")[0]), rank, bar.begin] += 1
    assert sent == came and sent.total() == len(ranks) * len(of.course.moves["x_full"])
    assert all(rank != peer for rank, peer, _ in sent)


def test_stores_of_tiles_add_up_to_what_is_sent(facts: Callable[[str], Facts]) -> None:
    of = facts("gemm_rs")
    lane = lanes_of(of, 0)["link out"]
    moved = sum((bar.end - bar.begin) * bar.share * of.limits.gb_per_s * 1e3 for bar in lane.bars)
    assert moved == pytest.approx(dict(of.limits.sent)["y_parts"], rel=1e-3)
    assert all(" to rank 1," in bar.title for bar in lane.bars)


@pytest.mark.parametrize("name", WITH_TILES)
@pytest.mark.quick(1)
def test_tiles_of_a_program_follow_each_other(name: str, facts: Callable[[str], Facts]) -> None:
    of = facts(name)
    for lane in program_lanes(of.schedule, of.course, 0, 12, 2000):
        assert lane.bars
        for before, bar in zip(lane.bars, lane.bars[1:], strict=False):
            assert bar.begin >= before.end - 1e-6


def test_waits_are_for_what_has_not_come(facts: Callable[[str], Facts]) -> None:
    of = facts("ag_gemm")
    (tiles,) = of.course.tiles.values()
    there = tiles.there["x_full"]
    assert (tiles.begins_us >= there - 1e-6).all() and (there > 0).any() and (there == 0).any()
    waits = [
        bar for lane in program_lanes(of.schedule, of.course, 0, 12, 2000) for bar in lane.bars if bar.kind == WAIT
    ]
    assert waits and all(bar.title.startswith("wait for x_full") for bar in waits)


def test_the_epilogue_of_a_warpgroup_is_no_wait(facts: Callable[[str], Facts]) -> None:
    """In ping-pong the first product begins with the kernel, though its tile ends late."""
    of = facts("gemm_rs")
    (tiles,) = of.course.tiles.values()
    assert tiles.loop.role.warpgroups == 2
    first = next(tiles.bars(0))
    assert first.begin == tiles.times.begin_us and first.product < first.end
    rows = tiles.begins_us[: 132 * 15].reshape(-1, 132)
    assert (np.diff(rows, axis=0) >= tiles.times.tile_us - 1e-6).all()  # one product at a time


@pytest.mark.parametrize("name", WITH_TILES)
@pytest.mark.quick(1)
def test_a_map_has_every_tile_once(name: str, facts: Callable[[str], Facts]) -> None:
    of = facts(name)
    for kernel, tiles in of.course.tiles.items():
        for most in (100_000, 50):
            one = heat_map(kernel, tiles, most)
            cells = [cell for place in one.cells for cell in place]
            assert sum(cell.tiles for cell in cells) == len(tiles.times.ends_us)
            assert max(cell.end for cell in cells) == float(tiles.times.ends_us.max())
            for place in one.cells:
                assert len({(cell.row, cell.col) for cell in place}) == len(place)
                assert all(cell.row < one.high and cell.col < one.wide for cell in place)


def test_axes_have_round_times() -> None:
    assert ticks(253.4) == [0, 50, 100, 150, 200, 250] and ticks(9.0) == list(range(10))
    for total in (0.3, 7.0, 99.0, 1234.5, 1e6):
        assert 4 <= len(ticks(total)) <= 12
    assert len(ticks(100.0, 5)) == 5 * (len(ticks(100.0)) - 1) + 1
