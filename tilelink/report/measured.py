"""A measured call, from JSON: spans of programs, streams and links of each rank, or sums of them by place.

Two formats are read.

`tilelink-spans 1`: one call. `spans` are in us from the begin of the rank's call, or of its first program.

    {"format": "tilelink-spans 1", "schedule": "0123456789abcdef", "machine": "2 x GPU", "call_us": 100.0, "alone_us": 80.0,
     "spans": [{"rank": 0, "lane": "program 0", "doing": "tile", "where": "y_tiles", "start_us": 3.0, "end_us": 8.0}]}

`alone_us`, matmuls and attention alone, may be missing. `doing` is one of those of `DOING`.

What `benchmarks/timeline.py --json` writes: rows of several schedules, of which that of the plan is taken. It has sums over
programs: when the first one began and the last one ended, and how long one spent there on average.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilelink.ir.schedule import Schedule
from tilelink.profiling.parts import program_of
from tilelink.profiling.timeline import FORMAT
from tilelink.report.errors import NotAMeasurement, OtherMeasured

DOING = ("tile", "wait", "move", "end", "launch")  # computing, waiting, copying, ending the call, between two kernels
MOST_LANES = 12  # of a rank, that a page draws
_SHOWN = 6  # schedules that a message names


@dataclass(frozen=True, slots=True)
class MeasuredSpan:
    """`mean_us`: of sums, how long a program spent there on average between `start_us` and `end_us`; of one span, its length."""

    rank: int
    lane: str
    doing: str
    where: str
    start_us: float
    end_us: float
    mean_us: float
    programs: int = 1


@dataclass(frozen=True, slots=True)
class Measured:
    """`call_us`: of one call on the slowest rank, without stamps. `alone_us`: of what computes, alone; None where it was not
    measured. `summed`: its spans are sums over programs."""

    source: str  # the name of the file
    machine: str
    call_us: float
    alone_us: float | None
    spans: tuple[MeasuredSpan, ...]
    summed: bool

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted({span.rank for span in self.spans}))

    @property
    def end_us(self) -> float:
        return max((span.end_us for span in self.spans), default=self.call_us)

    def shown(self, rank: int) -> tuple[MeasuredSpan, ...]:
        """Those that a page draws: all streams; of many programs some, evenly spaced, and the one that ends last."""
        mine = [span for span in self.spans if span.rank == rank]
        lanes = dict.fromkeys(span.lane for span in mine if program_of(span.lane))
        programs = list(dict.fromkeys(map(program_of, lanes)))
        if len(lanes) > MOST_LANES:
            count = max(1, MOST_LANES * len(programs) // len(lanes))
            last = max((span for span in mine if program_of(span.lane)), key=lambda span: span.end_us).lane
            kept = {programs[number * len(programs) // count] for number in range(count)} | {program_of(last), ""}
            mine = [span for span in mine if program_of(span.lane) in kept]
        return tuple(mine)

    def sums(self, rank: int) -> tuple[MeasuredSpan, ...]:
        """What programs of a rank do at each place, on average over those that come there; in the order in which they begin."""
        if self.summed:
            return tuple(span for span in self.spans if span.rank == rank)
        places: dict[tuple[str, str], list[MeasuredSpan]] = {}
        for span in (one for one in self.spans if one.rank == rank):
            places.setdefault((span.doing, span.where), []).append(span)
        found = []
        for (doing, where), here in places.items():
            programs = len({span.lane for span in here})
            begin, end = min(span.start_us for span in here), max(span.end_us for span in here)
            mean = sum(span.mean_us for span in here) / programs
            found.append(MeasuredSpan(rank, f"{doing}: {where}", doing, where, begin, end, mean, programs))
        return tuple(sorted(found, key=lambda span: span.start_us))


Parsed = Mapping[str, object]


def read_measured(path: Path, schedule: Schedule) -> Measured:
    """The call of `schedule` that the file holds. Raises NotAMeasurement and OtherMeasured."""
    return measured_of(path, parsed(path), schedule)


def parsed(path: Path) -> Parsed:
    """What the file holds, if it is of one of the formats. Raises NotAMeasurement."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NotAMeasurement(path=path, reason=error.strerror or str(error)) from error
    except ValueError as error:  # no JSON, or no UTF-8
        raise NotAMeasurement(path=path, reason=f"{type(error).__name__}: {error}") from error
    if not isinstance(found, dict):
        raise NotAMeasurement(path=path, reason=f"it is a {type(found).__name__}, not an object")
    if found.get("format", FORMAT) != FORMAT:
        raise NotAMeasurement(path=path, reason=f"its format is {found['format']!r}")
    needed = "spans" if "format" in found else "rows"
    if needed not in found:
        raise NotAMeasurement(path=path, reason=f"{needed!r} is missing")
    return found


def measured_of(path: Path, found: Parsed, schedule: Schedule) -> Measured:
    """The call of `schedule` in what `parsed(path)` has given. Raises NotAMeasurement and OtherMeasured."""
    try:
        read = _of_spans if "format" in found else _of_sums
        measured = read(path, found, schedule)
    except (KeyError, TypeError, ValueError) as error:
        what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise NotAMeasurement(path=path, reason=what) from error
    _check(path, measured, schedule)
    return measured


def _of_spans(path: Path, found: Mapping[str, object], schedule: Schedule) -> Measured:
    if found["schedule"] != schedule.hash:
        raise OtherMeasured(path=path, planned=f"{schedule.name} {schedule.hash}", held=f"schedule {found['schedule']}")
    spans = []
    for one in _objects(found["spans"], "spans"):
        start, end = _number(one["start_us"]), _number(one["end_us"])
        where, rank = str(one["where"]), _whole(one["rank"])
        spans.append(MeasuredSpan(rank, str(one["lane"]), str(one["doing"]), where, start, end, end - start))
    alone = found.get("alone_us")
    return Measured(
        path.name,
        str(found.get("machine", "")),
        _number(found["call_us"]),
        None if alone is None else _number(alone),
        tuple(spans),
        summed=False,
    )


def _of_sums(path: Path, found: Mapping[str, object], schedule: Schedule) -> Measured:
    rows = _objects(found["rows"], "rows")
    choices = dict(schedule.choices)
    mine = [row for row in rows if row.get("schedule") == schedule.hash]
    if not any("schedule" in row for row in rows):  # of a version that did not write it
        mine = [row for row in rows if row["operator"] == schedule.name and row.get("choices") == choices]
    if not mine:
        names = [f"{row['operator']} {row['row']} ({row['label']})" for row in rows]
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        held = f"{', '.join(names[:_SHOWN])}{more}, with other choices" if names else "no row"
        raise OtherMeasured(path=path, planned=f"{schedule.name} {schedule.hash}", held=held)
    if len(mine) > 1:
        names = [f"{row['row']} ({row['label']})" for row in mine]
        raise ValueError(
            f"rows {', '.join(names)} have these choices, with sizes that it does not say; keep one of them"
        )
    ranks, spans = mine[0]["ranks"], list[MeasuredSpan]()
    if not isinstance(ranks, list):
        raise TypeError("ranks is no list")
    for rank, shares in enumerate(ranks):
        for one in _objects(shares, "ranks"):
            doing, where = str(one["doing"]), str(one["where"])
            start, end = _number(one["first_start_us"]), _number(one["last_end_us"])
            lane = f"{doing}: {where}" if where else doing
            mean, programs = _number(one["mean_us"]), _whole(one["programs"])
            spans.append(MeasuredSpan(rank, lane, doing, where, start, end, mean, programs))
    machine = str(found.get("machine", ""))
    return Measured(path.name, machine, _number(mine[0]["us"]), None, tuple(spans), summed=True)


def _check(path: Path, measured: Measured, schedule: Schedule) -> None:
    """Raises NotAMeasurement for what cannot have been measured of this schedule."""
    wrong = [span.doing for span in measured.spans if span.doing not in DOING]
    backwards = [span for span in measured.spans if span.end_us < span.start_us]
    ranks = [span.rank for span in measured.spans if not 0 <= span.rank < schedule.num_ranks]
    if not measured.spans:
        raise NotAMeasurement(path=path, reason="it has no spans")
    if measured.call_us <= 0:
        raise NotAMeasurement(path=path, reason=f"a call of {measured.call_us:g} us")
    if wrong:
        raise NotAMeasurement(path=path, reason=f"{wrong[0]!r} is none of {', '.join(DOING)}")
    if backwards:
        span = backwards[0]
        raise NotAMeasurement(
            path=path, reason=f"a span from {span.start_us:g} to {span.end_us:g} us ends before it begins"
        )
    if ranks:
        raise NotAMeasurement(path=path, reason=f"it has rank {ranks[0]}, and the schedule {schedule.num_ranks} ranks")


def _objects(found: object, name: str) -> Sequence[Mapping[str, object]]:
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise TypeError(f"{name} is no list of objects")
    return found


def _number(found: object) -> float:
    if isinstance(found, bool) or not isinstance(found, int | float) or not abs(found) < 1e12:
        raise TypeError(f"{found!r} is no time in us")
    return float(found)


def _whole(found: object) -> int:
    if isinstance(found, bool) or not isinstance(found, int):
        raise TypeError(f"{found!r} is no whole number")
    return found
