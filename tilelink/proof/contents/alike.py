"""Ranks that are alike are looked at once: what lies on one of them follows from what lies on another.

`happens_before.ranks` shows that renaming ranks, and turning dimensions of buffers by fixed shifts, maps the steps of each
rank to those of the renamed one. Here inputs count as well. Where the operations of the spec take values with turned dimensions
to such values, the renaming maps what lies in each place to what lies in the renamed place: x[c] of rank p becomes x[c turned]
of the renamed rank. So it suffices to look at ranks 0..period - 1, at what they do and at their memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilelink.ir.ops.elementwise import Elementwise
from tilelink.ir.ops.user_op import UserOp
from tilelink.ir.spec import AllGather, AllReduce, BoundNode, Matmul, ReduceScatter, SendRecv, Slice
from tilelink.proof.contents.memory import Access
from tilelink.proof.contents.tile import Tile
from tilelink.proof.contents.values import Values
from tilelink.proof.happens_before.meetings import with_meetings
from tilelink.proof.happens_before.ranks import Unlike, alone, rank_turns
from tilelink.proof.happens_before.refuted import Refuted
from tilelink.proof.happens_before.turns import STILL, Shift, Shifts, Turns
from tilelink.schedule.index import Ints
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import SEND_RECEIVE, Call
from tilelink.schedule.walk import all_steps


@dataclass(frozen=True)
class Alike:
    """`turns`: of ranks and dimensions of buffers; `values`: how dimensions of values turn with them."""

    turns: Turns
    values: Shifts
    shapes: Mapping[str, tuple[int, ...]]  # of values

    @property
    def period(self) -> int:
        return self.turns.period

    def image(self, access: Access, shape: tuple[int, ...]) -> Access:
        """The same box as the rank below `period` has it that is like the one where it lies."""
        turn = access.at // self.period
        if not turn.any():
            return access
        start, low, high = [], [], []
        shifts, back = self.turns.along(access.buffer, len(shape)), self.turns.back(turn)
        for a, b, c, by, size in zip(access.start, access.low, access.high, shifts, shape, strict=True):
            first = self.turns.place(a, 1, by, size, back)
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
        return tile if turn is None else self._turned(tile, self.turns.back(turn))

    def owner(self, owner: Ints, turn: Ints | None) -> Ints:
        return owner if turn is None else np.where(owner < 0, owner, self.turns.numbers(owner, turn))

    def image_of(self, owner: Ints, turn: Ints | None) -> Ints:
        """The other way round."""
        return owner if turn is None else self.owner(owner, self.turns.back(turn))

    def _turned(self, tile: Tile, turn: Ints) -> Tile:
        name = tile.term.name
        by, start = self.values.get(name, ()), list(tile.start)
        for dim, far in enumerate(by):
            if far != STILL:
                size = self.shapes[name][dim]
                start[dim] = self.turns.place(tile.start[dim], 1, far, size, turn)
                part = far.inside or size
                if (tile.some & (start[dim] % part + tile.extent[dim] > part)).any():
                    raise Unlike(f"a box of {name} that would be wrapped")
        return replace(tile, owner=self.owner(tile.owner, turn), start=tuple(start))


def every_rank(schedule: Schedule) -> Alike:
    """Each rank by itself."""
    return Alike(alone(schedule), {}, {})


def alike(schedule: Schedule, values: Values) -> Iterator[Alike]:
    """Sets of ranks of `schedule` that may stand for all, small ones first; the last one is all of them."""
    calls = {step.function for step in all_steps(schedule) if isinstance(step, Call)}
    meets = any(not name.startswith("matmul") and name != SEND_RECEIVE for name in calls)
    turns = alone(schedule)
    if not meets:
        with contextlib.suppress(Refuted):  # with_meetings says what is wrong where the order is proved
            turns = rank_turns(with_meetings(schedule), inputs=True)
    for one in (turns, turns.of_blocks()) if turns.inner > 1 else (turns,):
        if one.period < one.ranks:
            with contextlib.suppress(Unlike):
                yield Alike(one, _of_values(values, one), values.shapes)
    yield every_rank(schedule)


def _of_values(values: Values, turns: Turns) -> Shifts:
    found: dict[str, tuple[Shift, ...]] = {}
    for value in values.spec.inputs:
        found[value.name] = turns.along(value.name, len(value.local))
    for node in values.spec.nodes:
        found[node.output.name] = _turns_of(node, found, values, turns)
    return found


def _turns_of(node: BoundNode, found: Shifts, values: Values, turns: Turns) -> tuple[Shift, ...]:
    """How dimensions of the result turn, if those of the operands turn so. Raises Unlike where the operation is another one
    of turned operands."""
    given, shape = [found[name] for name in node.inputs], node.output.local
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
            _same([given[0][dim], STILL], shapes[0][dim])
            return _with(given[0], dim, turns.parts(shapes[0][dim]))
        case ReduceScatter(dim):
            _same([given[0][dim], turns.parts(shape[dim])], shapes[0][dim])
            return _with(given[0], dim, STILL)
        case Slice(dim):
            _same([given[0][dim], STILL], shapes[0][dim])
            return given[0]
        case AllReduce():
            return given[0]
        case SendRecv() if turns.inner == 1:  # a circle of all ranks
            return given[0]
    raise Unlike(type(node.operation).__name__)


def _same(turns: Sequence[Shift], size: int) -> Shift:
    several = {one._replace(by=one.by % size) for one in turns}
    if len(several) > 1:
        raise Unlike("dimensions that turn differently")
    return several.pop() if several else STILL


def _along(
    turns: list[tuple[Shift, ...]], shapes: list[tuple[int, ...]], result: tuple[int, ...], dim: int
) -> list[Shift]:
    """Turns of the dimensions that line up with dimension `dim` of the result, but for those of one repeated element."""
    found = []
    for turn, shape in zip(turns, shapes, strict=True):
        own = dim - len(result) + len(shape)
        if own >= 0 and not (shape[own] == 1 != result[dim]):
            found.append(turn[own])
    return found


def _user_turns(op: UserOp, turns: list[tuple[Shift, ...]], shapes: list[tuple[int, ...]]) -> tuple[Shift, ...]:
    """A function may count on the order of what it runs over, so that this may not turn. One that runs over what it writes may
    count on where its tile lies."""
    if op.whole:
        raise Unlike(op.name)
    found: dict[str, Shift] = {}
    for (tensor, _), turn, shape in zip(op.reads, turns, shapes, strict=True):
        for axis, far, size in zip(op.read_index(tensor), turn, shape, strict=True):
            written = axis in op.writes
            _same([far, found.setdefault(axis, far) if written else STILL], size)
    return tuple(found.get(axis, STILL) for axis in op.writes)


def _with(turns: tuple[Shift, ...], dim: int, turn: Shift) -> tuple[Shift, ...]:
    return tuple(turn if number == dim else one for number, one in enumerate(turns))
