"""What all printers of a file share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from lowering.dialect import Dialect
from lowering.steps.constants import Constants
from lowering.steps.naming import PARAMETERS
from lowering.steps.words import Words
from tilelink.schedule.roles import Schedule


@dataclass
class Frame:
    """`exact`: signals whose waits may compare for equality. `stream_waits`: streams of the machine can wait for a word of
    memory."""

    schedule: Schedule
    words: Words
    constants: Constants
    dialect: Dialect
    exact: frozenset[str] = frozenset()
    stream_waits: bool = True
    wait_kernels: Counter[str] = field(default_factory=Counter)  # by the name of the role whose streams they hold

    def stream_wait(self, signal: str) -> str:
        """The method by which a stream waits for a number; empty if a program has to hold it."""
        compares = self.dialect.stream_wait == "wait_at_least" or signal in self.exact
        return self.dialect.stream_wait if self.stream_waits and compares else ""

    def order(self, needs: Iterable[str]) -> list[str]:
        """Parameters: tensors as the schedule has them, tables, words, the own rank, positions."""
        names = set(needs)
        order: list[str] = []
        for buffer in self.schedule.buffers:
            beside = (f"{buffer.name}_{one}" for one in ("peers", "multicast", "there"))
            order += [one for one in (buffer.name, *beside) if one in names]
            order += sorted(one for one in names if one.startswith(f"{buffer.name}_desc"))
        order += [table.name for table in self.schedule.tables if table.name in names]
        order += [one for one in PARAMETERS if one in names]
        return [*dict.fromkeys(order), *sorted(names - set(order))]
