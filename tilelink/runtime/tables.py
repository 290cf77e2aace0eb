"""Tables that index programs have made in a call, next to their definition (`tilelink.ir.routed`).

The proof of a schedule takes the laws of tables for granted. So every emulated call is held against what the tables would be by
a loop over its ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from tilelink.ir.calls import CollectiveCall, ListRows, SortRows
from tilelink.ir.routed import Routed, Sent
from tilelink.ir.schedule import Schedule

Entry = tuple[str, tuple[int, ...], int]  # of a table, its place, and what it is by the definition
Ids = list[list[int]]  # of tokens


def tables_of(schedule: Schedule) -> tuple[str, ...]:
    """Names of the tables that each call makes, which are attributes of an operator."""
    found = list[str]()
    for launch in schedule.launches:
        if isinstance(launch, SortRows):
            names = launch.tables
            found += [names.rows, names.tokens, names.experts, names.here, names.count]
        elif isinstance(launch, ListRows):
            found += [launch.sent.listed, launch.sent.here]
    return tuple(found)


def wrong_table(
    schedule: Schedule, inputs: Sequence[Mapping[str, torch.Tensor]], tables: Sequence[Mapping[str, torch.Tensor]]
) -> str:
    """The first entry of a table that is not what a call should make of its inputs, in words; empty if all are right. Inputs and
    tables are by rank, then by name."""
    made = [launch for launch in schedule.launches if isinstance(launch, SortRows | ListRows)]
    for launch in made:
        for rank in range(schedule.num_ranks):
            for name, place, wanted in _entries(schedule, launch, inputs, rank):
                found = int(tables[rank][name][place])
                if found != wanted:
                    return f"table {name}{list(place)} of rank {rank} is {found}, and {wanted} by its definition"
    return ""


def _entries(
    schedule: Schedule, launch: SortRows | ListRows, inputs: Sequence[Mapping[str, torch.Tensor]], rank: int
) -> Iterator[Entry]:
    if isinstance(launch, ListRows):
        yield from _listed(launch.sent, inputs[rank][launch.sent.ids].tolist(), schedule.num_ranks)
        return
    name = launch.routed.ids
    made = (one for one in schedule.launches if isinstance(one, CollectiveCall) and one.out == name)
    gathered = next(made, None)
    parts = [inputs[rank][name]] if gathered is None else [one[gathered.operand] for one in inputs]
    yield from _sorted(launch, launch.routed, torch.cat(parts).tolist(), rank)


def _sorted(launch: SortRows, routed: Routed, ids: Ids, rank: int) -> Iterator[Entry]:
    names, height, apart = launch.tables, launch.height, routed.parts > 1
    first = rank * routed.experts if apart else 0
    own = range(first, min(first + routed.experts, routed.every))
    assignments = [(token * routed.choices + j, one) for token, row in enumerate(ids) for j, one in enumerate(row)]
    groups = [[number for number, one in assignments if one == expert] for expert in own]
    if not apart:  # rows that no expert takes have tiles, too
        groups.append([number for number, one in assignments if one not in own])
    tile = 0
    for expert, group in enumerate(groups):
        for begin in range(0, len(group), height):
            rows = group[begin : begin + height]
            yield names.experts, (tile,), expert
            yield names.here, (tile,), len(rows)
            for row, number in enumerate(rows):
                yield names.rows, (tile * height + row,), number
                yield names.tokens, (tile * height + row,), number // routed.choices
            tile += 1
    yield names.count, (0,), tile
    for behind in range(tile, routed.most_tiles(height)):
        yield names.here, (behind,), 0


def _listed(sent: Sent, ids: Ids, ranks: int) -> Iterator[Entry]:
    for rank in range(ranks):
        own = range(rank * sent.experts, (rank + 1) * sent.experts)
        for block in range(sent.blocks):
            tokens = ids[block * sent.rows : (block + 1) * sent.rows]
            there = [place for place, row in enumerate(tokens) if any(one in own for one in row)]
            yield sent.here, (rank, block), len(there)
            for number, place in enumerate(there):
                yield sent.listed, (rank, block, number), place
