"""What else is worth measuring: schedules that the model puts close behind the one that it picks.

The model is wrong by about 5 % on average, so that what it ranks first is not always what runs first. Of two schedules that
are nearly alike one is enough, so each alternative decides something otherwise that no better one does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet

from tilelink.errors import NoLegalSchedule
from tilelink.ir.movers import Library
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import BoundSpec
from tilelink.planner import fields
from tilelink.planner.build import build
from tilelink.planner.choices import Pin, Pins
from tilelink.planner.collectives import collective_pins, legal_collectives
from tilelink.planner.decisions import Slot, choices_of, legal_alone, pins_of, slots_of
from tilelink.planner.in_library import in_library
from tilelink.planner.layout import Problem
from tilelink.planner.plan import plan_with
from tilelink.planner.space import structures
from tilelink.planner.structure import Structure
from tilelink.planner.timing import Timing
from tilelink.proof.verify import verify
from topologies.topology import Topology

_HARDLY_MATTER = (
    fields.GROUP,
    fields.PREFETCH,
    fields.TAIL,
)  # fields: schedules that differ in these alone are one alternative
_LOOP_FIELDS = tuple(field for field in fields.OF_LOOPS if field not in (fields.COMPUTE, fields.SUM))
_WORTH = 1.3  # of the time of the best one; the model has been wrong by 28 % at most


def alternatives(topology: Topology, best: Schedule, count: int) -> list[Schedule]:
    """At most `count` proven schedules besides `best`, which the planner has picked without pins. First those that differ from
    `best` in a field in which no earlier one does, then those that have a value there that no earlier one has; of each kind
    the smallest predicted time first.

    They are the best schedules of the other structures (algorithms of collectives, matmuls by the library), and those that
    come from `best` by another mover, transfer, chunks and order of one exchange, or by another tile loop.
    """
    every = [*_of_other_structures(topology, best), *_neighbours(topology, best)]
    found = [schedule for schedule in every if schedule.predicted_us <= _WORTH * best.predicted_us]
    found.sort(key=lambda schedule: schedule.predicted_us)
    programs, chosen = {best.program.hash}, list[Schedule]()
    fields_and_values: tuple[Callable[[Pin, object], object], ...] = (
        lambda pin, _: pin,
        lambda pin, value: (pin, value),
    )
    for what in fields_and_values:
        varied = {what(*one) for schedule in chosen for one in _differing(topology, schedule, best).items()}
        for schedule in found:
            differs = {what(*one) for one in _differing(topology, schedule, best).items()}
            new = len(chosen) < count and schedule.program.hash not in programs and not differs <= varied
            if new and verify(schedule).proved:  # one that is refuted is a mistake of ours, and never given out
                programs.add(schedule.program.hash)
                varied |= differs
                chosen.append(schedule)
    return chosen


def library_schedule(spec: BoundSpec, topology: Topology) -> Schedule | None:
    """What a user would write with library calls: each collective, matmul and attention is one, one after the other. None where
    not all of them have such a call."""
    pins: dict[Pin, object] = {(name, fields.COMPUTE): True for name in in_library(spec)}
    for name, ways in legal_collectives(spec, topology):
        calls = [how for how in ways if how.mover == Library()]
        if not calls:
            return None
        pins |= collective_pins(spec, ((name, calls[0]),))
    try:
        return plan_with(spec, topology, pins)
    except NoLegalSchedule:
        return None


def _differing(topology: Topology, schedule: Schedule, best: Schedule) -> dict[Pin, object]:
    """Choices that are others than in `best`, with their values."""
    found, held = (pins_of(one.spec, topology, one.decided) for one in (schedule, best))
    by_library = schedule.by_library | best.by_library
    whole = _whole(schedule) & _whole(best)
    return {
        pin: value
        for pin, value in found.items()
        if held.get(pin, value) != value and not _follows(pin, by_library, whole)
    }


def _whole(schedule: Schedule) -> frozenset[str]:
    """Exchanges of parts that move as a whole."""
    return frozenset(name for name, choice in schedule.decided.exchanges if choice.chunks == 1)


def _follows(pin: Pin, by_library: AbstractSet[str], whole: AbstractSet[str]) -> bool:
    """Whether a choice hardly matters, says once more whether the library computes a value, or orders the chunks of a part that
    moves as a `whole`: chunk by chunk is rank by rank there."""
    name, field = pin
    if field in _HARDLY_MATTER or (field is fields.NEST and name in whole):
        return True
    return name in by_library and field in _LOOP_FIELDS


def _of_other_structures(topology: Topology, best: Schedule) -> Iterator[Schedule]:
    """The best schedule of each structure but that of `best`."""
    able = in_library(best.spec)
    held = pins_of(best.spec, topology, best.decided)
    for structure in structures(best.spec, topology, {}):
        pins = collective_pins(best.spec, structure.collectives)
        pins |= {(name, fields.COMPUTE): name in structure.library for name in able}
        pins |= {(name, fields.LOOP): shared for name, shared in structure.loops}
        if pins.items() <= held.items():
            continue
        try:
            yield plan_with(best.spec, topology, pins)
        except NoLegalSchedule:
            continue


def _neighbours(topology: Topology, best: Schedule) -> Iterator[Schedule]:
    """Legal schedules that differ from `best` in one exchange or in one tile loop."""
    pins = pins_of(best.spec, topology, best.decided)
    for structure in structures(best.spec, topology, pins):
        for slot in slots_of(structure, pins):
            others = {pin: value for pin, value in pins.items() if not _is_of(pin, slot)}
            yield from _in_slot(best, structure, slot, others)


def _is_of(pin: Pin, slot: Slot) -> bool:
    """Whether a choice is one of the slot."""
    kind, name = slot
    return pin[0] == name and pin[1] in (fields.OF_EXCHANGES if kind == "exchange" else _LOOP_FIELDS)


def _in_slot(best: Schedule, structure: Structure, slot: Slot, pins: Pins) -> Iterator[Schedule]:
    """Those that are worth it and differ in the slot."""
    slots, why = legal_alone(structure, slots_of(structure, pins))
    if why:
        return
    rest = {name: options[0] for name, options in slots.items()}  # the only one each
    timing = Timing(structure)
    for option in slots[slot]:
        chosen = {**rest, slot: option}
        if timing.us(chosen, _WORTH * best.predicted_us) <= _WORTH * best.predicted_us:
            yield build(Problem(structure, choices_of(structure, chosen)))
