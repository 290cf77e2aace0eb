"""Exchanges that one loop reads, such as keys and values: movers that suit it are of one kind, and change together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tilelink.planner.decisions import Chosen, Option, Slot
from tilelink.planner.moves import Options, nearest
from tilelink.planner.structure import Structure
from tilelink.planner.timing import Timing


def read_together(structure: Structure) -> Iterator[tuple[tuple[Slot, ...], Slot]]:
    """Several exchanges that one loop reads, with that loop."""
    for index, group in enumerate(structure.groups):
        found = [one.name for one in structure.relations if index in structure.readers(one.name)]
        if len(found) > 1 and not structure.is_library(index):
            yield tuple(("exchange", name) for name in found), ("compute", group.name)


def by_one_kind(
    slots: Mapping[Slot, Options], current: Chosen, timing: Timing, exchanges: Sequence[Slot], reader: Slot
) -> Iterator[dict[Slot, Option]]:
    """All of the exchanges by each kind that they have in common, with each kind of the loop that reads them; of each the options
    that take least at least."""
    if reader not in slots or any(slot not in slots for slot in exchanges):
        return
    for kind in slots[exchanges[0]].by_kind:
        if any(kind not in slots[slot].by_kind for slot in exchanges):
            continue
        moved = {**current, **{slot: nearest(slots[slot].by_kind[kind], current[slot]) for slot in exchanges}}
        for group in slots[reader].by_kind.values():
            trials = [{**moved, reader: found[0]} for found in Options(group).by_first.values()]
            yield min(trials, key=lambda trial: timing.us(trial, 0.0))
