"""Tables that index programs have made in a call, next to their definition (`tilelink.ir.routed`).

The proof of a schedule takes the laws of tables for granted. So every emulated call is held against what the tables would be by
a loop over its ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from tilelink.ir.calls import CollectiveCall, ListPlaces, ListRows, SortRows
from tilelink.ir.placement import share
from tilelink.ir.routed import Readers
from tilelink.ir.schedule import Schedule
from tilelink.schedule.tables import Entries, listed_rows, placed_rows, sorted_rows

Entry = tuple[str, tuple[int, ...], int]  # of a table, its place, and what it is by the definition


def tables_of(schedule: Schedule) -> tuple[str, ...]:
    """Names of the tables that each call makes, which are attributes of an operator."""
    found = list[str]()
    for launch in schedule.launches:
        if isinstance(launch, SortRows):
            found += launch.made[2:]  # counts are what it makes them of
        elif isinstance(launch, ListRows):
            lists = launch.lists(schedule.num_ranks, schedule.ranks_per_node)
            found += [lists.listed, lists.here]
        elif isinstance(launch, ListPlaces):
            found += [launch.placed.listed, launch.placed.placed, launch.placed.here]
    return tuple(found)


def wrong_table(
    schedule: Schedule, inputs: Sequence[Mapping[str, torch.Tensor]], tables: Sequence[Mapping[str, torch.Tensor]]
) -> str:
    """The first entry of a table that is not what a call should make of its inputs, in words; empty if all are right. Inputs and
    tables are by rank, then by name."""
    made = [launch for launch in schedule.launches if isinstance(launch, SortRows | ListRows | ListPlaces)]
    for launch in made:
        for rank in range(schedule.num_ranks):
            for name, place, wanted in _entries(schedule, launch, inputs, rank):
                found = int(tables[rank][name][place])
                if found != wanted:
                    return f"table {name}{list(place)} of rank {rank} is {found}, and {wanted} by its definition"
    return ""


def _entries(
    schedule: Schedule,
    launch: SortRows | ListRows | ListPlaces,
    inputs: Sequence[Mapping[str, torch.Tensor]],
    rank: int,
) -> Iterator[Entry]:
    if isinstance(launch, ListRows):
        local = schedule.ranks_per_node
        lists = launch.lists(schedule.num_ranks, local)
        reader = {Readers.OF_NODE: rank // local * local, Readers.OWN: rank}.get(lists.of, 0)
        shape = lists.lists, lists.parts * lists.blocks, lists.rows
        made = listed_rows(_ids(schedule, lists.ids, inputs, rank).numpy(), lists.experts, shape, reader)
        yield from _named((lists.listed, lists.here), made)
        return
    if isinstance(launch, ListPlaces):
        placed, routed = launch.placed, launch.placed.routed
        own = range(rank * placed.tokens, (rank + 1) * placed.tokens)
        ids, pieces = _ids(schedule, routed.ids, inputs, rank).numpy(), (placed.ranks, placed.pieces)
        placed_at = placed_rows(ids, own, (routed.experts, routed.every), placed.height, pieces)
        yield from _named((placed.listed, placed.placed, placed.here), placed_at)
        return
    routed, height = launch.routed, launch.height
    mine = share(routed.every, routed.parts, rank if routed.parts > 1 else 0)
    whole, tiles = _ids(schedule, routed.ids, inputs, rank).numpy(), routed.most_tiles(height)
    each = routed.tokens // schedule.num_ranks
    first = range(rank * each, (rank + 1) * each) if launch.own_first else None
    found = sorted_rows(whole, mine, height, tiles, of_all=routed.parts == 1, first=first)
    yield from _named(launch.made[2:], found)


def _ids(schedule: Schedule, name: str, inputs: Sequence[Mapping[str, torch.Tensor]], rank: int) -> torch.Tensor:
    """Those of an input of the rank, or of all ranks where a call gathers them."""
    calls = (one for one in schedule.launches if isinstance(one, CollectiveCall) and one.out == name)
    gathered = next(calls, None)
    return inputs[rank][name] if gathered is None else torch.cat([one[gathered.operand] for one in inputs])


def _named(names: Sequence[str], made: Sequence[Entries]) -> Iterator[Entry]:
    for name, entries in zip(names, made, strict=True):
        for place, wanted in entries.items():
            yield name, place, wanted
