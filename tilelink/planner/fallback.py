"""From the best schedule to the best one that is proved.

Only what is given out needs a proof: a search that passes over thousands of schedules would pay for each. A refuted best is a
mistake of the planner or of the proof, and the user gets the next best one, with a line in the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from tilelink.errors import ScheduleRefuted
from tilelink.ir.schedule import Schedule
from tilelink.planner.choices import ComputeChoice, ExchangeChoice
from tilelink.planner.space import Structure
from tilelink.proof.findings import Proof
from tilelink.proof.verify import verify

_IN_ORDER = 64  # candidates that come strictly by time, before the best of each kind does

Options = Mapping[tuple[str, str], ExchangeChoice | ComputeChoice]
Log = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A legal schedule that a search has built: its predicted time, the structure and the options that lead to it, and how to
    build it again (schedules are large, and thousands are built)."""

    us: float
    structure: Structure
    options: Options
    again: Callable[[], Schedule | None]


@dataclass(frozen=True, slots=True)
class Tried:
    """Every legal schedule of all searches of one plan."""

    found: list[Candidate] = field(default_factory=list)

    def best_of(self, structure: Structure) -> Candidate | None:
        mine = (candidate for candidate in self.found if candidate.structure is structure)
        return min(mine, key=lambda candidate: candidate.us, default=None)

    def in_order(self) -> Iterator[Schedule]:
        """The next best ones. If many have failed, one of each kind first: what is wrong with a schedule is mostly wrong with
        all that move the same parts in the same way."""
        by_time = sorted(self.found, key=lambda candidate: candidate.us)
        seen: Counter[object] = Counter()
        later: list[tuple[int, Candidate]] = []
        for candidate in by_time[_IN_ORDER:]:
            kind = _kind(candidate.structure, candidate.options)
            later.append((seen[kind], candidate))
            seen[kind] += 1
        later.sort(key=lambda entry: entry[0])  # stable, hence by time among equals
        for candidate in chain(by_time[:_IN_ORDER], (candidate for _, candidate in later)):
            schedule = candidate.again()
            if schedule is not None:
                yield schedule


def _kind(structure: Structure, options: Options) -> object:
    """What is mostly right or wrong together: the structure, movers and transfers, and places of sums."""
    return (
        structure.algorithms,
        structure.library,
        *(
            (type(option.mover), option.transfer) if isinstance(option, ExchangeChoice) else option.sum_in_epilogue
            for option in options.values()
        ),
    )


def first_proven(best: Schedule, others: Iterator[Schedule], pins: Mapping[str, str], log: Log | None) -> Schedule:
    """`best` if it is proved, else the first of `others` that is. Raises ScheduleRefuted if none is."""
    refuted: Proof | None = None
    seen: set[Schedule] = set()
    for schedule in chain((best,), others):
        program = replace(schedule, choices=(), predicted_us=0.0)
        if program in seen:
            continue
        seen.add(program)
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


def pins_text(pins: Mapping[str, str]) -> str:
    """`mover=Fused(), chunks=2`, or `no pins`."""
    return ", ".join(f"{name}={value}" for name, value in pins.items()) or "no pins"
