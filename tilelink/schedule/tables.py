"""Tables that index programs make of ids, by their definition (`tilelink.ir.routed`): entries by their places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilelink.schedule.index import Ints
from tilelink.schedule.steps import LIST_PLACES, LIST_ROWS, Call

Entries = dict[tuple[int, ...], int]


def all_have_tiles(step: Call) -> bool:
    """Whether rows that none of a rank's experts takes have tiles, too: where every rank has all experts, the first one is 0."""
    return step.numbers[0] == 0


def made_tables(
    step: Call, ids: Ints, numbers: Sequence[int], shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Entries, ...]:
    """The last tables of `step`, an index program that is told these ids and numbers."""
    if step.function == LIST_ROWS:
        return listed_rows(ids, numbers[0], shapes[step.tables[0]], numbers[2])
    if step.function == LIST_PLACES:
        begin, tokens, share, every, _, height, _ = numbers
        return placed_rows(ids, range(begin, begin + tokens), (share, every), height, shapes[step.tables[-1]])
    first, own, _, _, _, *apart = numbers
    (places,), (tiles,) = shapes[step.tables[2]], shapes[step.tables[4]]
    mine = range(apart[0], sum(apart)) if apart else None
    experts, of_all = range(first, first + own), all_have_tiles(step)
    return sorted_rows(ids, experts, places // tiles, tiles, of_all=of_all, first=mine)


def sorted_rows(
    ids: Ints, own: Sequence[int], height: int, tiles: int, *, of_all: bool, first: Sequence[int] | None = None
) -> tuple[Entries, ...]:
    """(rows, tokens, experts, here, count) of ids [tokens, choices]: rows of the `own` experts in `tiles` of `height`, of which
    the last ones may have none. `of_all`: rows that none of these takes have tiles behind them, as of one more expert.

    `first`: tokens whose rows come first, each expert's, and tiles of these alone before all others; how many is one more table.
    """
    choices, flat = ids.shape[1], [int(one) for one in ids.ravel()]
    groups = [[number for number, one in enumerate(flat) if one == expert] for expert in own]
    chosen = [[row for row in group if row // choices in (first or ())] for group in groups]
    groups = [mine + [row for row in group if row not in mine] for mine, group in zip(chosen, groups, strict=True)]
    parts = list[tuple[int, list[int]]](), list[tuple[int, list[int]]]()  # of an expert, the rows of a tile
    for expert, (mine, group) in enumerate(zip(chosen, groups, strict=True)):
        for begin in range(0, len(group), height):
            part = group[begin : begin + height]
            parts[not set(part) <= set(mine)].append((expert, part))
    if of_all:
        none = [number for number, one in enumerate(flat) if one not in own]
        parts[1].extend((len(own), none[begin : begin + height]) for begin in range(0, len(none), height))
    rows, tokens, experts, here = Entries(), Entries(), Entries(), Entries()
    for tile, (expert, part) in enumerate((*parts[0], *parts[1])):
        experts[tile,], here[tile,] = expert, len(part)
        for row, number in enumerate(part):
            rows[tile * height + row,], tokens[tile * height + row,] = number, number // choices
    count = len(parts[0]) + len(parts[1])
    here |= {(behind,): 0 for behind in range(count, tiles)}
    apart = () if first is None else ({(0,): len(parts[0])},)
    return rows, tokens, experts, here, {(0,): count}, *apart


def listed_rows(ids: Ints, experts: int, shape: tuple[int, ...], first: int) -> tuple[Entries, Entries]:
    """(listed, here) of ids [tokens, choices]: for each of `shape[0]` readers from the `first` one on, which have so many
    `experts` in order, the places in blocks of `shape[2]` tokens of those with an expert there."""
    readers, blocks, rows = shape
    listed, here = Entries(), Entries()
    for number in range(readers):
        begin = (first + number) * experts
        there = np.any((ids >= begin) & (ids < begin + experts), axis=1)
        for block in range(blocks):
            places = [place for place in range(rows) if there[block * rows + place]]
            here[number, block] = len(places)
            listed |= {(number, block, entry): place for entry, place in enumerate(places)}
    return listed, here


def placed_rows(
    ids: Ints, own: range, experts: tuple[int, int], height: int, shape: tuple[int, ...]
) -> tuple[Entries, Entries, Entries]:
    """(listed, placed, here) of ids [tokens, choices] of all ranks: for each of `shape[0]` ranks, which have a share of all
    `experts` in order, the `own` tokens of assignments that go there, by expert and number, and their places in tiles of
    `height`; and how many entries each of `shape[1]` pieces of the list has."""
    (ranks, pieces), (share, every), choices = shape, experts, ids.shape[1]
    flat, numbers = [int(one) for one in ids.ravel()], range(own.start * choices, own.stop * choices)
    listed, placed, here = Entries(), Entries(), Entries()
    for rank in range(ranks):
        theirs = range(rank * share, min((rank + 1) * share, every))
        rows, *_ = sorted_rows(ids, theirs, height, 0, of_all=False)
        place_of = {number: place for (place,), number in rows.items()}
        here |= {(rank, piece): 0 for piece in range(pieces)}
        found = sorted((flat[number], number) for number in numbers if flat[number] in theirs)
        for entry, (_, number) in enumerate(found):
            listed[rank, entry], placed[rank, entry] = number // choices - own.start, place_of[number]
            here[rank, entry * pieces // len(numbers)] += 1
    return listed, placed, here
