"""Causal attention: what each tile multiplies by the model, and the order of heads that follows from it."""

from __future__ import annotations

import numpy as np
import pytest

import topologies
from tests.pipeline.attention_specs import How, spec_of
from tilelink.ir.nodes import ComputeRole
from tilelink.ir.schedule import Schedule
from tilelink.planner.attention_cost import fold_of, seen_shares
from tilelink.planner.loop import positions

TOKENS, QUERIES, WIDTH = 2048, 16, 64


def planned(how: How, keys: int, pins: dict[str, str], ranks: int = 2) -> Schedule:
    sizes = {"B": 1, "S": TOKENS, "Q": QUERIES, "G": keys, "D": WIDTH}
    return spec_of("gathered", how).plan_for(topologies.load("h200-nvswitch", ranks), sizes, "bf16", pins)


def loop_of(schedule: Schedule) -> ComputeRole:
    (role,) = (one.compute for one in schedule.kernels() if one.compute is not None and fold_of(one.compute))
    return role


def seen(how: How, role: ComputeRole, ranks: int) -> list[float]:
    """Pairs of a query and a key, of each tile in its order, counted on the mask of all tokens of a rank: the last one, and of a
    zigzag the first one."""
    each = TOKENS // ranks
    rank = 0 if how.zigzag else ranks - 1
    if how.zigzag:
        half = each // 2
        last = 2 * ranks - 1 - rank
        tokens = np.concatenate([np.arange(rank * half, (rank + 1) * half), np.arange(last * half, (last + 1) * half)])
    else:
        tokens = np.arange(rank * each, (rank + 1) * each)
    mask = np.arange(TOKENS)[None, :] <= tokens[:, None]
    if how.window:
        mask &= np.arange(TOKENS)[None, :] > tokens[:, None] - how.window
    rows, heads = role.axes[0], role.axes[1]
    found = []
    for _, major, minor in role.order.sequence(heads.tiles, rows.tiles, 1):
        assert major < heads.tiles
        tile = rows.tiles - 1 - minor if rows.descending else minor
        found.append(float(mask[tile * rows.tile : (tile + 1) * rows.tile].sum()))
    return found


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("how", [How(causal=True), How(causal=True, zigzag=True)], ids=["plain", "zigzag"])
@pytest.mark.parametrize("group", [4, 16])
def test_a_tile_multiplies_what_its_rows_see(how: How, group: int, ranks: int) -> None:
    role = loop_of(planned(how, 4, {"group": str(group)}, ranks))
    fold = fold_of(role)
    assert fold is not None, "the loop attends"
    shares = seen_shares(role, fold, positions(role))
    assert shares is not None, "rows see unlike numbers of keys"
    pairs = np.array(seen(how, role, ranks))
    # a tile that the mask cuts multiplies all of it, but for what a step of keys leaves out: half a tile more at most
    off = role.axes[0].tile ** 2 / 2 / pairs.mean()
    assert np.abs(shares - pairs / pairs.mean()).max() <= off


def test_without_a_mask_all_tiles_are_alike() -> None:
    role = loop_of(planned(How(), 4, {}))
    fold = fold_of(role)
    assert fold is not None, "the loop attends"
    assert seen_shares(role, fold, positions(role)) is None


def test_programs_get_rows_of_all_lengths() -> None:
    """8,192 tokens of 32 heads that share keys of 8: four heads at a time have 128 tiles, and each of 132 programs gets rows of
    nearly one place in each turn. 658 us instead of 765 (2 x H200)."""
    sizes = {"B": 1, "S": 8192, "Q": 32, "G": 8, "D": 128}
    topology = topologies.load("h200-nvswitch", 2)
    plans = [
        spec_of("gathered", How(causal=True)).plan_for(topology, sizes, "bf16", pins) for pins in ({}, {"group": "4"})
    ]
    assert plans[0].predicted_us < 0.9 * plans[1].predicted_us
    loads = []
    for role in map(loop_of, plans):
        fold = fold_of(role)
        assert fold is not None, "the loop attends"
        shares = seen_shares(role, fold, positions(role))
        assert shares is not None, "rows see unlike numbers of keys"
        loads.append(max(float(shares[program :: role.programs].sum()) for program in range(role.programs)))
    assert loads[0] < 0.9 * loads[1]
