"""Where words lie: signals in symmetric memory; counts, and values that streams copy, in local memory.

Signals that only the own rank raises, and that each call counts anew, lie among the counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from lowering.steps.closing import MAIN, last_phases, stream_ends
from lowering.steps.relative import Anew
from tilelink.schedule.index import Index, Number, rank, value_of
from tilelink.schedule.known import Known, origin
from tilelink.schedule.memory import Dim
from tilelink.schedule.roles import GROUPED, Launch, Schedule, Who
from tilelink.schedule.steps import Notify
from tilelink.schedule.walk import notifies, phases, steps_in, synchronises


@dataclass
class Words:
    """First words, by name. `counts` are of own signals, of whoever comes last of some, and of programs that have ended; the
    last program of a call clears them. `values` are what streams raise words to, each prepared for the next call by the same
    program. `anew`: how signals are counted anew in each call."""

    schedule: Schedule
    anew: Mapping[str, Anew] = field(default_factory=dict)
    signals: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    values: list[Number] = field(default_factory=list)
    in_packet: dict[str, int] = field(default_factory=dict)  # elements in a packet of each buffer
    num_signals: int = 0
    num_counts: int = 0
    calls: dict[str, int] = field(default_factory=dict)  # of a kernel, the first of the numbers that its programs keep
    num_calls: int = 0
    dims: list[Dim] = field(default_factory=list)  # all of these, as each follows from the others
    taken: frozenset[str] = frozenset()  # names of other things

    def put(self, name: str, size: int, title: str, *, counted: bool) -> None:
        """Words behind those that are there, among the counts or the signals."""
        places = self.counts if counted else self.signals
        first = self.named(name, self.num_counts if counted else self.num_signals, title)
        places[name] = first
        if counted:
            self.num_counts = first + size
        else:
            self.num_signals = first + size

    def end(self) -> None:
        """All words have been put."""
        self.num_signals = self.named("NUM_SIGNALS", self.num_signals, "words of signals")
        self.num_counts = self.named("NUM_COUNTS", self.num_counts, "words of counts")

    def named(self, name: str, value: int, title: str) -> int:
        """`value`, which follows from what is there already, as a number of that name."""
        name = name.upper()
        if name in self.taken or any(dim.name == name for dim in self.dims):
            return value
        self.dims.append(Dim(name, origin(value), title))
        return Known(value, Index(name))

    @cached_property
    def closing(self) -> Launch | None:
        """The launch whose last program is the last of the call: there is nothing behind it, and all streams have been joined
        before it, or it waits for what they do last."""
        working = [launch for launch in self.schedule.launches if any(role.phases for role in launch.roles)]
        last = next((launch for launch in reversed(working) if launch.stream == MAIN), None)
        if last is None or any(role.by_host for role in last.roles):
            return None
        open_streams = dict[str, Launch]()  # what each of them does last
        for number, launch in enumerate(working):
            for name in launch.joins if launch.stream == MAIN and number <= working.index(last) else ():
                open_streams.pop(name, None)
            if launch.stream != MAIN:
                open_streams[launch.stream] = launch
        return last if all(stream_ends(last, one) for one in open_streams.values()) else None

    @property
    def sizes(self) -> dict[str, int]:
        """Values of dims, those of the schedule too."""
        found = dict(self.schedule.sizes)
        for dim in self.dims:
            found[dim.name] = value_of(dim.size, found)
        return found

    @cached_property
    def apart(self) -> bool:
        """Whether each program keeps the number of the call itself: nothing has to be made ready at the end of a call, which
        then needs nobody who comes last. Streams that wait or raise words read one number for all."""
        whole = list(phases(self.schedule))
        alone = not any(
            (role.by_host and synchronises(phase.body)) or isinstance(phase.pipelining, GROUPED)
            for _, role, phase in whole
        )
        nothing_last = not any(phase.who is Who.LAST for _, _, phase in whole) and not any(_counted(self.schedule))
        return alone and nothing_last and not self.anew and self.closing is not None

    def own(self, signal: str) -> bool:
        """Whether the words of a signal lie among the counts."""
        return signal in self.anew and self.anew[signal].own

    def first(self, signal: str) -> int:
        """The first word of a signal, in the memory where it lies."""
        return (self.counts if self.own(signal) else self.signals)[signal]

    def size(self, signal: str) -> int:
        """Words of a signal on a rank."""
        return prod(self.schedule.shapes[signal])

    @cached_property
    def of_own(self) -> frozenset[str]:
        """Signals whose words of the own rank are the only ones that programs raise together, on whatever rank."""
        raised: dict[str, bool] = {}
        for one in _counted(self.schedule):
            raised[one.signal] = raised.get(one.signal, True) and one.index[0] == rank
        return frozenset(name for name, own in raised.items() if own)

    def raises(self, signal: str) -> int:
        """Counts for who raises words of a signal together on one rank: one a word."""
        return prod(self.schedule.shapes[signal][1:]) if signal in self.of_own else self.size(signal)

    def ends(self, launch: Launch) -> bool:
        """Whether the last program of `launch` has something to do."""
        return (launch is self.closing and not self.apart) or any(last_phases(launch))

    def lines(self) -> list[str]:
        """The layout, for the head of the printed file."""
        found = [f"signals[{first}]: {name}" for name, first in self.signals.items()]
        found += [f"counts[{first}]: {name.lower()}" for name, first in self.counts.items()]
        return found + [f"stream_values[{place}] = {value}" for place, value in enumerate(self.values)]


def kernel_name(launch: Launch) -> str:
    """The kernel of a launch has the name of its last role, without what says that it computes tiles. Where none does, and there
    are several, it has that of the first one `and_others`."""
    first, *others = [role.name for role in launch.roles if not role.by_host]
    last = others[-1] if others else first
    if others and not last.endswith(("_tiles", "_kernel")):
        last = f"{first}_and_others"
    return f"{last.removesuffix('_tiles').removesuffix('_kernel')}_kernel"


def laid_out(schedule: Schedule, in_packet: dict[str, int], anew: Mapping[str, Anew], taken: frozenset[str]) -> Words:
    """Words for all signals, for a count a rank and word where somebody comes last, and for the ends of launches. `taken`:
    names of other things."""
    words = Words(schedule, anew, in_packet=in_packet, taken=taken | {dim.name for dim in schedule.dims})
    for signal in schedule.signals:
        own = words.own(signal.name)
        title = f"first word of {signal.name} among the {'counts' if own else 'signals'}"
        words.put(signal.name, words.size(signal.name), title, counted=own)
    for notify in _counted(schedule):
        name = f"{notify.signal}_raises"
        if name not in words.counts:
            size = schedule.num_ranks * words.raises(notify.signal)
            words.put(name, size, f"first count of who raises {notify.signal}", counted=True)
    for launch in schedule.launches if words.apart else ():
        if any(role.phases and not role.by_host for role in launch.roles):
            name = kernel_name(launch)
            first = words.named(
                f"{name}_calls", words.num_calls, f"first number of a call that programs of {name} keep"
            )
            words.calls[name] = first
            words.num_calls = first + sum(role.programs for role in launch.roles if not role.by_host)
    for launch in schedule.launches:
        if words.ends(launch):
            name = kernel_name(launch)
            words.put(f"{name}_ended", 1, f"count of ended programs of {name}", counted=True)
    words.end()
    return words


def _counted(schedule: Schedule) -> Iterator[Notify]:
    for _, _, phase in phases(schedule):
        for step in steps_in(phase.body):
            yield from (one for one in notifies(step) if one.last_of != 1)
