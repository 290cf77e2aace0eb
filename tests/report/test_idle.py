"""What programs do on average: parts that add up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilelink.report.facts import Facts
from tilelink.report.idle import shares_of


@pytest.mark.parametrize("name", ["ag_gemm", "gemm_rs", "mlp", "attention", "experts", "nodes"])
@pytest.mark.quick(1)
def test_parts_add_up(name: str, facts: Callable[[str], Facts]) -> None:
    for tiles in facts(name).course.tiles.values():
        found = shares_of(tiles)
        parts = [found.late_us, found.tiles_us, found.held_us, found.rest_us, *(us for _, us in found.waits)]
        assert min(parts) >= 0 and sum(parts) == pytest.approx(found.whole_us, rel=1e-6)


def test_waits_are_those_of_the_exchange(facts: Callable[[str], Facts]) -> None:
    """Of 132 programs 112 have a tile of each of 8 segments of 112 tiles: all wait for rows of peers, none for anything else."""
    (tiles,) = facts("ag_gemm").course.tiles.values()
    found = shares_of(tiles)
    assert [name for name, _ in found.waits] == ["x_full"] and found.held_us == 0
    assert found.tiles_us == pytest.approx(len(tiles.times.ends_us) * tiles.times.tile_us / tiles.times.programs)


def test_warpgroups_in_turns_wait_for_their_epilogues(facts: Callable[[str], Facts]) -> None:
    (tiles,) = facts("gemm_rs").course.tiles.values()
    found = shares_of(tiles)
    assert found.rest_us > tiles.loop.cost.behind_us  # 64 of 132 programs have no tile in the last round
    assert found.tiles_us == pytest.approx(
        len(tiles.times.ends_us) * tiles.times.tile_us / tiles.times.programs, rel=0.01
    )
