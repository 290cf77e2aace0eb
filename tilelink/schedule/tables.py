"""Tables that index programs make of ids, by their definition (`tilelink.ir.routed`): entries by their places."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilelink.schedule.index import Ints
from tilelink.schedule.steps import Call

Entries = dict[tuple[int, ...], int]


def all_have_tiles(step: Call) -> bool:
    """Whether rows that none of a rank's experts takes have tiles, too: where every rank has all experts, the first one is 0."""
    return step.numbers[0] == 0


def sorted_rows(
    ids: Ints, own: Sequence[int], height: int, tiles: int, *, of_all: bool
) -> tuple[Entries, Entries, Entries, Entries, Entries]:
    """(rows, tokens, experts, here, count) of ids [tokens, choices]: rows of the `own` experts in `tiles` of `height`, of which
    the last ones may have none. `of_all`: rows that none of these takes have tiles behind them, as of one more expert."""
    choices, flat = ids.shape[1], [int(one) for one in ids.ravel()]
    groups = [[number for number, one in enumerate(flat) if one == expert] for expert in own]
    if of_all:
        groups.append([number for number, one in enumerate(flat) if one not in own])
    rows, tokens, experts, here = Entries(), Entries(), Entries(), Entries()
    tile = 0
    for expert, group in enumerate(groups):
        for begin in range(0, len(group), height):
            part = group[begin : begin + height]
            experts[tile,], here[tile,] = expert, len(part)
            for row, number in enumerate(part):
                rows[tile * height + row,], tokens[tile * height + row,] = number, number // choices
            tile += 1
    here |= {(behind,): 0 for behind in range(tile, tiles)}
    return rows, tokens, experts, here, {(0,): tile}


def listed_rows(ids: Ints, experts: int, shape: tuple[int, ...]) -> tuple[Entries, Entries]:
    """(listed, here) of ids [tokens, choices]: for each of `shape[0]` ranks, which have so many `experts` in order, the places in
    blocks of `shape[2]` tokens of those with an expert there."""
    ranks, blocks, rows = shape
    listed, here = Entries(), Entries()
    for rank in range(ranks):
        there = np.any((ids >= rank * experts) & (ids < (rank + 1) * experts), axis=1)
        for block in range(blocks):
            places = [place for place in range(rows) if there[block * rows + place]]
            here[rank, block] = len(places)
            listed |= {(rank, block, number): place for number, place in enumerate(places)}
    return listed, here
