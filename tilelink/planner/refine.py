"""Another look at the structures that do best: what goes together only with another kind of mover or of loop.

Descent changes one decision at a time. A mover that is slower with the tiles of now may be the fastest with other tiles, or
with another mover of the next collective. So each kind of each decision is forced in turn, and all others follow it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from tilelink.ir.choices import ComputeChoice, TritonLoop
from tilelink.planner.decisions import Option, Slot
from tilelink.planner.moves import COMPUTE, Options, When, in_step, nearest, other_kinds, values
from tilelink.planner.search import HOPELESS, Descent, Place
from tilelink.planner.structure import Structure
from tilelink.planner.timing import Candidate
from tilelink.planner.together import by_one_kind, read_together

_ROUNDS = 2
_WORTH = 1.9  # times the best, of a beginning: of 446 of recorded plans, 3 came below it, from at most so far above


def refined(start: Candidate, search: Descent) -> Place:
    """The best choices of the structure of `start`, which `search` has found, after another look."""
    here = search.swept(tuple(search.slots), Place(start.options, start.us))
    for _ in range(_ROUNDS):
        before = here.us
        for slot, options in search.slots.items():
            for group in other_kinds(options, here.chosen[slot]):
                forced = replace(search.only(slot, group), ceiling=HOPELESS * here.us)
                found = _forced(forced, slot, here)
                here = found if found.us < here.us else here
        for exchange, maker in _made_by_tiles(start.structure):
            near = replace(search, ceiling=HOPELESS * here.us)
            for trial in _cut_otherwise(search, here, exchange):
                us = near.timing.us(trial, near.ceiling)
                if us < near.ceiling:
                    found = near.swept((maker,), Place(trial, us), sweeps=1)
                    here = found if found.us < here.us else here
        for first, second, between in _chains(start.structure):
            for trial in _in_step(search, here, first, second):
                near = replace(search, ceiling=HOPELESS * here.us)
                found = near.swept((between,), Place(trial, near.timing.us(trial, near.ceiling)), sweeps=1)
                here = found if found.us < here.us else here
        for exchanges, reader in read_together(start.structure):
            near = replace(search, ceiling=HOPELESS * here.us)
            for trial in by_one_kind(search.slots, search.base(here.chosen), near.timing, exchanges, reader):
                us = near.timing.us(trial, near.ceiling)
                if us < near.ceiling:
                    found = near.swept((reader, *exchanges), Place(trial, us), sweeps=1)
                    here = found if found.us < here.us else here
        if here.us == before:
            break
    return here


def _chains(structure: Structure) -> Iterator[tuple[Slot, Slot, Slot]]:
    """Exchanges of which the second one sends what a loop makes of what the first one brings, with that loop."""
    for first in structure.relations:
        for second in structure.relations:
            maker = structure.maker(second.source)
            if maker >= 0 and maker in structure.readers(first.name) and not structure.is_library(maker):
                yield ("exchange", first.name), ("exchange", second.name), ("compute", structure.groups[maker].name)


def _made_by_tiles(structure: Structure) -> Iterator[tuple[Slot, Slot]]:
    """Exchanges whose source tiles make, each with the group of these tiles."""
    for relation in structure.relations:
        if structure.by_tiles(relation.source):
            yield ("exchange", relation.name), ("compute", structure.groups[structure.maker(relation.source)].name)


def _cut_otherwise(search: Descent, here: Place, exchange: Slot) -> Iterator[dict[Slot, Option]]:
    """The exchange by the same mover in other chunks or another order: more of them suit smaller tiles of what makes them."""
    current = search.base(here.chosen)
    for option in search.slots[exchange].by_first[values(current[exchange], When.FIRST)]:
        if option != current[exchange]:
            yield {**current, exchange: option}


def _in_step(search: Descent, here: Place, first: Slot, second: Slot) -> Iterator[dict[Slot, Option]]:
    """Two exchanges with the same chunks in the same order: what arrives by the first one leaves by the second one at once."""
    current = search.base(here.chosen)
    groups = [search.slots[slot].by_first[values(current[slot], When.FIRST)] for slot in (first, second)]
    by_step = [{in_step(option): option for option in group} for group in groups]
    for step in by_step[0]:
        if step in by_step[1]:
            yield {**current, first: by_step[0][step], second: by_step[1][step]}


def _forced(search: Descent, slot: Slot, here: Place) -> Place:
    """The best with one of the options that are left for `slot`, or `here`."""
    limit = _WORTH * here.us
    begun = next((one for one in _beginnings(search, slot, here) if search.timing.us(one, limit) < math.inf), None)
    if begun is None or search.timing.us(begun, limit) >= limit:
        return here
    # tiles first, which cost little to try and tell most
    loops = tuple(name for name in search.slots if name[0] == COMPUTE)
    found = search.swept((*loops, slot), Place(begun, search.timing.us(begun)), sweeps=1)
    return search.swept(tuple(search.slots), found) if found.us < search.ceiling else found


def _beginnings(search: Descent, slot: Slot, here: Place) -> Iterator[dict[Slot, Option]]:
    """Choices with an option of the kind: all else as it is, or with another kind in one more place, or with tiles of a loop
    that are alone on an SM, as they are beside programs that communicate."""
    options, current = search.slots[slot], search.base(here.chosen)
    for option in dict.fromkeys((nearest(options, current[slot]), options[0], options[-1])):
        trial = {**current, slot: option}
        yield trial
        for other in search.slots:
            if other != slot:
                yield from ({**trial, other: group[0]} for group in other_kinds(search.slots[other], current[other]))
                yield from ({**trial, other: one} for one in _alone(search.slots[other], current[other]))


def _alone(options: Options, now: Option) -> list[Option]:
    """The nearest tiles that are alone on an SM, where those of `now` share it."""
    found = [one for one in options if not _shares(one)] if _shares(now) else []
    return [nearest(found, now)] if found else []


def _shares(option: Option) -> bool:
    loop = option.loop if isinstance(option, ComputeChoice) else None
    return isinstance(loop, TritonLoop) and loop.tile.per_sm > 1
