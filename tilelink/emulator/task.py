"""A task as the scheduler sees it: one stream or one program, what blocks it, and the loops and branches it is in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tilelink.emulator.place import NOWHERE, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from greenlet import greenlet  # type: ignore[import-untyped, unused-ignore]

    from tilelink.emulator.events import TaskId

Mask = NDArray[np.bool_]  # by thread


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a task is blocked. It is woken by `Scheduler.wake` of a key, a write into one of `ranges`, or when `clocks` clocks
    have passed.
    """

    text: Callable[[], str]  # what it waits for, as one phrase, evaluated only when it is reported
    keys: tuple[Hashable, ...] = ()
    ranges: tuple[tuple[int, int], ...] = ()  # half-open byte ranges
    clocks: int = 0  # 0: no time ends it


@dataclass(slots=True, eq=False)
class Spin:
    """One `while` loop being executed."""

    names: tuple[str, ...]  # the variables its body assigns
    depth: int  # how many loops of this program enclose it
    state: tuple[object, ...] | None  # their values when the round began; None before the first
    reads: set[tuple[int, int]] = field(default_factory=set)  # byte ranges read in this round
    version: int = -1  # of memory at the first of these reads; -1: nothing read yet
    times: list[int] = field(default_factory=list)  # what the clock told in this round
    times_before: list[int] = field(default_factory=list)  # and in the round before
    strides: tuple[int, ...] | None = None  # by how much its integers changed in the round before
    pause: int = 1  # clocks for which it sleeps next

    def note_read(self, start: int, end: int, version: int) -> None:
        if self.version < 0:
            self.version = version
        self.reads.add((start, end))


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """The body of an `if` that some threads run. It is true, as the test is for them."""

    active: Mask
    within: list[Branch]  # those that its program is in; a program that is killed leaves it as well


@dataclass(slots=True, eq=False)
class Task:
    """One stream or one program of a kernel. `grid` is (0, 0, 0) for a stream."""

    identity: TaskId
    program: tuple[int, int, int] = (0, 0, 0)
    grid: tuple[int, int, int] = (0, 0, 0)
    kernel: str = ""  # empty for a stream
    operation: object = None  # at, or begun when it runs: a text and a class of its own; None for a program
    origin: Place = NOWHERE  # the host line that enqueued it
    launched: Place | None = None  # of a kernel that is not the user's: the host line that launched it
    wait: Wait | None = None
    spins: list[Spin] = field(default_factory=list)  # the `while` loops the program is in, outermost first
    excused: bool = False  # its present wait counts as over
    warps: int = 0  # of a program; 0 where its threads have no numbers of their own, as in a group of warps
    branches: list[Branch] = field(default_factory=list)  # that only some of its threads are in, outermost first
    accesses: int = 0
    turn: int = 0  # when it ran last, counted in choices of the scheduler
    greenlet: greenlet | None = None

    @property
    def doing(self) -> str:
        """The operation of a stream or host as text; empty for a program."""
        return str(self.operation) if self.operation is not None else ""
