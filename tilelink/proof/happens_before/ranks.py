"""How a schedule changes when every rank is renamed: by its text, so for all ranks at once and at any number of them.

Claim. Let rank r be renamed to (r + period) mod ranks, and each dimension of each buffer and signal be turned by a fixed shift.
If that maps the steps of every rank r to those of rank r + period, in program order, then it maps happens-before to itself. It
suffices to look at the memory of ranks 0..period - 1, and to walk these ranks (`walk`). No event is ordered before its image:
e < g(e) would give e < g(e) < ... < e. So two images that meet in a cell, one of them a write, are refuted, as they must be.
Ranks of two levels are alike in two ways: blocks of `period` ranks, the nodes, and ranks of each block, which turn in it by one.
Both renamings together take rank 0 to every rank. Program order may be another one where positions may come in any order: there
they turn by what one rank has of them (`any_order`).

The premise is proved for each index: under the renaming its value e becomes e' = e + by (mod `mod`); mod 0 says exactly, mod 1
says nothing. What lies in a range shorter than the modulus, and moves by nothing modulo it, stands still. Ranges hold for every
rank, so that places of a dimension that turns are in bounds on all ranks, if they are by their ranges. Of a renaming inside of
blocks, what is `whole` moves in its block: e // mod stays, and e % mod becomes (e % mod + by) % mod.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd
from typing import NamedTuple

from tilelink.ir.enums import Protocol
from tilelink.proof.happens_before.any_order import AnyOrder
from tilelink.proof.happens_before.turns import Shift, Turns
from tilelink.schedule.index import Index, Number, names_in, rank, replaced, spelled, subindices, sum_of, terms_of
from tilelink.schedule.memory import Memory, Region
from tilelink.schedule.ranges import Range, combined
from tilelink.schedule.roles import Phase, Role, Schedule
from tilelink.schedule.steps import For, If, Let, Notify, Step, Wait
from tilelink.schedule.walk import notifies, phases, read, steps_in, written


@dataclass(frozen=True, slots=True)
class Moved:
    """`whole`: it stays in its block of `mod`. `multiple`: of what number it is one, 0 of all."""

    by: int
    mod: int
    range: Range
    whole: bool = False
    multiple: int = 1

    @property
    def still(self) -> bool:
        return self.mod == 0 and self.by == 0

    @property
    def constant(self) -> bool:
        return self.still and self.range.constant

    def as_(self, other: Moved) -> bool:
        """Whether both are renamed by one rule, so that they are equal behind it if they are before."""
        return self.whole and other.whole and (self.by, self.mod) == (other.by, other.mod)


Moving = Mapping[str, Moved]


class Unlike(Exception):
    """The schedule of a renamed rank is not the renamed schedule, as far as this can see."""


def still(low: float, high: float, multiple: int = 1) -> Moved:
    return Moved(0, 0, Range(low, high), multiple=multiple)


def moved(index: Number, env: Moving) -> Moved:
    if isinstance(index, int):
        return still(index, index, abs(index))
    if index.is_lookup:
        raise Unlike(f"table {index.op}")
    if index.is_name:
        if index.op not in env:
            raise Unlike(index.op)
        return env[index.op]
    a, b = (moved(one, env) for one in index.args)
    range_, multiple = combined(index.op, a.range, b.range), _multiple(index.op, a, b)
    if a.still and b.still:
        return Moved(0, 0, range_, multiple=multiple)
    if index.op in "+-":
        if index.op == "+" and a.still:
            a, b = b, a
        if a.whole and b.still and index.op == "+" and _stays(a, b):
            return replace(a, range=range_, multiple=multiple)
        by = a.by + b.by if index.op == "+" else a.by - b.by
        return _settled(Moved(by, gcd(a.mod, b.mod), range_, multiple=multiple))
    if index.op == "*" and a.constant:
        a, b = b, a
    if not b.constant or b.range.low <= 0 or index.op not in ("*", "//", "%"):
        return Moved(0, 1, range_)
    by = int(b.range.low)
    if index.op == "*":
        return Moved(a.by * by, a.mod * by, range_, a.whole, multiple)
    if index.op == "//":
        if a.whole and by % a.mod == 0:  # it knows blocks alone
            return Moved(0, 0, range_)
        known = a.by % by == 0 and a.mod % by == 0
        divided = Moved(a.by // by, a.mod // by, range_, a.whole, multiple)
        return _settled(divided) if known else Moved(0, 1, range_)
    if a.whole and by % a.mod == 0:
        return replace(a, range=range_, multiple=multiple)
    mod = gcd(a.mod, by)
    return _settled(Moved(a.by % mod, mod, range_, mod == by, multiple))


def _multiple(op: str, a: Moved, b: Moved) -> int:
    """Of what number the result is a multiple."""
    if op == "*":
        return a.multiple * b.multiple
    if op == "//":
        by = int(b.range.low) if b.constant else 0
        return a.multiple // by if by > 0 and a.multiple % by == 0 else 1
    return gcd(a.multiple, b.multiple)


def _stays(one: Moved, more: Moved) -> bool:
    """Whether something that stands still can be added to what moves in its block, and the sum moves as that does."""
    if more.multiple % one.mod == 0:
        return True
    unit = gcd(one.multiple, one.mod, one.by)
    return more.range.within(0, unit - 1)


def _settled(one: Moved) -> Moved:
    """What moves by nothing modulo m and lies in 0..m - 1 does not move."""
    if one.mod > 1 and one.by % one.mod == 0 and one.range.within(0, one.mod - 1):
        return replace(one, by=0, mod=0, whole=False)
    return one


def rank_turns(schedule: Schedule, free: AnyOrder | None = None, *, inputs: bool = False) -> Turns:
    """Renamings that leave as few ranks as can be seen. `inputs`: those of inputs as well, of which it matters which elements are
    read."""
    ranks, free = schedule.num_ranks, free or AnyOrder(schedule)
    for period in range(1, ranks):
        if ranks % period == 0:
            try:
                blocks = _Renaming(schedule, Moved(period, ranks, Range(0, ranks - 1)), inputs, free, period).shifts()
            except (Unlike, ZeroDivisionError):  # what divides by zero is found where the order is proved
                continue
            shifts = {name: tuple(Shift(one.by) for one in dims) for name, dims in blocks.items()}
            return _inside(schedule, Turns(ranks, period, 1, shifts), inputs, free)
    return alone(schedule)


def alone(schedule: Schedule) -> Turns:
    """No renaming: each rank stands for itself."""
    return Turns(schedule.num_ranks, schedule.num_ranks)


def _inside(schedule: Schedule, turns: Turns, inputs: bool, free: AnyOrder) -> Turns:
    """Those that turn the ranks of each block in it as well, if they are alike."""
    ranks, period = turns.ranks, turns.period
    if period == 1:
        return turns
    try:
        found = _Renaming(schedule, Moved(1, period, Range(0, ranks - 1), whole=True), inputs, free, 1).shifts()
    except (Unlike, ZeroDivisionError):
        return turns
    shifts = {
        name: tuple(Shift(a.by, b.by, b.mod) for a, b in zip(turns.shifts[name], dims, strict=True))
        for name, dims in found.items()
    }
    blocks = all(one.by % one.block == 0 for dims in shifts.values() for one in dims if one.block)
    return Turns(ranks, 1, period, shifts) if blocks else turns


def _buffers(phase: Phase) -> set[str]:
    return {region.buffer for step in steps_in(phase.body) for region in (*read(step), *written(step))}


class _Turn(NamedTuple):
    """Of a dimension: by how much, modulo what."""

    by: int
    mod: int


class _Renaming:
    """`renamed`: what becomes of a rank. `few`: so many ranks go to all others."""

    def __init__(self, schedule: Schedule, renamed: Moved, inputs: bool, free: AnyOrder, few: int) -> None:
        self.schedule, self.renamed, self.ranks = schedule, renamed, schedule.num_ranks
        self.inputs, self.free, self.few = inputs, free, few
        self.shapes = schedule.shapes
        # nothing is ever written to inputs, so that what is read of them decides nothing about the order
        self.constant = {
            one.name
            for one in schedule.buffers
            if not inputs and one.memory is Memory.INPUT and one.protocol is Protocol.SIMPLE
        }
        self.turns: dict[tuple[str, int], _Turn] = {}
        self.meant: dict[str, Number] = {}  # by names of the phase at hand

    def shifts(self) -> dict[str, tuple[_Turn, ...]]:
        later = []
        for launch, role, phase in phases(self.schedule):
            if self.free.tells_nobody(launch, phase):
                later.append((launch, role, phase))
            else:
                self._phase(role, phase)
        while later:  # first those of buffers that turn or stand still already
            held = {name for name, _ in self.turns}
            launch, role, phase = max(later, key=lambda one: len(held & _buffers(one[2])))
            later.remove((launch, role, phase))
            known = dict(self.turns)
            try:
                self._phase(role, phase)
            except Unlike:
                if not self.free(launch, role, phase, self.few):
                    raise
                self.turns = known
                self._phase(role, phase, turned=True)
        none = _Turn(0, 0)
        return {
            name: tuple(self.turns.get((name, n), none) for n in range(len(shape)))
            for name, shape in self.shapes.items()
        }

    def _phase(self, role: Role, phase: Phase, *, turned: bool = False) -> None:
        """`turned`: positions turn by those of one rank, and go to other programs."""
        env = {"rank": self.renamed, "call": still(1, float("inf"))}
        env |= {name: still(size, size) for name, size in self.schedule.sizes.items()}
        first, count = (self._still(index, env).range for index in (phase.first, phase.count))
        tiles = still(first.low, max(first.high + count.high - 1, first.low))
        if turned:
            share = int(count.high) // self.ranks
            if not (first.low == first.high == 0 and count.constant and share * self.ranks == count.high):
                raise Unlike("tiles that ranks share")
            renamed = self.renamed
            tiles = Moved(share * renamed.by, share * renamed.mod, tiles.range, renamed.whole)
        else:
            env["program"] = still(0, max(role.programs - 1, 0))
        self.meant = {}
        for name, index in phase.let:
            self.meant[name] = replaced(index, self.meant)
        self._steps(phase.body, self._let(phase.let, env | {"tile": tiles}))

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
        if a.as_(b):
            return
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
        turns = where.mod % self.ranks == 0 and (where.by - self.renamed.by) % self.ranks == 0
        turns = where.as_(self.renamed) if self.renamed.whole else turns
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
            long_ = 1 if "lane" in names_in(start) else extent
            self._place(region.buffer, number, start, long_, most, lanes, cut=True)

    def _place(
        self, name: str, number: int, start: Number, long: Number, most: int, env: Moving, *, cut: bool = False
    ) -> None:
        """A dimension turns by one shift wherever it is used; what turns is in bounds, or it would be cut or wrapped. `cut`: what
        lies outside of a box is left out."""
        # `begin` and `share = end - begin` end at `end`, which nobody sees of the names
        start, long = replaced(start, self.meant), replaced(long, self.meant)
        where = moved(start, env)
        if cut and _cut_alike(where, moved(long, env).range, most):
            where = still(where.range.low, where.range.high)
        within = where.still or (where.range.low >= 0 and _end(start, long, env) <= most)
        if self.renamed.whole and not where.still:
            turn = in_block(start, long, env)
            known = turn is not None and most % turn.mod == 0
        else:
            turn = _Turn(where.by % max(most, 1), 0)
            known = most > 0 and where.mod % most == 0
        if not within or not known or turn is None:
            raise Unlike(f"{spelled(start)} in {name}")
        if self.turns.setdefault((name, number), turn) != turn:
            raise Unlike(f"dimension {number} of {name} turns and does not turn")


def _cut_alike(start: Moved, long: Range, most: int) -> bool:
    """Whether what is left of `long` places from `start` on in a dimension of `most` stays as it is: all of the dimension, as of
    a tile with rows of all ranks; or those of `t - peer * 16` that are rows of `peer`, where both turn. Modulo 128 these stay.
    Any other number that they may become is as far from the dimension as can be, and leaves nothing before and after."""
    everything = start.range.high <= 0 and start.range.low + long.low >= most
    stays = start.mod > 1 and start.by % start.mod == 0
    return everything or (stays and start.range.high <= start.mod - long.high and start.range.low >= most - start.mod)


def in_block(start: Number, long: Number, env: Moving) -> _Turn | None:
    """How `long` places from `start` on turn in a block. They lie in one part of it, of as many places as it turns by."""
    terms = {one: (times, moved(one, env)) for one, times in terms_of(start).items()}
    turning = moved(sum_of({one: times for one, (times, where) in terms.items() if not where.still}), env)
    part = turning.by
    if not turning.whole or part < 1:
        return None
    rest = {one: times for one, (times, where) in terms.items() if where.still and times * where.multiple % part}
    base = moved(sum_of({one: times for one, (times, _) in terms.items() if one not in rest}), env)
    inside = moved(sum_of(rest), env).range.low >= 0 and _end(sum_of(rest), long, env) <= part
    whole = base.whole and base.by == part and base.multiple % part == 0 == base.mod % part
    return _Turn(part, base.mod) if inside and whole else None


def _end(start: Number, long: Number, env: Moving) -> float:
    """The largest `start + long`: for `part * 100 + m * 16` and `min(16, 100 - m * 16)` that of `part * 100 + 100`. What is long
    only if there is anything is that or nothing: `min(1, n) * n`."""
    if isinstance(long, Index) and long.op in ("min", "max"):
        return (min if long.op == "min" else max)(_end(start, one, env) for one in long.args)
    if isinstance(long, Index) and long.op == "*" and moved(long.args[0], env).range.within(0, 1):
        return max(_end(start, long.args[1], env), _end(start, 0, env))
    total = 0.0
    for one, times in terms_of(Index("+", (start, long))).items():
        reach = moved(one, env).range
        total += max(times * reach.low, times * reach.high)
    return total
