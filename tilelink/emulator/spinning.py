"""When a `while` loop of a program can only go round and round: exact detection of a spin.

A round of a loop that changed nothing, left its local variables as they were, read no clock and only memory that has
not changed since will be repeated for ever, so the program may sleep until one of the bytes it read is
written. No spin is emulated round by round, and a successful wait, repeated in straight-line code or in the
next tile, is never mistaken for one. A rewritten function calls `enter`, `again` and `leave` around each of
its `while` loops.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import triton.language as tl

from tilelink.emulator.scheduler import Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tilelink.emulator.scheduler import Scheduler

_UNBOUND = object()


@dataclass(slots=True, eq=False)
class Spin:
    """One `while` loop being executed."""

    names: tuple[str, ...]  # the variables its body assigns
    depth: int  # how many loops of this program enclose it
    state: tuple[object, ...] | None  # their values when the round began; None before the first
    reads: set[tuple[int, int]] = field(default_factory=set)  # byte ranges read in this round
    version: int = -1  # of memory at the first of these reads; -1: nothing read yet
    timed: bool = False  # the clock was read in this round: it goes on by itself

    def note_read(self, start: int, end: int, version: int) -> None:
        if self.version < 0:
            self.version = version
        self.reads.add((start, end))


class SpinDetector:
    """`describe(start, end)` names the word at an address and its value, for the report."""

    def __init__(self, scheduler: Scheduler, describe: Callable[[int, int], str]) -> None:
        self._scheduler = scheduler
        self._describe = describe

    def enter(self, names: tuple[str, ...], bare: bool) -> Spin:
        """Before the loop test is evaluated for the first time.

        `bare`: the body is `pass`, so that the test alone is a whole round; otherwise the first round ends
        when the test is evaluated for the second time.
        """
        spins = self._scheduler.task.spins
        spin = Spin(names, len(spins), () if bare else None)
        spins.append(spin)
        return spin

    def again(self, spin: Spin, variables: Mapping[str, object]) -> None:
        """The test was true: the body is about to run (again). Blocks if that cannot change anything."""
        scheduler = self._scheduler
        del scheduler.task.spins[spin.depth + 1 :]
        state = _values(spin.names, variables)
        at_rest = spin.state is not None and _same(state, spin.state)
        scheduler.count_step()
        if at_rest and not spin.timed and spin.version in (-1, scheduler.version):
            ranges = tuple(sorted(spin.reads))
            scheduler.block(Wait(lambda: self._text(ranges), ranges=ranges))
        self._hand_to_enclosing(spin)
        spin.state = state
        spin.reads = set()
        spin.version = -1
        spin.timed = False

    def clock(self) -> int:
        """The time, which is how many steps have been taken: who waits for a later one is in no spin."""
        for spin in self._scheduler.task.spins[-1:]:
            spin.timed = True
        return self._scheduler.steps

    def leave(self, spin: Spin) -> None:
        """The test was false."""
        self._scheduler.awaits(tuple(spin.reads))
        self._hand_to_enclosing(spin)
        del self._scheduler.task.spins[spin.depth :]

    def _hand_to_enclosing(self, spin: Spin) -> None:
        """What an inner loop read, its enclosing loop read as well."""
        if not spin.depth:
            return
        outer = self._scheduler.task.spins[spin.depth - 1]
        outer.timed = outer.timed or spin.timed
        if spin.version >= 0:
            if outer.version < 0:
                outer.version = spin.version
            outer.reads |= spin.reads

    def _text(self, ranges: tuple[tuple[int, int], ...]) -> str:
        if not ranges:
            return "nothing: its loop reads no memory and changes nothing"
        shown = [self._describe(start, end) for start, end in ranges[:4]]
        return "a change of " + ", ".join(shown + ["..."] * (len(ranges) > 4))


def _values(names: tuple[str, ...], variables: Mapping[str, object]) -> tuple[object, ...]:
    return tuple(variables.get(name, _UNBOUND) for name in names)


def _same(ours: tuple[object, ...], theirs: tuple[object, ...]) -> bool:
    return all(map(_equal, ours, theirs))


def _equal(one: object, other: object) -> bool:
    if one is other:
        return True
    if isinstance(one, tl.tensor) and isinstance(other, tl.tensor):
        return bool(np.array_equal(one.handle.data, other.handle.data))
    if isinstance(one, bytes) and isinstance(other, bytes):  # what lanes of inline assembly hold
        return one == other
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return one == other
    return False
