"""Ranks that are alike are looked at once: what lies on one of them follows from what lies on another.

`happens_before.ranks` shows that renaming rank r to r + period, and turning dimensions of buffers by fixed shifts, maps the
steps of each rank to those of the renamed one. Here inputs count as well. Where the operations of the spec take values with
turned dimensions to such values, the renaming maps what lies in each place to what lies in the renamed place: x[c] of rank p
becomes x[c turned] of rank p + period. So it suffices to look at ranks 0..period - 1, at what they do and at their memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilelink.ir.ops.elementwise import Elementwise
from tilelink.ir.ops.user_op import UserOp
from tilelink.ir.spec import AllGather, AllReduce, BoundNode, Matmul, ReduceScatter, SendRecv, Slice
from tilelink.proof.contents.memory import Access
from tilelink.proof.contents.tile import Tile
from tilelink.proof.contents.values import Values
from tilelink.proof.happens_before.ranks import Unlike, rank_period
from tilelink.schedule.index import Ints
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import Call
from tilelink.schedule.walk import all_steps

Turns = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Alike:
    """`shifts`: how far dimensions of buffers turn from a rank to the one `period` further; `turns`: those of values."""

    ranks: int
    period: int
    shifts: Turns
    turns: Turns
    shapes: Mapping[str, tuple[int, ...]]  # of values

    def image(self, access: Access, shape: tuple[int, ...]) -> Access:
        """The same box as the rank below `period` has it that is like the one where it lies."""
        turn = access.at // self.period
        if not turn.any():
            return access
        start, low, high = [], [], []
        shifts = self.shifts.get(access.buffer, (0,) * len(shape))
        for a, b, c, by, size in zip(access.start, access.low, access.high, shifts, shape, strict=True):
            first = (a - by * turn) % size if by else a
            start.append(first)
            low.append(b + first - a)
            high.append(c + first - a)
        at = access.at % self.period
        return replace(access, at=at, start=tuple(start), low=tuple(low), high=tuple(high), turn=turn)

    def seen(self, tile: Tile, turn: Ints | None) -> Tile:
        """What lies in an image, as it is where it lies."""
        return tile if turn is None else self._turned(tile, turn)

    def stored(self, tile: Tile, turn: Ints | None) -> Tile:
        """What is stored, as it is in the image."""
        return tile if turn is None else self._turned(tile, -turn)

    def owner(self, owner: Ints, turn: Ints | None) -> Ints:
        return owner if turn is None else np.where(owner < 0, owner, (owner + self.period * turn) % self.ranks)

    def _turned(self, tile: Tile, turn: Ints) -> Tile:
        name = tile.term.name
        by, start = self.turns.get(name, ()), list(tile.start)
        for dim, far in enumerate(by):
            if far:
                size = self.shapes[name][dim]
                start[dim] = (tile.start[dim] + far * turn) % size
                if (tile.some & (start[dim] + tile.extent[dim] > size)).any():
                    raise Unlike(f"a box of {name} that would be wrapped")
        return replace(tile, owner=self.owner(tile.owner, turn), start=tuple(start))


def every_rank(schedule: Schedule) -> Alike:
    """Each rank by itself."""
    return Alike(schedule.num_ranks, schedule.num_ranks, {}, {}, {})


def alike(schedule: Schedule, values: Values) -> Alike:
    """The ranks of `schedule`, as few as stand for all."""
    meets = any(isinstance(step, Call) and not step.function.startswith("matmul") for step in all_steps(schedule))
    period, shifts = (schedule.num_ranks, {}) if meets else rank_period(schedule, inputs=True)
    if period == schedule.num_ranks:
        return every_rank(schedule)
    turns: dict[str, tuple[int, ...]] = {}
    try:
        for value in values.spec.inputs:
            turns[value.name] = shifts.get(value.name, (0,) * len(value.local))
        for node in values.spec.nodes:
            turns[node.output.name] = _turns_of(node, turns, values, period)
    except Unlike:
        return every_rank(schedule)
    return Alike(schedule.num_ranks, period, shifts, turns, values.shapes)


def _turns_of(node: BoundNode, turns: Turns, values: Values, period: int) -> tuple[int, ...]:
    """How far dimensions of the result turn, if those of the operands turn so. Raises Unlike where the operation is another one
    of turned operands."""
    given, shape = [turns[name] for name in node.inputs], node.output.local
    shapes = [values.shapes[name] for name in node.inputs]
    match node.operation:
        case Matmul(transposed=transposed):
            left, right = given
            inner = right[1 if transposed else 0]
            _same([left[1], inner], shapes[0][1])
            return left[0], right[0 if transposed else 1]
        case Elementwise():
            return tuple(_same(_along(given, shapes, shape, dim), size) for dim, size in enumerate(shape))
        case UserOp() as op:
            return _user_turns(op, given, shapes)
        case AllGather(dim):
            _same([given[0][dim], 0], shapes[0][dim])
            return _with(given[0], dim, shapes[0][dim] * period % shape[dim])
        case ReduceScatter(dim):
            _same([given[0][dim], shape[dim] * period], shapes[0][dim])
            return _with(given[0], dim, 0)
        case Slice(dim):
            _same([given[0][dim], 0], shapes[0][dim])
            return given[0]
        case AllReduce() | SendRecv():
            return given[0]
    raise Unlike(type(node.operation).__name__)


def _same(turns: Sequence[int], size: int) -> int:
    if len({one % size for one in turns}) > 1:
        raise Unlike("dimensions that turn differently")
    return turns[0] % size if turns else 0


def _along(turns: list[tuple[int, ...]], shapes: list[tuple[int, ...]], result: tuple[int, ...], dim: int) -> list[int]:
    """Turns of the dimensions that line up with dimension `dim` of the result, but for those of one repeated element."""
    found = []
    for turn, shape in zip(turns, shapes, strict=True):
        own = dim - len(result) + len(shape)
        if own >= 0 and not (shape[own] == 1 != result[dim]):
            found.append(turn[own])
    return found


def _user_turns(op: UserOp, turns: list[tuple[int, ...]], shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """A function may count on the order of what it runs over, so that this may not turn. One that runs over what it writes may
    count on where its tile lies."""
    if op.whole:
        raise Unlike(op.name)
    found: dict[str, int] = {}
    for (tensor, _), turn, shape in zip(op.reads, turns, shapes, strict=True):
        for axis, far, size in zip(op.read_index(tensor), turn, shape, strict=True):
            written = axis in op.writes
            _same([far, found.setdefault(axis, far) if written else 0], size)
    return tuple(found.get(axis, 0) for axis in op.writes)


def _with(turns: tuple[int, ...], dim: int, turn: int) -> tuple[int, ...]:
    return tuple(turn if number == dim else one for number, one in enumerate(turns))
