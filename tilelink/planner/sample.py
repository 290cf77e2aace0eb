"""Random schedules of the space, for property tests and for measuring what the planner leaves out."""

from __future__ import annotations

import math
import random

from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import BoundSpec
from tilelink.planner.build import build
from tilelink.planner.choices import Pins
from tilelink.planner.decisions import Chosen, choices_of
from tilelink.planner.layout import Problem
from tilelink.planner.search import Descent, descent_of
from tilelink.planner.space import structures
from topologies.topology import Topology


def sample_schedule(
    spec: BoundSpec, topology: Topology, rng: random.Random, pins: Pins | None = None, tries: int = 50
) -> Schedule:
    """A legal schedule: uniform over structures, then over the options of each field, else the first legal one."""
    found = list(structures(spec, topology, pins or {}))
    structure = rng.choice(found)
    search, why = descent_of(structure, pins or {})
    chosen = _sampled(search, rng, tries) if search is not None else None
    if chosen is not None:
        return build(Problem(structure, choices_of(structure, chosen)))
    if len(found) == 1:
        raise LookupError(f"no legal schedule in the space: {why or 'no options go together'}")
    return sample_schedule(spec, topology, rng, pins, tries)


def _sampled(search: Descent, rng: random.Random, tries: int) -> Chosen | None:
    """Legal options: fields that come last have a random one of the values that are legal with all others."""
    for _ in range(tries):
        chosen = {slot: rng.choice(options) for slot, options in search.slots.items()}
        if search.timing.us(chosen) < math.inf:
            for slot, option in chosen.items():
                trial = {**chosen, slot: rng.choice((option, *search.last[slot, option]))}
                chosen = trial if search.timing.us(trial) < math.inf else chosen
            return chosen
    start, _ = search.first_legal()
    return start.chosen if start is not None else None
