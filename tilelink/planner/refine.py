"""Another look at the structures that do best: what goes together only with another kind of mover or of loop.

Descent changes one decision at a time. A mover that is slower with the tiles of now may be the fastest with other tiles, or
with another mover of the next collective. So each kind of each decision is forced in turn, and all others follow it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from tilelink.planner.decisions import Chosen, Option, Slot, Slots, legal_alone, slots_of
from tilelink.planner.moves import COMPUTE, nearest, other_kinds
from tilelink.planner.search import swept
from tilelink.planner.timing import Candidate, Timing

_ROUNDS = 2
_HOPELESS = 1.2  # times the best, with tiles that suit the kind: other fields will not make up for it


def refined(start: Candidate, pins: Mapping[str, str], timing: Timing) -> tuple[Chosen, float]:
    """The best choices of the structure of `start` after another look, and their time."""
    slots, _ = legal_alone(start.structure, slots_of(start.structure, pins))
    current, best = swept(slots, tuple(slots), start.options, timing)
    for _ in range(_ROUNDS):
        before = best
        for slot, options in slots.items():
            for group in other_kinds(options, current[slot]):
                current, best = _forced({**slots, slot: tuple(group)}, slot, current, best, timing)
        if best == before:
            break
    return current, best


def _forced(slots: Slots, slot: Slot, current: Chosen, best: float, timing: Timing) -> tuple[Chosen, float]:
    """`current` and `best`, or what is better with one of the options that `slots` has for `slot`."""
    begun = next((one for one in _beginnings(slots, slot, current) if timing.us(one) < math.inf), None)
    if begun is None:
        return current, best
    # tiles first, which cost little to try and tell most
    loops = tuple(name for name in slots if name[0] == COMPUTE)
    here, found = swept(slots, (*loops, slot), begun, timing, sweeps=1)
    if found < _HOPELESS * best:
        here, found = swept(slots, tuple(slots), here, timing)
    return (here, found) if found < best else (current, best)


def _beginnings(slots: Slots, slot: Slot, current: Chosen) -> Iterator[dict[Slot, Option]]:
    """Choices with an option of the kind: all else as it is, or with another kind in one more place."""
    options = slots[slot]
    for option in dict.fromkeys((nearest(options, current[slot]), options[0], options[-1])):
        trial = {**current, slot: option}
        yield trial
        for other in slots:
            if other != slot:
                yield from ({**trial, other: group[0]} for group in other_kinds(slots[other], current[other]))
