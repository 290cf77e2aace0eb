"""Random schedules of the space, for property tests and for measuring what the planner leaves out."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import BoundSpec
from tilelink.planner.build import build
from tilelink.planner.decisions import Chosen, Slots, choices_of, legal_alone, slots_of
from tilelink.planner.layout import Problem
from tilelink.planner.moves import by_leading, leading
from tilelink.planner.search import first_legal
from tilelink.planner.space import structures
from tilelink.planner.structure import Structure
from tilelink.planner.timing import Timing
from topologies.topology import Topology


def sample_schedule(
    spec: BoundSpec, topology: Topology, rng: random.Random, pins: Mapping[str, str] | None = None, tries: int = 50
) -> Schedule:
    """A legal schedule: uniform over structures, then over the options of each field, else the first legal one."""
    found = list(structures(spec, topology, pins or {}))
    structure = rng.choice(found)
    slots, why = legal_alone(structure, slots_of(structure, pins or {}))
    chosen = _sampled(structure, slots, rng, tries) if not why else None
    if chosen is not None:
        return build(spec, Problem(structure, choices_of(structure, chosen)))
    if len(found) == 1:
        raise LookupError(f"no legal schedule in the space: {why or 'no options go together'}")
    return sample_schedule(spec, topology, rng, pins, tries)


def _sampled(structure: Structure, slots: Slots, rng: random.Random, tries: int) -> Chosen | None:
    """Legal options. The fields that lead are random; those that follow have one of the values that are legal then."""
    timing = Timing(structure)
    groups = {slot: by_leading(options) for slot, options in slots.items()}
    for _ in range(tries):
        chosen = {slot: rng.choice(list(found.values()))[0] for slot, found in groups.items()}
        if timing.us(chosen) < math.inf:
            for slot, found in groups.items():
                trial = {**chosen, slot: rng.choice(found[leading(chosen[slot])])}
                chosen = trial if timing.us(trial) < math.inf else chosen
            return chosen
    return first_legal(slots, timing)[0]
