"""Renamings of ranks that map a schedule to itself, and what they do to ranks, programs and places.

Ranks lie in blocks of `inner` times `period`. A renaming is a *turn*, a number: ranks go `turn // inner` blocks further, and
`turn % inner` periods further inside of their block, both in a circle. So the turn that takes ranks 0..period - 1 to some rank is
its number `// period`. With one period a block, `inner` = 1, a turn is so many periods.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, overload

import numpy as np

from tilelink.schedule.index import Ints


class Shift(NamedTuple):
    """How places of a dimension move: by `by` for each block, in the circle of all; by `inside` for each period inside of a
    block, in the circle of `block` places."""

    by: int = 0
    inside: int = 0
    block: int = 0

    def moved(self, first: Ints, long: Ints | int, extent: int, outer: Ints, inner: Ints) -> Ints:
        """Where `long` places from `first` on begin then. All of a dimension stays all of it."""
        there = first
        if self == STILL:
            return first
        if self.inside:
            here = first % self.block
            there = first - here + (here + self.inside * inner) % self.block
        return np.where(long == extent, first, (there + self.by * outer) % extent)


STILL = Shift()
Shifts = Mapping[str, tuple[Shift, ...]]


@dataclass(frozen=True, slots=True)
class Turns:
    """`shifts`: of dimensions of buffers and signals."""

    ranks: int
    period: int
    inner: int = 1
    shifts: Shifts = field(default_factory=dict)

    def along(self, name: str, dims: int) -> tuple[Shift, ...]:
        return self.shifts.get(name, (STILL,) * dims)

    def back(self, turn: Ints) -> Ints:
        """The turn that takes back `turn`."""
        if self.inner == 1:
            return -turn
        blocks = self.ranks // self.period // self.inner
        return -(turn // self.inner) % blocks * self.inner + -turn % self.inner

    def place(self, first: Ints, long: Ints | int, shift: Shift, extent: int, turn: Ints) -> Ints:
        return shift.moved(first, long, extent, turn // self.inner, turn % self.inner)

    @overload
    def numbers(self, numbers: int, turn: int, each: int = 1) -> int: ...

    @overload
    def numbers(self, numbers: Ints, turn: Ints | int, each: int = 1) -> Ints: ...

    def numbers(self, numbers: Ints | int, turn: Ints | int, each: int = 1) -> Ints | int:
        """Ranks, or of things of which each rank has `each` their numbers, where the turn takes them."""
        unit = self.period * each
        if self.inner == 1:
            return (numbers + turn * unit) % (self.ranks * each)
        block = unit * self.inner
        here = numbers % block
        outer = (numbers - here + turn // self.inner * block) % (self.ranks * each)
        return outer + (here + turn % self.inner * unit) % block

    def parts(self, size: int) -> Shift:
        """Of a dimension that has `size` places of each rank, one rank's behind another's."""
        if self.inner == 1:
            return Shift(size * self.period)
        block = size * self.period * self.inner
        return Shift(block, size * self.period, block)

    def of_blocks(self) -> Turns:
        """Blocks alone, whose ranks each stand for themselves."""
        shifts = {name: tuple(Shift(one.by) for one in dims) for name, dims in self.shifts.items()}
        return Turns(self.ranks, self.period * self.inner, 1, shifts)
