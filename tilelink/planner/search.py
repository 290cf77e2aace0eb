"""The best schedule of a structure: coordinate descent over its fields, from several starts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product

from tilelink.ir.nodes import Fused, Kind, Transfer
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import BoundSpec
from tilelink.planner.build import build
from tilelink.planner.choices import Choices, ComputeChoice, ExchangeChoice, TritonLoop
from tilelink.planner.cost import predict_us
from tilelink.planner.fallback import Candidate, Tried
from tilelink.planner.halves import tiles_to_halve
from tilelink.planner.layout import Illegal, Problem
from tilelink.planner.open_fields import is_open, opened, settled, with_field
from tilelink.planner.space import Structure, compute_options, exchange_options
from topologies.topology import Topology

_SWEEPS = 2
_BEAM = 4  # movers of an exchange of which all chunks and orders are tried
_MANY_TILES = 6  # a program: a first guess of where it pays to count late; the search tries the other way at its end

Found = tuple[Schedule | None, str]  # or why there is none
Option = ExchangeChoice | ComputeChoice
Slot = tuple[str, str]  # ("exchange" | "compute", name)
Build = Callable[[Mapping[Slot, Option]], Found]


def best_of(
    spec: BoundSpec, topology: Topology, structure: Structure, pins: Mapping[str, str], tried: Tried
) -> tuple[Schedule | None, str]:
    """Best schedule of a structure, or None with the reason; all legal ones that were built are added to `tried`.

    By coordinate descent over its fields, once for each place of each sum, since no change of one field leads from one place
    to the other where chunks go with it; and once for each kind of mover of an output that peers put together, which also
    decides who has to make the sums."""
    slots = slots_of(structure, topology, pins)
    if any(not options for options in slots.values()):
        empty = next(name for name, options in slots.items() if not options)
        return None, f"the pins leave no option for {empty[1]}"
    build_one = remembering(partial(try_options, spec, topology, structure), structure, tried)
    found = [_descend(some, build_one, _senders(structure)) for some in _starts(slots, structure.graph.outputs)]
    best = min((schedule for schedule, _ in found if schedule is not None), key=_predicted, default=None)
    return best, "" if best is not None else next(why for _, why in found)


def remembering(build_one: Build, structure: Structure, tried: Tried) -> Build:
    """`build_one`, whose results are known when they are asked for again, and found in `tried`."""
    known: dict[tuple[Option, ...], Found] = {}

    def again(chosen: Mapping[Slot, Option]) -> Schedule | None:
        return build_one(chosen)[0]

    def build(chosen: Mapping[Slot, Option]) -> Found:
        key = tuple(chosen.values())
        if key not in known:
            known[key] = build_one(chosen)
            schedule = known[key][0]
            if schedule is not None:
                held = dict(chosen)
                tried.found.append(Candidate(schedule.predicted_us, structure, held, partial(again, held)))
        return known[key]

    return build


def _predicted(schedule: Schedule) -> float:
    return schedule.predicted_us


def _starts(slots: dict[Slot, list[Option]], outputs: tuple[str, ...]) -> Iterator[dict[Slot, list[Option]]]:
    """The options with each sum in one place, and one kind of mover for each output."""
    places = []
    for slot, options in slots.items():
        if slot[0] == "compute" or slot[1] in outputs:
            where = dict.fromkeys(map(_place, options))
            places += [[(slot, place) for place in where]] if len(where) > 1 else []
    for chosen in product(*places):
        kept = dict(chosen)
        yield {
            slot: [o for o in options if slot not in kept or _place(o) == kept[slot]] for slot, options in slots.items()
        }


def _place(option: Option) -> object:
    return option.sum_in_epilogue if isinstance(option, ComputeChoice) else type(option.mover)


def _senders(structure: Structure) -> list[tuple[Slot, Slot]]:
    """Relations whose parts tiles may store at peers, each with the group of these tiles."""
    return [
        (("exchange", relation.name), ("compute", group.name))
        for relation in structure.graph.relations()
        for group in structure.groups
        if relation.kind is Kind.SCATTER and not relation.library and group.makes(relation.source)
    ]


def _in_turns(
    slots: dict[Slot, list[Option]], current: dict[Slot, Option], sender: tuple[Slot, Slot]
) -> Iterator[dict[Slot, Option]]:
    """Tiles in turns whose parts leave as they are made: neither is good without the other."""
    exchange, compute = sender
    fused = [o for o in slots.get(exchange, ()) if isinstance(o, ExchangeChoice) and isinstance(o.mover, Fused)]
    for pushed in [o for o in fused if o.transfer is Transfer.PUSH][:1]:
        for option in slots.get(compute, ()):
            loop = option.loop if isinstance(option, ComputeChoice) else None
            if isinstance(loop, TritonLoop) and loop.tile.warpgroups > 1:
                yield {**current, exchange: pushed, compute: option}


def _descend(
    slots: dict[Slot, list[Option]],
    build: Build,
    senders: list[tuple[Slot, Slot]],
) -> tuple[Schedule | None, str]:
    """Change one field group after the other to its best option, from the last one to the first: tiles, then movers that suit
    them. Pairs that are good together only are tried at the end (`_in_turns`). What else hides the best is looked for
    where it may matter (tilelink.planner.refine)."""
    start, first, why = first_legal(slots, build)
    if first is None:
        return None, why
    current, best = swept(slots, tuple(reversed(slots)), start, first, build, sweeps=1)
    for trial in [trial for sender in senders for trial in _in_turns(slots, current, sender)]:
        candidate, _ = build(trial)
        if candidate is not None and candidate.predicted_us < best.predicted_us:
            current, best = swept(slots, tuple(slots), trial, candidate, build)
    for (slot, option), late in product(current.items(), (False, True)):  # when tiles are counted decides little else
        if is_open(option, "late"):
            trial = {**current, slot: with_field(option, "late", late)}
            candidate, _ = build(trial)
            if candidate is not None and candidate.predicted_us < best.predicted_us:
                best, current = candidate, trial
    return best, ""


def swept(
    slots: dict[Slot, list[Option]],
    order: tuple[Slot, ...],
    current: dict[Slot, Option],
    best: Schedule,
    build: Build,
    sweeps: int = _SWEEPS,
) -> tuple[dict[Slot, Option], Schedule]:
    """Where sweeps over the field groups in `order` end that begin at `current`."""
    for _ in range(sweeps):
        before = best.predicted_us
        for slot in order:
            for option in _promising(slots[slot], slot, current, build):
                candidate, _ = build({**current, slot: option})
                if candidate is not None and candidate.predicted_us < best.predicted_us:
                    best, current = candidate, {**current, slot: option}
        if best.predicted_us == before:
            break
    return current, best


def _promising(options: list[Option], slot: Slot, current: dict[Slot, Option], build: Build) -> list[Option]:
    """Of an exchange, the options with the movers and transfers that do best with the chunks and order of now, and those of
    the present mover; of a group, all."""
    now = current[slot]
    if not isinstance(now, ExchangeChoice):
        return options
    by_mover: dict[object, list[ExchangeChoice]] = {}
    for option in options:
        assert isinstance(option, ExchangeChoice), "options of a slot are of one kind"
        by_mover.setdefault((option.mover, option.transfer), []).append(option)
    times: dict[object, float] = {}
    for key, group in by_mover.items():
        alike = [option for option in group if (option.chunks, option.nest) == (now.chunks, now.nest)]
        found, _ = build({**current, slot: (alike or group)[0]})
        times[key] = found.predicted_us if found is not None else math.inf
    kept = {*sorted(times, key=lambda key: times[key])[:_BEAM], (now.mover, now.transfer)}
    return [option for key, group in by_mover.items() if key in kept for option in group]


def slots_of(structure: Structure, topology: Topology, pins: Mapping[str, str]) -> dict[Slot, list[Option]]:
    """Every field group of a structure with its options."""
    slots: dict[Slot, list[Option]] = {}
    for relation in structure.graph.relations():
        if not relation.library:
            slots["exchange", relation.name] = list(exchange_options(structure, relation, topology, pins))
    for group in structure.groups:
        slots["compute", group.name] = list(opened(compute_options(structure, group, topology, pins)))
    return slots


def first_legal(slots: dict[Slot, list[Option]], build_one: Build) -> tuple[dict[Slot, Option], Schedule | None, str]:
    """The first options that go together: change one slot at a time, then pairs of slots, from the first of each."""
    start = {slot: options[0] for slot, options in slots.items()}
    found, why = build_one(start)
    if found is not None:
        return start, found, ""
    names = list(slots)
    for slot in names:
        for option in slots[slot]:
            trial = {**start, slot: option}
            found, why = build_one(trial)
            if found is not None:
                return trial, found, ""
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            for a in _distinct(slots[first]):
                for b in _distinct(slots[second]):
                    trial = {**start, first: a, second: b}
                    found, why = build_one(trial)
                    if found is not None:
                        return trial, found, ""
    return start, None, why


def _distinct(options: list[Option]) -> list[Option]:
    """One option for each kind of mover and place of sum: what legality depends on; the smallest tile."""
    seen: dict[object, Option] = {}
    for option in options:
        key = (
            (type(option.mover), option.transfer)
            if isinstance(option, ExchangeChoice)
            else (type(option.loop), option.sum_in_epilogue)
        )
        seen[key] = option
    return list(seen.values())


def choices_of(structure: Structure, chosen: Mapping[Slot, Option]) -> Choices:
    exchanges = tuple((name, o) for (_, name), o in chosen.items() if isinstance(o, ExchangeChoice))
    computes = tuple((name, o) for (_, name), o in chosen.items() if isinstance(o, ComputeChoice))
    return Choices(structure.algorithms, exchanges, computes, structure.loops)


def try_options(
    spec: BoundSpec, topology: Topology, structure: Structure, chosen: Mapping[Slot, Option]
) -> tuple[Schedule | None, str]:
    """The schedule of these options with its predicted time, or None and why not. Tails that are open get halves where
    that takes less time, one after the other."""
    taken: dict[Slot, Option] = {slot: settled(option) for slot, option in chosen.items()}
    late = {
        slot: with_field(option, "late", True)
        for slot, option in taken.items()
        if is_open(chosen[slot], "late")
        and isinstance(option, ComputeChoice)
        and _counts_many(structure, topology, slot, option)
    }
    best, why = _built(spec, topology, structure, {**taken, **late})
    if late and best is None:
        best, why = _built(spec, topology, structure, taken)
    elif late:
        taken = {**taken, **late}
    for slot, option in chosen.items():
        if best is not None and is_open(option, "halves") and _can_be_halved(best, slot[1]):
            trial = {**taken, slot: settled(with_field(option, "halves", True))}
            found, _ = _built(spec, topology, structure, trial)
            if found is not None and found.predicted_us < best.predicted_us:
                best, taken = found, trial
    return best, why


def _counts_many(structure: Structure, topology: Topology, slot: Slot, option: ComputeChoice) -> bool:
    """Whether each program has so many tiles to count that to count them late is a good guess, while all else is open."""
    group = next(group for group in structure.groups if group.name == slot[1])
    sent = any(relation.source == group.name and not relation.library for relation in structure.graph.relations())
    if not sent or not isinstance(option.loop, TritonLoop) or not option.loop.prefetch:
        return False
    if option.loop.tile.warpgroups > 1:  # they count at once
        return False
    rows, *_, cols = (axis.extent for axis in group.anchor.axes if not axis.reduction)
    tiles = -(-rows // option.loop.tile.m) * -(-cols // option.loop.tile.n)
    return tiles >= _MANY_TILES * topology.gpu.num_sms


def _can_be_halved(schedule: Schedule, name: str) -> bool:
    """Whether it is worth while to build the schedule again with halves of the tiles of `name`."""
    roles = [kernel.compute for kernel in schedule.kernels() if kernel.compute and kernel.compute.name == name]
    try:
        return any(role.warpgroups == 1 and tiles_to_halve(role) for role in roles)
    except Illegal:
        return False


def _built(
    spec: BoundSpec, topology: Topology, structure: Structure, chosen: Mapping[Slot, Option]
) -> tuple[Schedule | None, str]:
    problem = Problem(structure.graph, structure.groups, topology, choices_of(structure, chosen), roles=structure.roles)
    try:
        schedule = build(spec, problem)
    except Illegal as illegal:
        return None, str(illegal)
    return replace(schedule, predicted_us=round(predict_us(schedule, topology), 3)), ""
