"""Where words lie: signals in symmetric memory; counts, and values that streams copy, in local memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from tilelink.schedule.index import Number
from tilelink.schedule.roles import CopyEngine, Host, Launch, Phase, Role, Schedule, Who
from tilelink.schedule.steps import Notify
from tilelink.schedule.walk import notifies, phases, steps_in

MAIN = "main"


def by_host(role: Role) -> bool:
    """Whether host code issues the steps of a role, on a stream."""
    return isinstance(role.engine, CopyEngine | Host)


@dataclass
class Words:
    """First words, by name. `counts` are of whoever comes last of some, and of programs that have ended; the last program of
    a call clears them. `values` are what streams raise words to, each prepared for the next call by the same program."""

    schedule: Schedule
    signals: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    values: list[Number] = field(default_factory=list)
    in_word: dict[str, int] = field(default_factory=dict)  # elements in a word of each buffer of packets
    num_signals: int = 0
    num_counts: int = 0

    @property
    def ends_in_last_launch(self) -> bool:
        """Whether the last program of the last launch is the last of the call: all streams have been joined before it."""
        open_streams: set[str] = set()
        for launch in self.schedule.launches:
            open_streams -= set(launch.joins) if launch.stream == MAIN else set()
            open_streams |= {launch.stream} - {MAIN}
        last = self.schedule.launches[-1]
        return last.stream == MAIN and not open_streams and not any(map(by_host, last.roles))

    def size(self, signal: str) -> int:
        """Words of a signal on a rank."""
        return prod(self.schedule.shapes[signal])

    def ends(self, launch: Launch) -> bool:
        """Whether the last program of `launch` has something to do."""
        return (launch is self.schedule.launches[-1] and self.ends_in_last_launch) or any(last_phases(launch))

    def lines(self) -> list[str]:
        """The layout, for the head of the printed file."""
        found = [f"signals[{first}]: {name}" for name, first in self.signals.items()]
        found += [f"counts[{first}]: {name.lower()}" for name, first in self.counts.items()]
        return found + [f"stream_values[{place}] = {value}" for place, value in enumerate(self.values)]


def last_phases(launch: Launch) -> Iterator[tuple[Role, Phase]]:
    """What the last program of a launch does, when all others have ended."""
    for role in launch.roles:
        for phase in role.phases:
            if phase.who is Who.LAST and not by_host(role):
                yield role, phase


def kernel_name(launch: Launch) -> str:
    name = "_".join(role.name for role in launch.roles if not by_host(role))
    return name if name.endswith("_kernel") else f"{name}_kernel"


def laid_out(schedule: Schedule, in_word: dict[str, int]) -> Words:
    """Words for all signals, for a count a rank and word where somebody comes last, and for the ends of launches."""
    words = Words(schedule, in_word=in_word)
    for signal in schedule.signals:
        words.signals[signal.name] = words.num_signals
        words.num_signals += prod(schedule.shapes[signal.name])
    for notify in _counted(schedule):
        name = f"{notify.signal}_raises"
        if name not in words.counts:
            words.counts[name] = words.num_counts
            words.num_counts += schedule.num_ranks * prod(schedule.shapes[notify.signal])
    for launch in schedule.launches:
        if words.ends(launch):
            words.counts[f"{kernel_name(launch)}_ended"] = words.num_counts
            words.num_counts += 1
    return words


def _counted(schedule: Schedule) -> Iterator[Notify]:
    for _, _, phase in phases(schedule):
        for step in steps_in(phase.body):
            yield from (one for one in notifies(step) if one.last_of != 1)
