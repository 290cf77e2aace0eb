"""Random schedules of the space, for property tests and for measuring what the planner leaves out."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import product

from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import BoundSpec
from tilelink.planner.open_fields import FIELDS, is_open, with_field
from tilelink.planner.search import Option, Slot, first_legal, slots_of, try_options
from tilelink.planner.space import Structure, structures
from topologies.topology import Topology


def sample_schedule(
    spec: BoundSpec, topology: Topology, rng: random.Random, pins: Mapping[str, str] | None = None, tries: int = 50
) -> Schedule:
    """A legal schedule: uniform over structures, then over the options of each field, else the first legal one."""
    found = list(structures(spec, topology, pins or {}))
    structure = rng.choice(found)
    slots = slots_of(structure, topology, pins or {})
    for _ in range(tries):
        chosen: dict[Slot, Option] = {slot: rng.choice(options) for slot, options in slots.items()}
        schedule, _ = try_options(spec, topology, structure, chosen)
        if schedule is not None:
            return _closed(spec, topology, structure, chosen, schedule, rng)
    _, schedule, why = first_legal(slots, lambda chosen: try_options(spec, topology, structure, chosen))
    if schedule is not None:
        return schedule
    if len(found) == 1:
        raise LookupError(f"no legal schedule in the space: {why}")
    return sample_schedule(spec, topology, rng, pins, tries)


def _closed(
    spec: BoundSpec,
    topology: Topology,
    structure: Structure,
    chosen: dict[Slot, Option],
    schedule: Schedule,
    rng: random.Random,
) -> Schedule:
    """Every other loop that may have its last tiles in halves has them, or counts its tiles late, also where that is
    slower."""
    for slot, field in product(chosen, FIELDS):
        option = chosen[slot]
        if is_open(option, field) and rng.random() < 0.5:
            trial: dict[Slot, Option] = {**chosen, slot: with_field(option, field, True)}
            found, _ = try_options(spec, topology, structure, trial)
            if found is not None:
                schedule, chosen = found, trial
    return schedule
