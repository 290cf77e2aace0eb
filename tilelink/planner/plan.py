"""The planner: enumerate, drop the illegal, cost, choose. Deterministic; the same on every rank."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product

from tilelink.errors import NoLegalSchedule
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import BoundSpec
from tilelink.planner.build import build
from tilelink.planner.choices import Pins
from tilelink.planner.climb import MARGIN, Climb
from tilelink.planner.decisions import slot_names
from tilelink.planner.fallback import Log, first_proven, in_order, pins_text
from tilelink.planner.limits import check_extent
from tilelink.planner.pieces import pieces
from tilelink.planner.pins import checked_pins, why_none
from tilelink.planner.search import Place, descent_of
from tilelink.planner.searched import structures_to_search
from tilelink.planner.space import joined
from tilelink.planner.structure import Structure
from tilelink.planner.timing import Candidate, Timing
from topologies.topology import Topology

_COMBINED = 100  # choices of all pieces together that are timed


def plan(
    spec: BoundSpec,
    topology: Topology,
    pins: Mapping[str, object] | None = None,
    log: Log | None = None,
) -> Schedule:
    """The schedule with the smallest predicted time, proven; ties go to the one enumerated first, and to library calls
    alone what is less than 2 % faster than they are.

    A best schedule that is refuted is a mistake of ours: `log` is told, and the next best one is given out.
    Raises TooLargeToPlan, UnknownPin, IdlePin, IllegalPin, NoLegalSchedule, and ScheduleRefuted if none of those that were
    built is proved.
    """
    check_extent(spec)
    return plan_with(spec, topology, checked_pins(spec, topology, pins or {}), log)


def plan_with(spec: BoundSpec, topology: Topology, pins: Pins, log: Log | None = None) -> Schedule:
    """`plan` under pins that are values. Raises NoLegalSchedule and ScheduleRefuted."""
    best, others = search(spec, topology, pins, log)
    return first_proven(build(best.problem), in_order(others), pins, log)


def search(
    spec: BoundSpec, topology: Topology, pins: Pins, log: Log | None = None
) -> tuple[Candidate, list[Candidate]]:
    """The best choices under pins that are legal one by one, and all that were timed. Raises NoLegalSchedule."""
    with uncollected():
        return _chosen(spec, topology, pins, log)


@contextmanager
def uncollected() -> Iterator[None]:
    """Without looking for garbage that refers to itself: a search makes many small objects and none of it."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _chosen(spec: BoundSpec, topology: Topology, wanted: Pins, log: Log | None) -> tuple[Candidate, list[Candidate]]:
    """The best choices, and all that were timed. Raises NoLegalSchedule."""
    best, others = _by_pieces(spec, topology, wanted, log)
    if best is None:
        every, plain = structures_to_search(spec, topology, wanted)
        found = Climb(every, plain, wanted, log)
        best, reason = found.best()
        others = found.candidates()
        if best is None:
            pinned = pins_text(wanted)
            reason = reason if every else why_none(spec, topology, wanted)
            raise NoLegalSchedule(
                function=spec.name,
                topology=topology.name,
                num_ranks=topology.num_ranks,
                pins=pinned,
                reason=reason,
                legal="",
            )
    return best, others


def _by_pieces(
    spec: BoundSpec, topology: Topology, pins: Pins, log: Log | None
) -> tuple[Candidate | None, list[Candidate]]:
    """The best choices of a spec that falls in pieces, and all that were timed; None if it does not, or some pieces have none
    that go together.

    Of each piece the best choices of each kind: how calls end and how transfers share links depends on the kinds of all
    pieces. What goes together best is then timed as a whole, and swept once more."""
    parts = pieces(spec)
    if len(parts) == 1:
        return None, []
    fronts, libraries = [], []
    for part in parts:
        climb = Climb(*structures_to_search(part, topology, pins, piece=True), pins, log, piece=True)
        if climb.best()[0] is None:
            return None, []
        fronts.append(climb.front())
        libraries.append(climb.by_library())
    trials = sorted(product(*fronts), key=lambda chosen: sum(one.us for one in chosen))[:_COMBINED]
    plain = [one for one in libraries if one is not None]
    timings: dict[object, Timing] = {}
    best: Candidate | None = None
    for trial in trials:
        best = _better(best, _whole(spec, trial, pins, timings, best.us if best is not None else math.inf))
    if best is None:
        return None, []
    timing = timings[_shape([best.structure])]
    descent, _ = descent_of(best.structure, pins, timing)
    assert descent is not None, "some of its choices are legal"
    found = descent.swept(tuple(descent.slots), Place(best.options, best.us), sweeps=1)
    best = Candidate(found.us, True, best.structure, found.chosen)
    if len(plain) == len(libraries):
        library = _whole(spec, tuple(plain), pins, timings)
        if library is not None and best.us > library.us * (1 - MARGIN):
            best = library
    return best, [candidate for timing in timings.values() for candidate in timing.candidates()]


def _shape(parts: Sequence[Structure]) -> object:
    collectives = frozenset(one for part in parts for one in part.collectives)
    loops = frozenset(one for part in parts for one in part.loops)
    return collectives, frozenset(name for part in parts for name in part.library), loops


def _whole(
    spec: BoundSpec,
    chosen: tuple[Candidate, ...],
    pins: Pins,
    timings: dict[object, Timing],
    limit: float = math.inf,
) -> Candidate | None:
    """The choices of all pieces together, or None if they do not go together or take `limit` or more."""
    parts = [one.structure for one in chosen]
    key = _shape(parts)
    if key not in timings:
        structure = joined(spec, parts, pins)
        if structure is None:
            return None
        timings[key] = Timing(structure)
    timing = timings[key]
    options = {slot: option for one in chosen for slot, option in one.options.items()}
    ordered = {slot: options[slot] for slot in slot_names(timing.structure)}
    us = timing.us(ordered, limit)
    return Candidate(us, True, timing.structure, ordered) if us < limit else None


def _better(a: Candidate | None, b: Candidate | None) -> Candidate | None:
    return b if a is None or (b is not None and b.us < a.us) else a
