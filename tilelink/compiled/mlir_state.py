"""What a trace of Triton's IR knows: values by name are kept by whoever runs it, words and events are kept here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tilelink.compiled.events import Box, Event, Kind, Memory
from tilelink.compiled.mlir import Op

Value = object  # int, np.ndarray of int64, Descriptor, Word, or None: not known


class Word(NamedTuple):
    """What an access of a word has returned, and `plus`: a number as soon as it is compared with one."""

    address: int
    number: int
    plus: int


@dataclass(frozen=True, slots=True)
class Limits:
    """A trace ends after so many events or operations."""

    events: int = 1500
    operations: int = 1_500_000


class Full(Exception):
    """The trace is as long as it may become."""


@dataclass(slots=True)
class State:
    """Events of program `program` of `grid` so far. `traces[0]` are those of the program; where it has groups of warps each of
    the others has a trace of its own."""

    memory: Memory
    program: int
    grid: int
    limits: Limits = field(default_factory=Limits)
    traces: list[list[Event]] = field(default_factory=lambda: [[]])
    complete: bool = True
    current: list[Event] = field(default_factory=list)

    def event(self, kind: Kind, op: Op, where: np.ndarray | Box | None = None, descriptor: bool = False) -> None:
        if isinstance(where, np.ndarray):
            where = _compact(where)
        if kind is Kind.LOAD and where is not None and self.memory.is_constant(where):
            return
        self.current.append(Event(kind, op.text, where, descriptor))
        if len(self.current) >= self.limits.events:
            raise Full

    def number(self, value: Value) -> int | None:
        """A scalar as a number; a word that was never compared has the value of one that everybody has raised."""
        if isinstance(value, Word):
            return self.memory.seen[value.address][value.number] + value.plus
        if isinstance(value, np.ndarray):
            return int(value.flat[0]) if value.size == 1 else None
        return value if isinstance(value, int) else None

    def known(self, value: Value) -> int | np.ndarray | None:
        return self.number(value) if isinstance(value, Word) else value if isinstance(value, int | np.ndarray) else None


def _compact(where: np.ndarray) -> np.ndarray | Box:
    """Rows of neighbours as a box."""
    if where.ndim != 2 or min(where.shape) < 2:
        return where
    origin, down, right = int(where[0, 0]), int(where[1, 0] - where[0, 0]), int(where[0, 1] - where[0, 0])
    rows, cols = where.shape
    if right <= 0 or down < right * cols:
        return where
    last = origin + (rows - 1) * down + (cols - 1) * right
    return Box(origin, down, right, 0, 0, rows, cols) if int(where[-1, -1]) == last else where
