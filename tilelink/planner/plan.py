"""The planner: enumerate, drop the illegal, cost, choose. Deterministic; the same on every rank."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from tilelink.errors import NoLegalSchedule
from tilelink.ir.nodes import Algorithm
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import BoundSpec, Matmul
from tilelink.planner.choices import pin_text
from tilelink.planner.fallback import Log, Tried, first_proven, pins_text
from tilelink.planner.limits import check_extent
from tilelink.planner.pins import check_pins, why_none
from tilelink.planner.refine import refined
from tilelink.planner.search import Found, best_of
from tilelink.planner.space import Structure, structures
from topologies.topology import Topology

_MARGIN = 0.02  # of the time of library calls alone, what overlapping has to gain
_FEW_STRUCTURES = 8
_NEAR, _LOOKED_AT_AGAIN = (
    1.06,
    3,
)  # structures whose best schedule takes at most so many times the best, and how many of them


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
    wanted = {name: pin_text(value) for name, value in (pins or {}).items()}
    check_pins(spec, topology, wanted)
    every, tried = list(structures(spec, topology, wanted)), Tried()

    def evaluate(structure: Structure) -> Found:
        return best_of(spec, topology, structure, wanted, tried)

    best, reason = _search(every, lambda structure: _logged(evaluate, structure, log))
    best = _look_again(best, tried, lambda structure: refined(spec, topology, structure, wanted, tried), log)
    if best is None:
        pinned = pins_text(wanted)
        reason = reason if every else why_none(spec, topology, wanted)
        raise NoLegalSchedule(
            function=spec.name, topology=topology.name, num_ranks=topology.num_ranks, pins=pinned, reason=reason
        )
    best = _never_slower(best, every, lambda structure: evaluate(structure)[0])
    return first_proven(best, tried.in_order(), wanted, log)


def _look_again(
    best: Schedule | None, tried: Tried, look: Callable[[Structure], Schedule | None], log: Log | None
) -> Schedule | None:
    """The best schedule after another look at the structures whose best ones come near it."""
    if best is None:
        return None
    times: dict[int, tuple[float, Structure]] = {}
    for candidate in tried.found:
        us, _ = times.get(id(candidate.structure), (math.inf, None))
        times[id(candidate.structure)] = min(us, candidate.us), candidate.structure
    near = [(us, one) for us, one in times.values() if us <= _NEAR * best.predicted_us]
    for _, structure in sorted(near, key=lambda entry: entry[0])[:_LOOKED_AT_AGAIN]:
        found = look(structure)
        if found is not None and found.predicted_us < best.predicted_us:
            best = found
            if log is not None:
                log(f"{_structure_text(structure)}: {found.predicted_us:.1f} us at another look")
    return best


def _never_slower(best: Schedule, every: list[Structure], evaluate: Callable[[Structure], Schedule | None]) -> Schedule:
    """All collectives and matmuls by the library, unless `best` is faster by more than the model can be wrong."""
    for structure in every:
        matmuls = {op.name for op in structure.graph.ops() if isinstance(op.operation, Matmul)}
        by_library = all(algorithm is Algorithm.LIBRARY for _, algorithm in structure.algorithms)
        if by_library and structure.library == matmuls:
            plain = evaluate(structure)
            if plain is not None and best.predicted_us > plain.predicted_us * (1 - _MARGIN):
                return plain
    return best


def _search(every: list[Structure], evaluate: Callable[[Structure], Found]) -> Found:
    """Best schedule over structures: all of a few; of many, climb from the first and from the last (all by library).

    Structures that differ in one algorithm or one library matmul are neighbours; costs of operations that are far apart
    in a spec add up, so that single changes find what matters.
    """
    results: dict[int, Found] = {}

    def time_of(index: int) -> float:
        if index not in results:
            results[index] = evaluate(every[index])
        schedule = results[index][0]
        return schedule.predicted_us if schedule is not None else math.inf

    starts = list(range(len(every))) if len(every) <= _FEW_STRUCTURES else [0, len(every) - 1]
    for start in starts:
        here = start
        while len(every) > _FEW_STRUCTURES:
            near = [i for i, other in enumerate(every) if _distance(every[here], other) == 1]
            best = min(near, key=time_of, default=here)
            if time_of(best) >= time_of(here):
                break
            here = best
        time_of(here)
    order = sorted(index for index, (schedule, _) in results.items() if schedule is not None)
    if order:
        return results[min(order, key=time_of)]
    return None, next((why for _, why in results.values() if why), "no algorithm of its collectives is legal")


def _distance(a: Structure, b: Structure) -> int:
    """In how many algorithms and library matmuls two structures differ, and in how many loops of those that both have."""
    loops = dict(b.loops)
    differ = sum(loops.get(name, shared) != shared for name, shared in a.loops)
    return sum(x != y for x, y in zip(a.algorithms, b.algorithms, strict=True)) + len(a.library ^ b.library) + differ


def _logged(evaluate: Callable[[Structure], Found], structure: Structure, log: Log | None) -> Found:
    found, why = evaluate(structure)
    if log is not None:
        log(f"{_structure_text(structure)}: {f'{found.predicted_us:.1f} us' if found else why}")
    return found, why


def _structure_text(structure: Structure) -> str:
    parts = [f"{name} {algorithm.value}" for name, algorithm in structure.algorithms]
    parts += [f"{name} by library" for name in sorted(structure.library)]
    parts += [f"{name} in a shared loop" for name, shared in structure.loops if shared]
    return ", ".join(parts) or "no collective"
