"""Another look at the structures that do best: what goes together only with another kind of mover or of loop.

Descent changes one field group at a time. A mover that is slower with the tiles of now may be the fastest with other tiles, or
with another mover of the next collective. So each kind of each field group is forced in turn, and all others follow it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import BoundSpec
from tilelink.planner.choices import ExchangeChoice, TritonLoop
from tilelink.planner.fallback import Tried
from tilelink.planner.search import Build, Option, Slot, remembering, slots_of, swept, try_options
from tilelink.planner.space import Structure
from topologies.topology import Topology

_ROUNDS = 2
_HOPELESS = 1.2  # times the best, with tiles that suit the kind: other fields will not make up for it

Slots = dict[Slot, list[Option]]
Choice = dict[Slot, Option]


def refined(
    spec: BoundSpec, topology: Topology, structure: Structure, pins: Mapping[str, str], tried: Tried
) -> Schedule | None:
    """The best schedule of a structure of which some were tried, after another look; None if none was."""
    start = tried.best_of(structure)
    first = start.again() if start is not None else None
    if start is None or first is None:
        return None
    slots = slots_of(structure, topology, pins)
    build = remembering(partial(try_options, spec, topology, structure), structure, tried)
    current, best = swept(slots, tuple(slots), dict(start.options), first, build)
    for _ in range(_ROUNDS):
        before = best.predicted_us
        for slot, options in slots.items():
            for group in _other_kinds(options, current[slot]):
                current, best = _forced({**slots, slot: group}, slot, current, best, build)
        if best.predicted_us == before:
            break
    return best


def _forced(slots: Slots, slot: Slot, current: Choice, best: Schedule, build: Build) -> tuple[Choice, Schedule]:
    """`current` and `best`, or what is better with one of the options that `slots` has for `slot`."""
    begun = next(_beginnings(slots, slot, current, build), None)
    if begun is None:
        return current, best
    here, found = begun
    # tiles first, which cost little to try and tell most
    loops = tuple(name for name in slots if name[0] == "compute")
    here, found = swept(slots, (*loops, slot), here, found, build, sweeps=1)
    if found.predicted_us < _HOPELESS * best.predicted_us:
        here, found = swept(slots, tuple(slots), here, found, build)
    return (here, found) if found.predicted_us < best.predicted_us else (current, best)


def _beginnings(slots: Slots, slot: Slot, current: Choice, build: Build) -> Iterator[tuple[Choice, Schedule]]:
    """Legal choices with an option of the kind: all else as it is, or with another kind in one more place."""
    options = slots[slot]
    now = current[slot]
    alike = [option for option in options if _numbers(option) == _numbers(now)]
    for option in dict.fromkeys((*alike[:1], options[0], options[-1])):
        trial = {**current, slot: option}
        others = (
            {**trial, other: group[0]}
            for other in slots
            if other != slot
            for group in _other_kinds(slots[other], current[other])
        )
        for one in (trial, *others):
            found, _ = build(one)
            if found is not None:
                yield one, found


def _numbers(option: Option) -> object:
    return (option.chunks, option.nest) if isinstance(option, ExchangeChoice) else None


def _other_kinds(options: list[Option], now: Option) -> Iterator[list[Option]]:
    """The options of each kind but that of `now`."""
    kinds: dict[object, list[Option]] = {}
    for option in options:
        kinds.setdefault(_kind(option), []).append(option)
    yield from (group for kind, group in kinds.items() if kind != _kind(now))


def _kind(option: Option) -> object:
    if isinstance(option, ExchangeChoice):
        return type(option.mover), option.transfer
    turns = isinstance(option.loop, TritonLoop) and option.loop.tile.warpgroups > 1
    return type(option.loop), turns, option.sum_in_epilogue
