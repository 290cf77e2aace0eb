"""From the best schedule to the best one that is proved.

Only what is given out needs a proof: a search that passes over thousands of schedules would pay for each. A refuted best is a
mistake of the planner or of the proof, and the user gets the next best one, with a line in the log.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import chain, islice

from tilelink.errors import ScheduleRefuted
from tilelink.ir.schedule import Schedule
from tilelink.planner.build import build
from tilelink.planner.choices import Pins, texts
from tilelink.planner.layout import Illegal
from tilelink.planner.moves import kind_of
from tilelink.planner.predicted import time_us
from tilelink.planner.timing import Candidate
from tilelink.proof.proved import Proof
from tilelink.proof.verify import verify

_IN_ORDER = 64  # candidates that come strictly by time, before the best of each kind does

Log = Callable[[str], object]


def in_order(candidates: Iterable[Candidate]) -> Iterator[Schedule]:
    """Schedules of the candidates, the next best first. If many have failed, one of each kind first: what is wrong with a
    schedule is mostly wrong with all that move the same parts in the same way."""
    by_time = _by_time(candidates)
    for candidate in islice(by_time, _IN_ORDER):
        yield build(candidate.problem)
    seen: Counter[object] = Counter()
    later: list[tuple[int, Candidate]] = []
    for candidate in by_time:
        kind = _kind(candidate)
        later.append((seen[kind], candidate))
        seen[kind] += 1
    later.sort(key=lambda entry: entry[0])  # stable, hence by time among equals
    yield from (build(candidate.problem) for _, candidate in later)


def _by_time(candidates: Iterable[Candidate]) -> Iterator[Candidate]:
    """In order of their times: those of which only a bound is known are timed when their turn comes."""
    waiting = [(candidate.us, number, candidate) for number, candidate in enumerate(candidates)]
    heapify(waiting)
    while waiting:
        _, number, candidate = heappop(waiting)
        if candidate.exact:
            yield candidate
            continue
        try:
            us, _ = time_us(candidate.problem, math.inf)
        except Illegal:
            continue
        heappush(waiting, (us, number, replace(candidate, us=us, exact=True)))


def _kind(candidate: Candidate) -> object:
    """What is mostly right or wrong together: the structure, movers and transfers, and places of sums."""
    structure = candidate.structure
    return structure.collectives, structure.library, *map(kind_of, candidate.options.values())


def first_proven(best: Schedule, others: Iterator[Schedule], pins: Pins, log: Log | None) -> Schedule:
    """`best` if it is proved, else the first of `others` that is. Raises ScheduleRefuted if none is."""
    refuted: Proof | None = None
    seen: set[Schedule] = set()
    for schedule in chain((best,), others):
        if schedule.program in seen:
            continue
        seen.add(schedule.program)
        proof = verify(schedule)
        if proof.proved:
            return schedule
        refuted = refuted or proof
        if log is not None:
            lines = "; ".join(line.strip() for line in proof.lines()[1:])
            log(f"refuted by its proof, which is a mistake of tilelink: {schedule.predicted_us:.1f} us, {lines}")
    assert refuted is not None, "there is a best one"
    lines = "\n".join(refuted.lines())
    raise ScheduleRefuted(
        function=best.name, pins=pins_text(pins), shown=lines, findings=refuted.findings, count=len(seen)
    )


def pins_text(pins: Pins) -> str:
    """`mover=Fused(), chunks=2`, or `no pins`."""
    return ", ".join(f"{name}={value}" for name, value in texts(pins).items()) or "no pins"
