"""The best choices of a structure: coordinate descent over its decisions, from several starts.

Moves are those of `moves.FIELDS`, whatever the fields mean: all values of the fields that lead with what follows as it is,
then all that follows of the best of these; and kinds of two decisions together, where one makes what the other one sends.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import product

from tilelink.ir.nodes import Kind
from tilelink.planner.decisions import Chosen, Option, Slot, Slots, legal_alone, slots_of
from tilelink.planner.moves import COMPUTE, WIDTH, by_kind, by_leading, kind_of, leading, nearest, of, other_kinds
from tilelink.planner.structure import Structure
from tilelink.planner.timing import Candidate, Timing

_SWEEPS = 2


def best_of(structure: Structure, pins: Mapping[str, str], timing: Timing) -> tuple[Candidate | None, str]:
    """The best choices of a structure, or None with the reason.

    By descent over its decisions, once for each place of each sum, since no change of one decision leads from one place to the
    other where chunks go with it; and once for each kind of mover of an output that peers put together, which also decides
    who has to make the sums."""
    slots, why = legal_alone(structure, slots_of(structure, pins))
    if why:
        return None, why
    reasons = []
    for some in _starts(slots, structure.graph.outputs):
        start, reason = first_legal(some, timing)
        if start is not None:
            descend(some, start, timing, senders(structure))
        reasons.append(reason)
    exact = [candidate for candidate in timing.candidates() if candidate.exact]
    best = min(exact, key=lambda candidate: candidate.us, default=None)
    return best, "" if best is not None else next(reason for reason in reasons if reason)


def _starts(slots: Slots, outputs: tuple[str, ...]) -> Iterator[dict[Slot, tuple[Option, ...]]]:
    """The options with each sum in one place, and one kind of mover for each output."""
    places = []
    for slot, options in slots.items():
        if slot[0] == COMPUTE or slot[1] in outputs:
            where = dict.fromkeys(map(_place, options))
            places += [[(slot, place) for place in where]] if len(where) > 1 else []
    for chosen in product(*places):
        kept = dict(chosen)
        yield {
            slot: tuple(o for o in options if slot not in kept or _place(o) == kept[slot])
            for slot, options in slots.items()
        }


def _place(option: Option) -> object:
    return kind_of(option)[:2] if of(option) == COMPUTE else kind_of(option)[0]


def senders(structure: Structure) -> list[tuple[Slot, Slot]]:
    """Relations whose parts tiles make, each with the group of these tiles."""
    return [
        (("exchange", relation.name), ("compute", structure.groups[structure.maker(relation.source)].name))
        for relation in structure.relations
        if relation.kind is Kind.SCATTER and structure.by_tiles(relation.source)
    ]


def descend(slots: Slots, start: Chosen, timing: Timing, pairs: list[tuple[Slot, Slot]]) -> tuple[Chosen, float]:
    """Change one decision after the other to its best option, from the last one to the first: tiles, then movers that suit
    them. Kinds that are good together only are tried at the end. What else hides the best is looked for where it may
    matter (`tilelink.planner.refine`)."""
    current, best = swept(slots, tuple(reversed(tuple(slots))), start, timing, sweeps=1)
    for trial in [trial for pair in pairs for trial in _together(slots, current, pair)]:
        us = timing.us(trial, best)
        if us < best:
            current, best = swept(slots, tuple(slots), trial, timing)
    return current, best


def _together(slots: Slots, current: Chosen, pair: tuple[Slot, Slot]) -> Iterator[dict[Slot, Option]]:
    """Another kind of both decisions of a pair at once, each with what follows as it is."""
    first, second = pair
    if first in slots and second in slots:
        for some in other_kinds(slots[first], current[first]):
            for group in other_kinds(slots[second], current[second]):
                for option in by_leading(group).values():
                    yield {**current, first: nearest(some, current[first]), second: option[0]}


def swept(
    slots: Slots, order: tuple[Slot, ...], current: Chosen, timing: Timing, sweeps: int = _SWEEPS
) -> tuple[Chosen, float]:
    """Where sweeps over the decisions in `order` end that begin at `current`, and the time there."""
    best = timing.us(current)
    for _ in range(sweeps):
        before = best
        for slot in order:
            current, best = _changed(slots[slot], slot, current, best, timing)
        if best == before:
            break
    return current, best


def _changed(
    options: tuple[Option, ...], slot: Slot, current: Chosen, best: float, timing: Timing
) -> tuple[Chosen, float]:
    """`current` with the best option of the slot: of the best values of fields that lead, all that follows."""
    now, width = current[slot], WIDTH[slot[0]]
    groups = by_leading(options)
    times: dict[tuple[object, ...], float] = {}
    trials = {values: {**current, slot: nearest(group, now)} for values, group in groups.items()}
    for values in sorted(trials, key=lambda values: timing.us(trials[values], 0.0)):  # by what they take at least
        ranked = sorted(times.values())
        limit = ranked[width - 1] if len(ranked) >= width else math.inf
        times[values] = timing.us(trials[values], limit)
    kept = sorted(times, key=lambda values: times[values])[:width]
    for values in dict.fromkeys((*kept, leading(now))):
        for option in groups.get(values, ()):
            trial = {**current, slot: option}
            us = timing.us(trial, best)
            if us < best:
                best, current = us, trial
    return current, best


def first_legal(slots: Slots, timing: Timing) -> tuple[Chosen | None, str]:
    """The first options that go together, or None and why not: change one slot at a time, then pairs of slots, from the
    first of each."""
    start = {slot: options[0] for slot, options in slots.items()}
    for trial in _near(slots, start):
        if timing.us(trial) < math.inf:
            return trial, ""
    return None, timing.why_not(start)


def _near(slots: Slots, start: dict[Slot, Option]) -> Iterator[dict[Slot, Option]]:
    yield start
    for slot, options in slots.items():
        yield from ({**start, slot: group[0]} for group in by_leading(options).values())
    names = list(slots)
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            for a, b in product(_smallest(slots[first]), _smallest(slots[second])):
                yield {**start, first: a, second: b}


def _smallest(options: tuple[Option, ...]) -> list[Option]:
    """One option for each kind, on which legality mostly depends: that with the smallest tile or chunks."""
    return [list(by_leading(group).values())[-1][0] for group in by_kind(options).values()]
