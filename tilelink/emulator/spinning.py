"""When a `while` loop of a program can only go round and round: exact detection of a spin.

A round of a loop that changed nothing, left its local variables as they were and read only memory that has
not changed since will be repeated for ever, so the program may sleep until one of the bytes it read is
written. No spin is emulated round by round, and a successful wait, repeated in straight-line code or in the
next tile, is never mistaken for one. A rewritten function calls `enter`, `again` and `leave` around each of
its `while` loops.

**Clocks.** A loop that reads a clock may end by itself. If all that its round changed is the time, it sleeps until a byte is
written or some time has passed, twice as much after each such round: so it sees a deadline after a few rounds, however
far away that is, and not later than after twice as long. If nothing has come of it after `_LONGEST`, the loop waits for no
deadline. Variables that move with the clock are time; integers that count rounds let it pass in shorter steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import triton.language as tl

from tilelink.emulator.task import Spin, Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tilelink.emulator.scheduler import Scheduler

_UNBOUND = object()
_LONGEST = 1 << 40  # clocks: minutes, beyond every deadline of a kernel
_COUNTING = 1 << 12  # clocks for which a loop sleeps at most that may be at work, because it counts


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

    def again(self, spin: Spin, variables: Mapping[str, object]) -> bool:
        """The test was true: the body is about to run (again). Blocks if that cannot change anything.

        True if the loop is to be left, since its wait was excused.
        """
        scheduler = self._scheduler
        del scheduler.task.spins[spin.depth + 1 :]
        state = _values(spin.names, variables)
        scheduler.count_step()
        if spin.version not in (-1, scheduler.version):
            spin.pause = 1
        elif spin.state is not None:
            self._rest(spin, state, spin.state)
        self._hand_to_enclosing(spin)
        spin.state = state
        spin.reads = set()
        spin.version = -1
        spin.times_before, spin.times = spin.times, []
        return scheduler.is_excused()

    def clock(self) -> int:
        """The time, which no loop that reads it waits for in vain."""
        for spin in self._scheduler.task.spins[-1:]:
            spin.times.append(self._scheduler.time)
        return self._scheduler.time

    def _rest(self, spin: Spin, state: tuple[object, ...], before: tuple[object, ...]) -> None:
        """A round has ended, and the memory that it read has not changed: sleep if it will be repeated."""
        timed, ranges = bool(spin.times), tuple(sorted(spin.reads))
        strides, spin.strides = spin.strides, _strides(state, before)
        if spin.strides is None:
            return
        if not any(spin.strides) or (timed and _follow(spin.strides, _moves(spin))):
            clocks = spin.pause if timed and spin.pause <= _LONGEST else 0
        elif timed and spin.strides == strides:
            clocks = min(spin.pause, _COUNTING)
        else:
            return
        spin.pause *= 2
        self._scheduler.block(Wait(lambda: self._text(ranges, clocks), ranges=ranges, clocks=clocks))

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
        outer.times += spin.times
        if spin.version >= 0:
            if outer.version < 0:
                outer.version = spin.version
            outer.reads |= spin.reads

    def _text(self, ranges: tuple[tuple[int, int], ...], clocks: int) -> str:
        if clocks:
            return "time to pass" + (f", or {self._text(ranges, 0)}" if ranges else "")
        if not ranges:
            return "nothing: its loop reads no memory and changes nothing"
        shown = [self._describe(start, end) for start, end in ranges[:4]]
        return "a change of " + ", ".join(shown + ["..."] * (len(ranges) > 4))


def _values(names: tuple[str, ...], variables: Mapping[str, object]) -> tuple[object, ...]:
    return tuple(variables.get(name, _UNBOUND) for name in names)


def _moves(spin: Spin) -> set[int]:
    """How far the clock has gone from one round to the next, as a variable may show it that holds what was read."""
    before, now = spin.times_before, spin.times
    steps = {b - a for a, b in zip(before, now, strict=False)}
    steps |= {b - a for a, b in zip(reversed(before), reversed(now), strict=False)}
    return steps | {-step for step in steps}


def _follow(strides: tuple[int, ...], moves: set[int]) -> bool:
    """Whether integers are what they were, or have gone on, or back, as far as the clock; one of 32 bits begins again."""
    return all(not stride or any((stride - move) % (1 << 32) == 0 for move in moves) for stride in strides)


def _strides(state: tuple[object, ...], before: tuple[object, ...]) -> tuple[int, ...] | None:
    """By how much each variable has changed; None if one has that is no scalar integer."""
    strides = []
    for one, other in zip(state, before, strict=True):
        if _equal(one, other):
            strides.append(0)
        elif isinstance(one, tl.tensor) and isinstance(other, tl.tensor) and _integers(one, other):
            strides.append(int(one.handle.data.item()) - int(other.handle.data.item()))
        else:
            return None
    return tuple(strides)


def _integers(one: tl.tensor, other: tl.tensor) -> bool:
    return not one.shape and not other.shape and one.dtype == other.dtype and bool(one.dtype.is_int())


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
