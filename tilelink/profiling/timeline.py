"""Timelines: from the stamps of one call to what each program did when, and what that sums up to."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from statistics import mean

from rich.table import Table

from tilelink.profiling.stamps import Moment, Site

FORMAT = "tilelink-spans 1"  # that `tilelink show --measured` reads


class Doing(Enum):
    TILE = "tile"  # loads, computes, stores, counts
    WAIT = "wait"
    MOVE = "move"  # a role without tiles, or a group of warps that loads or copies for others
    END = "end"  # ends the call, or waits for those that end it
    LAUNCH = "launch"  # between two kernels


_ENDS = {
    Moment.BEGUN: Doing.LAUNCH,
    Moment.REACHED: Doing.TILE,
    Moment.AWAITED: Doing.WAIT,
    Moment.TILE: Doing.TILE,
    Moment.ROLE: Doing.MOVE,
    Moment.CLOSED: Doing.END,
}


@dataclass(frozen=True, slots=True)
class Span:
    """What a group of warps of a program, or a stream, did from `start_us` to `end_us`, counted from when the first program of
    the rank's call began."""

    lane: str
    doing: Doing
    where: str  # function, and of a wait also what is waited for
    start_us: float
    end_us: float

    @property
    def us(self) -> float:
        return self.end_us - self.start_us


@dataclass(frozen=True, slots=True)
class Share:
    """All spans of one kind at one place on a rank: of so many programs, how long each spent there in all."""

    doing: str
    where: str
    programs: int
    first_start_us: float
    last_end_us: float
    mean_us: float
    longest_us: float


def spans(stamps: Sequence[Sequence[int]], sites: Iterable[Site]) -> list[Span]:
    """`stamps[slot][program]`: ns, 0 where nothing was written. A span lasts from one stamp of a group of warps to its next."""
    placed = list(enumerate(sites))
    events: dict[tuple[int, str], list[tuple[int, int, Site]]] = defaultdict(list)
    for number, site in placed:
        for row in stamps[site.first : site.first + site.turns]:
            for program, time in enumerate(row):
                if time:
                    # what begins a kernel comes before, and what ends it after, all that has the same time
                    rank = {Moment.BEGUN: -1, Moment.ROLE: 1 << 30, Moment.CLOSED: 1 << 31}.get(site.moment, number)
                    events[program, site.function if site.kernel else ""].append((time, rank, site))
    kernels = {site.function: site.kernel for _, site in placed if site.kernel}
    begun = {site.function: site for _, site in placed if site.moment is Moment.BEGUN}
    zero = first_stamp(stamps)
    out = []
    for program, group in sorted(events):
        found = sorted(events[program, group], key=lambda event: event[:2])
        lane = f"program {program}" + (f", {group}" if group else "")
        if group:
            site = begun[kernels[group]]
            found.insert(0, (stamps[site.first][program], -1, site))
        tiled = {site.function for _, _, site in found if site.moment is Moment.TILE}
        for (start, _, _), (end, _, site) in itertools.pairwise(found):
            doing = _ENDS[site.moment]
            if site.moment is Moment.ROLE and site.text in tiled:
                doing = Doing.TILE  # what is left behind its last tile
            if group and doing is Doing.TILE:
                doing = Doing.MOVE  # beside the group that computes
            where = site.text if site.moment is Moment.ROLE else site.function
            where = f"{where}: {site.text}" if doing is Doing.WAIT else where
            out.append(Span(lane, doing, where, (start - zero) / 1e3, (end - zero) / 1e3))
    return out


def first_stamp(stamps: Sequence[Sequence[int]]) -> int:
    """When the first program of a call began, in ns of the GPU's clock; 0 without stamps."""
    return min((time for row in stamps for time in row if time), default=0)


def shares(found: Iterable[Span]) -> list[Share]:
    """Sums over the programs, in the order in which they begin."""
    places: dict[tuple[Doing, str], list[Span]] = defaultdict(list)
    for span in found:
        places[span.doing, span.where].append(span)
    out = []
    for (doing, where), here in places.items():
        times: dict[str, float] = defaultdict(float)
        for span in here:
            times[span.lane] += span.us
        first, last = min(span.start_us for span in here), max(span.end_us for span in here)
        per_program = list(times.values())
        rounded = (round(us, 1) for us in (first, last, mean(per_program), max(per_program)))
        out.append(Share(doing.value, where, len(times), *rounded))
    return sorted(out, key=lambda share: (share.first_start_us, share.last_end_us))


def table(title: str, found: Iterable[Share]) -> Table:
    out = Table(title=title, title_justify="left", show_edge=False)
    for name in ("", "where", "programs", "from us", "to us", "mean us", "longest us"):
        out.add_column(name, justify="left" if name in ("", "where") else "right", overflow="fold")
    for share in found:
        numbers = (share.first_start_us, share.last_end_us, share.mean_us, share.longest_us)
        out.add_row(share.doing, share.where, str(share.programs), *(f"{us:.1f}" for us in numbers))
    return out


def spans_to_json(schedule: str, machine: str, call_us: float, ranks: Sequence[Iterable[Span]]) -> dict[str, object]:
    """One call in the format that `tilelink show --measured` reads. `schedule`: its hash; `call_us`: of a call without stamps."""
    spans = [
        {
            "rank": rank,
            "lane": span.lane,
            "doing": span.doing.value,
            "where": span.where,
            "start_us": round(span.start_us, 3),
            "end_us": round(span.end_us, 3),
        }
        for rank, found in enumerate(ranks)
        for span in found
        if span.end_us > span.start_us
    ]
    return {"format": FORMAT, "schedule": schedule, "machine": machine, "call_us": call_us, "spans": spans}


def shares_to_json(found: Iterable[Share]) -> list[dict[str, object]]:
    return [asdict(share) for share in found]
