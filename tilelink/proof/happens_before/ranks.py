"""How a schedule changes when every rank is renamed: by its text, so for all ranks at once and at any number of them.

Claim. Let rank r be renamed to (r + period) mod ranks, and each dimension of each buffer and signal be turned by a fixed shift.
If that maps the steps of every rank r to those of rank r + period, in program order, then it maps happens-before to itself. It
suffices to look at the memory of ranks 0..period - 1, and to walk these ranks (`walk`). No event is ordered before its image:
e < g(e) would give e < g(e) < ... < e. So two images that meet in a cell, one of them a write, are refuted, as they must be.

The premise is proved for each index: under the renaming its value e becomes e' = e + by (mod `mod`); mod 0 says exactly, mod 1
says nothing. What lies in a range shorter than the modulus, and moves by nothing modulo it, stands still. Ranges hold for every
rank, so that places of a dimension that turns are in bounds on all ranks, if they are by their ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd

from tilelink.ir.enums import Protocol
from tilelink.schedule.index import Index, Number, names_in, rank, spelled, subindices, terms_of
from tilelink.schedule.memory import Memory, Region
from tilelink.schedule.ranges import Range, combined
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import For, If, Let, Notify, Step, Wait
from tilelink.schedule.walk import notifies, phases, read, written

Shifts = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Moved:
    by: int
    mod: int
    range: Range

    @property
    def still(self) -> bool:
        return self.mod == 0 and self.by == 0

    @property
    def constant(self) -> bool:
        return self.still and self.range.constant


Moving = Mapping[str, Moved]


class Unlike(Exception):
    """The schedule of a renamed rank is not the renamed schedule, as far as this can see."""


def still(low: float, high: float) -> Moved:
    return Moved(0, 0, Range(low, high))


def moved(index: Number, env: Moving) -> Moved:
    if isinstance(index, int):
        return still(index, index)
    if index.is_lookup:
        raise Unlike(f"table {index.op}")
    if index.is_name:
        if index.op not in env:
            raise Unlike(index.op)
        return env[index.op]
    a, b = (moved(one, env) for one in index.args)
    range_ = combined(index.op, a.range, b.range)
    if a.still and b.still:
        return Moved(0, 0, range_)
    if index.op in "+-":
        by = a.by + b.by if index.op == "+" else a.by - b.by
        return _settled(Moved(by, gcd(a.mod, b.mod), range_))
    if index.op == "*" and a.constant:
        a, b = b, a
    if not b.constant or b.range.low <= 0 or index.op not in ("*", "//", "%"):
        return Moved(0, 1, range_)
    by = int(b.range.low)
    if index.op == "*":
        return Moved(a.by * by, a.mod * by, range_)
    if index.op == "//":
        known = a.by % by == 0 and a.mod % by == 0
        return _settled(Moved(a.by // by, a.mod // by, range_)) if known else Moved(0, 1, range_)
    mod = gcd(a.mod, by)
    return _settled(Moved(a.by % mod, mod, range_))


def _settled(one: Moved) -> Moved:
    """What moves by nothing modulo m and lies in 0..m - 1 does not move."""
    if one.mod > 1 and one.by % one.mod == 0 and one.range.within(0, one.mod - 1):
        return replace(one, by=0, mod=0)
    return one


def rank_period(schedule: Schedule, *, inputs: bool = False) -> tuple[int, Shifts]:
    """The smallest period for which the schedule of rank + period is that of rank, renamed; how far dimensions turn with it.
    `inputs`: those of inputs as well, of which it matters which elements are read."""
    ranks = schedule.num_ranks
    for period in range(1, ranks):
        if ranks % period == 0:
            try:
                return period, _Renaming(schedule, period, inputs).shifts()
            except Unlike:
                continue
    return ranks, {}


class _Renaming:
    def __init__(self, schedule: Schedule, period: int, inputs: bool) -> None:
        self.schedule, self.period, self.ranks = schedule, period, schedule.num_ranks
        self.inputs = inputs
        self.shapes = schedule.shapes
        # nothing is ever written to inputs, so that what is read of them decides nothing about the order
        self.constant = {
            one.name
            for one in schedule.buffers
            if not inputs and one.memory is Memory.INPUT and one.protocol is Protocol.SIMPLE
        }
        self.turns: dict[tuple[str, int], int] = {}

    def shifts(self) -> Shifts:
        for _, role, phase in phases(self.schedule):
            env = {"rank": Moved(self.period, self.ranks, Range(0, self.ranks - 1)), "call": still(1, float("inf"))}
            env |= {name: still(size, size) for name, size in self.schedule.sizes.items()}
            first, count = (self._still(index, env).range for index in (phase.first, phase.count))
            env["tile"] = still(first.low, max(first.high + count.high - 1, first.low))
            env["program"] = still(0, max(role.programs - 1, 0))
            self._steps(phase.body, self._let(phase.let, env))
        return {
            name: tuple(self.turns.get((name, n), 0) for n in range(len(shape))) for name, shape in self.shapes.items()
        }

    def _let(self, let: Let, env: Moving) -> dict[str, Moved]:
        found = dict(env)
        for name, index in let:
            found[name] = moved(index, found)
        return found

    def _still(self, index: Number, env: Moving) -> Moved:
        one = moved(index, env)
        if not one.still:
            raise Unlike(spelled(index))
        return one

    def _steps(self, body: tuple[Step, ...], env: Moving) -> None:
        for step in body:
            for region in (*read(step), *written(step)):
                self._region(region, env)
            for notify in notifies(step):
                self._notify(notify, env)
            match step:
                case Wait(signal, index, until):
                    self._word(signal, index, rank, env)
                    self._still(until, env)
                case For(variable, count, inner, let):
                    rounds = still(0, max(self._still(count, env).range.high - 1, 0))
                    self._steps(inner, self._let(let, {**env, variable: rounds}))
                case If(left, right, inner, others):
                    self._same(left, right, env)
                    self._steps(inner, env)
                    self._steps(others, env)

    def _same(self, left: Number, right: Number, env: Moving) -> None:
        """Whether two indices are equal does not change."""
        a, b = moved(left, env), moved(right, env)
        by, mod = a.by - b.by, gcd(a.mod, b.mod)
        far = max(a.range.high - b.range.low, b.range.high - a.range.low)
        if not (by == mod == 0 or (mod > 1 and by % mod == 0 and far < mod)):
            raise Unlike(f"{spelled(left)} == {spelled(right)}")

    def _notify(self, notify: Notify, env: Moving) -> None:
        self._word(notify.signal, notify.index, notify.at, env)
        self._still(notify.last_of, env)
        self._still(0 if notify.to is None else notify.to, env)

    def _rank(self, at: Number, env: Moving) -> None:
        where = moved(at, env)
        turns = where.mod % self.ranks == 0 and (where.by - self.period) % self.ranks == 0
        if not turns or not where.range.within(0, self.ranks - 1):
            raise Unlike(spelled(at))

    def _word(self, name: str, index: tuple[Number, ...], at: Number, env: Moving) -> None:
        self._rank(at, env)
        for number, (one, extent) in enumerate(zip(index, self.shapes.get(name, ()), strict=False)):
            self._place(name, number, one, 1, extent, env)

    def _region(self, region: Region, env: Moving) -> None:
        self._rank(region.at, env)
        if region.buffer in self.constant:
            divisors = (one.args[1] for start in region.start for one in subindices(start) if one.op in ("//", "%"))
            if not all(isinstance(one, int) for one in divisors):
                raise Unlike(region.buffer)  # some rank may divide by zero
            return
        shape = self.shapes.get(region.buffer, ())
        for number, (start, extent, most) in enumerate(zip(region.start, region.extent, shape, strict=False)):
            long = self._still(extent, env).range
            if start == 0 and long.constant and long.low == most and not self.inputs:
                continue  # all of it, in whatever order its elements lie
            lanes = {**env, "lane": still(0, max(long.high - 1, 0))}
            self._place(region.buffer, number, start, 1 if "lane" in names_in(start) else extent, most, lanes)

    def _place(self, name: str, number: int, start: Number, long: Number, most: int, env: Moving) -> None:
        """A dimension turns by one shift wherever it is used; what turns is in bounds, or it would be cut or wrapped."""
        where = moved(start, env)
        within = where.still or (where.range.low >= 0 and _end(start, long, env) <= most)
        if most < 1 or where.mod % most or not within:
            raise Unlike(f"{spelled(start)} in {name}")
        if self.turns.setdefault((name, number), where.by % most) != where.by % most:
            raise Unlike(f"dimension {number} of {name} turns and does not turn")


def _end(start: Number, long: Number, env: Moving) -> float:
    """The largest `start + long`: for `part * 100 + m * 16` and `min(16, 100 - m * 16)` that of `part * 100 + 100`."""
    if isinstance(long, Index) and long.op in ("min", "max"):
        return (min if long.op == "min" else max)(_end(start, one, env) for one in long.args)
    total = 0.0
    for one, times in terms_of(Index("+", (start, long))).items():
        reach = moved(one, env).range
        total += max(times * reach.low, times * reach.high)
    return total
