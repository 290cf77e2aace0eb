"""What steps of computation make of tiles in registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tilelink.ir.spec import BoundNode
from tilelink.proof.contents import states
from tilelink.proof.contents.folds import attended, folded
from tilelink.proof.contents.tile import (
    ANY_RANK,
    Full,
    Held,
    MergedStates,
    Nothing,
    Place,
    Product,
    Row,
    Share,
    StateOf,
    Summands,
    Term,
    Tile,
    Weighted,
    Zero,
)
from tilelink.proof.contents.trace import Done
from tilelink.proof.contents.user_folds import AS_ROW, Folds
from tilelink.proof.contents.user_ops import user_tile
from tilelink.proof.contents.values import Mismatch, Values
from tilelink.schedule.index import Ints
from tilelink.schedule.steps import FOLDS, Compute


class Making:
    """`users`: nodes of the spec that a user's function computes, by its name. `groups`: ranks of a node, and of its halves:
    their sums are values."""

    def __init__(self, values: Values, users: Mapping[str, BoundNode], groups: Sequence[int]) -> None:
        self.values, self.users, self.folds, self.groups = values, users, Folds(values), groups

    def made(self, done: Done, step: Compute, held: Mapping[str, Held], ranks: Ints) -> tuple[Held, ...]:
        """Of each result. Raises Mismatch."""
        if step.op == "zeros":
            return (Zero(done.shape),)
        if step.op == "full":
            return (Full(float(str(done.operands[0])), done.shape),)
        if step.op in FOLDS:
            return folded(done, held, ranks)
        if step.op in states.OPS:
            return states.made_of_states(self.values, done, step.op, held, ranks)
        if step.op == "attended":
            return (self._attended([held.get(str(one), Nothing()) for one in done.operands], ranks),)
        first = held.get(str(done.operands[0])) if done.operands else None
        if self.folds.makes(step.op, first):
            return self.folds.made(done, step, held, ranks)
        if step.op == "own_place":
            return (Place(str(step.operands[0]), ranks),)
        if step.op in self.users:
            return (user_tile(self.values, self.users[step.op], done.operands, held, ranks, step.results[0]),)
        operands: list[Held | str | float] = [
            held.get(one, one) if isinstance(one, str) else one
            for one in done.operands
            if not isinstance(one, np.ndarray)
        ]
        if step.op == "dot":
            return (_multiplied([_tile_of(one) for one in operands]),)
        if step.op == "combined":
            return (_weighted(operands, [_in_lanes(one, ranks) for one in done.operands[4:]]),)
        if step.op == "add" and isinstance(operands[0], Zero | Summands) and len(operands) == 2:
            more = self.value(_tile_of(operands[1]), ranks)
            if isinstance(operands[1], Nothing):
                return (operands[1],)
            if isinstance(operands[0], Zero) or _one_more(operands[0], more):
                return (self.added(operands[0], more, ranks),)
        tiles: list[Tile | str | float] = []
        for one in operands:
            value = one if isinstance(one, str | float) else self.value(one, ranks, *step.results)
            if isinstance(value, Nothing):
                return (value,) * len(step.results)
            if not isinstance(value, Tile | str | float):
                raise Mismatch("it has no value yet")
            tiles.append(value)
        return self._of_tiles(step, tiles, ranks)

    def _attended(self, state: Sequence[Held], ranks: Ints) -> Held:
        """The mean that a state has: of a share, of the states of all ranks, or of all keys."""
        total, weight = state
        if isinstance(total, Share):
            return states.mean_of_share(total, weight, ranks)
        if isinstance(total, MergedStates):
            return states.mean_of_all(self.values, total, weight, ranks)
        return attended(self.values, state, ranks)

    def _of_tiles(self, step: Compute, tiles: Sequence[Tile | str | float], ranks: Ints) -> tuple[Held, ...]:
        first = tiles[0]
        if step.op in ("copy", AS_ROW) or step.op.startswith("in_"):  # which round, at most
            return (_only(first),)
        if step.op == "trans":
            return (_only(first).turned(),)
        if step.op == "halves":
            return _halves(_only(first))
        try:
            return (self.values.elementwise(step.op, tiles, ranks, step.results[0]),)
        except Mismatch:
            more = tiles[-1]
            if step.op != "add" or not isinstance(first, Tile) or not isinstance(more, Tile):
                raise
            if first.term.name != more.term.name or first.term.summed:
                raise
            return (self.added(self._summand(first), more, ranks),)

    def value(self, held: Held, ranks: Ints, *names: str) -> Held:
        """`held` as a value of the spec: what products add up to, the sum of the summands of all ranks. `names`: what it is
        called, and what it is stored to. Raises Mismatch."""
        if isinstance(held, Product):
            return self.values.product(held, ranks, *names)
        if isinstance(held, StateOf):
            return self.folds.stored(held, ranks)
        if isinstance(held, Weighted):
            return self.values.combined(held, ranks, *names)
        if isinstance(held, Summands):
            wrong = held.tile.some & (held.times != 1).any(axis=1)
            if wrong.any() and (group := self._of_group(held)) is not None:
                return group
            if wrong.any():
                lane = int(np.flatnonzero(wrong)[0])
                rank = int(np.flatnonzero(held.times[lane] != 1)[0])
                times = f"{held.times[lane][rank]} times"
                raise Mismatch(f"the summand of rank {rank} of {held.tile.term} is added {times}", wrong)
            return replace(
                held.tile, term=Term(held.tile.term.name, True), owner=np.full(len(held.tile.owner), ANY_RANK)
            )
        return held

    def _of_group(self, held: Summands) -> Tile | None:
        """The sum over the ranks of a node or of a half, each once, if it is that."""
        first, ranks = held.times.argmax(axis=1), np.arange(self.values.ranks)[None, :]
        for size in self.groups:
            there = ranks // size == (first // size)[:, None]
            if size < self.values.ranks and not (held.tile.some & (held.times != there).any(axis=1)).any():
                term = Term(held.tile.term.name, True, size) if size > 1 else Term(held.tile.term.name)
                return replace(held.tile, term=term, owner=first)
        return None

    def added(self, total: Zero | Summands, more: Held, ranks: Ints) -> Held:
        tile = self.value(more, ranks)
        if isinstance(tile, Nothing):
            return tile
        if not isinstance(tile, Tile):
            raise Mismatch("it has no value yet")
        if (tile.term.summed and not tile.term.is_partial) or (tile.some & (tile.owner == ANY_RANK)).any():
            raise Mismatch(f"{tile.term} is no summand of one rank")
        one = self._summand(tile)
        if isinstance(total, Zero):
            return one
        if (total.tile.term, total.tile.axes) != (one.tile.term, tile.axes):
            raise Mismatch(f"summands of {total.tile.term} are added, and it is {tile.term}")
        both = total.tile.some & tile.some
        wrong = np.zeros(len(ranks), bool)
        for a, b in zip(total.tile.start, tile.start, strict=True):
            wrong |= both & (a != b)
        if wrong.any():
            raise Mismatch(f"other elements of {tile.term} are added", wrong)
        return Summands(total.tile.within(tile), total.times + one.times)

    def _summand(self, tile: Tile) -> Summands:
        """A summand of one rank, or what the ranks of a group have added up to."""
        times = np.zeros((len(tile.owner), self.values.ranks), np.int16)
        for other in range(max(1, tile.term.ranks)):
            times[np.arange(len(tile.owner)), np.maximum(tile.owner, 0) + other] = 1
        return Summands(replace(tile, term=Term(tile.term.name)), times)


def _one_more(total: Summands, more: Held) -> bool:
    """Whether `more` is another summand, and not what the sum is added to."""
    return isinstance(more, Tile) and more.term.name == total.tile.term.name


def _tile_of(one: Held | str | float) -> Held:
    return Nothing(f"{one} is no tile") if isinstance(one, str | float) else one


def _only(one: Tile | str | float) -> Tile:
    if not isinstance(one, Tile):
        raise Mismatch(f"{one} is no tile")
    return one


def _multiplied(operands: Sequence[Held]) -> Held:
    left, right, total = operands
    for one in operands:
        if isinstance(one, Nothing):
            return one
    if isinstance(left, Tile) and isinstance(right, Tile) and isinstance(total, Zero | Product):
        before = total.pairs if isinstance(total, Product) else ()
        return Product((*before, (left, right)), total.shape)
    raise Mismatch("products are added to something else")


def _weighted(operands: Sequence[Held | str | float], numbers: Sequence[Ints]) -> Held:
    """One more row. `numbers`: how many ids are experts', and the first of them."""
    total, row, weight, ids, *_ = operands
    experts, first = numbers
    for one in (total, row, weight, ids):
        if isinstance(one, Nothing):
            return one
    if not isinstance(total, Zero | Weighted):
        raise Mismatch("it combines no rows")
    if not (isinstance(row, Tile) and isinstance(weight, Tile) and isinstance(ids, Tile)):
        raise Mismatch("it combines no rows")
    before = total.terms if isinstance(total, Weighted) else ()
    return Weighted((*before, Row(row, weight, ids, experts, first)), total.shape)


def _in_lanes(number: str | float | Ints, ranks: Ints) -> Ints:
    if isinstance(number, str):
        raise Mismatch(f"{number} is no number")
    return np.broadcast_to(np.asarray(number, np.int64), ranks.shape)


def _halves(tile: Tile) -> tuple[Held, Held]:
    """Its left and its right columns."""
    axis = tile.axes[-1]
    if tile.shape is None or axis is None:
        raise Mismatch("it cannot be halved")
    width = tile.shape[-1] // 2
    start, extent, skip = list(tile.start), list(tile.extent), list(tile.skip)
    extent[axis] = np.minimum(tile.extent[axis], width)
    shape = (*tile.shape[:-1], width)
    first = replace(tile, extent=tuple(extent), shape=shape)
    start[axis] = start[axis] + width
    extent[axis] = np.maximum(tile.extent[axis] - width, 0)
    skip[axis] = np.maximum(tile.skip[axis] - width, 0)
    return first, replace(tile, start=tuple(start), extent=tuple(extent), skip=tuple(skip), shape=shape)
