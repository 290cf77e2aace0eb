"""How many row tiles of experts are walked together: as many as an expert has, where its weights do not stay in the L2."""

from __future__ import annotations

import pytest

import topologies
from tests.pipeline.expert_specs import SPECS
from tilelink.ir.choices import TritonLoop
from tilelink.ir.spec import bind
from tilelink.planner.decisions import slots_of
from tilelink.planner.space import structures

H200 = topologies.load("h200-nvswitch", 2)


def groups(tokens: int, hidden: int, width: int, experts: int, choices: int) -> dict[int, set[int]]:
    """Of tiles of 128 rows of gathered tokens @ their experts: by columns of a tile, the groups that are tried."""
    sizes = {"T": tokens, "H": hidden, "F": width, "E": experts, "K": choices}
    structure = next(iter(structures(bind(SPECS["ag_moe"].spec, sizes, 2, "bf16"), H200, {})))
    found = dict[int, set[int]]()
    for options in slots_of(structure, {}).values():
        for option in options:
            loop = getattr(option, "loop", None)
            if isinstance(loop, TritonLoop) and loop.tile.m == 128 and loop.tile.k:
                found.setdefault(loop.tile.n, set()).add(loop.group)
    return found


@pytest.mark.parametrize(("rows", "columns", "group"), [(1024, 128, 8), (1024, 256, 16), (512, 128, 4), (100, 128, 2)])
def test_weights_beyond_the_l2_are_loaded_once_for_all_rows_of_an_expert(rows: int, columns: int, group: int) -> None:
    assert groups(4 * rows, 4096, 14336, 8, 2)[columns] == {group}


@pytest.mark.parametrize("rows", [100, 512, 1024])
def test_weights_that_stay_in_the_l2_want_small_groups(rows: int) -> None:
    assert groups(4 * rows, 2048, 1536, 8, 2)[128] == {2}
