"""Random schedules of the space, for property tests and for measuring what the planner leaves out."""

from __future__ import annotations

import random
from collections.abc import Mapping

from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import BoundSpec
from tilelink.planner.plan import Option, Slot, first_legal, slots_of, try_options
from tilelink.planner.space import structures
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
            return schedule
    _, schedule, why = first_legal(slots, lambda chosen: try_options(spec, topology, structure, chosen))
    if schedule is not None:
        return schedule
    if len(found) == 1:
        raise LookupError(f"no legal schedule in the space: {why}")
    return sample_schedule(spec, topology, rng, pins, tries)
