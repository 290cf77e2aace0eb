"""To which call an access belongs, told by how often its line has run: streams run ahead of kernels and of each other."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tilelink.emulator.events import Access, Event
from tilelink.emulator.place import Place

Line = tuple[int, Place]  # rank, and where


@dataclass(slots=True)
class CallCounts:
    """Observes a whole run: the numbers of the events of each line on each rank, numbered as those of `races.Touch`."""

    events: int = 0
    lines: dict[Line, list[int]] = field(default_factory=dict)

    def observe(self, event: Event) -> None:
        self.events += 1
        if isinstance(event, Access):
            self.lines.setdefault((event.task.rank, event.place), []).append(self.events)

    def a_call(self) -> Counter[Line]:
        """How often each line runs in a call, if this was a run of one call."""
        return Counter({line: len(numbers) for line, numbers in self.lines.items()})

    def call(self, rank: int, place: Place, number: int, a_call: Counter[Line]) -> int:
        """The call, from 1, that event `number` of that line belongs to; 0 if that cannot be told."""
        each = a_call[rank, place]
        before = sum(found <= number for found in self.lines.get((rank, place), ()))
        return -(-before // each) if each else 0
