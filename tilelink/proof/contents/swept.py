"""A loop over tiles of keys, or over blocks of an axis, as one round: loads have all that their lane goes over, a mask knows how
many keys there are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilelink.proof.contents.tile import Pieces
from tilelink.proof.happens_before.lanes import Lanes
from tilelink.schedule.index import Index, Ints, Number, names_in, replaced
from tilelink.schedule.steps import FOLDS, Compute, For, Load

Box = tuple[tuple[Ints, ...], tuple[Ints, ...]]  # start and extent along each dimension


def folds(loop: For) -> bool:
    """Whether the loop loads keys and values, and does nothing with them but to take them into a fold."""
    *loads, last = loop.body
    return isinstance(last, Compute) and last.op in FOLDS and all(isinstance(one, Load) for one in loads)


def merges_blocks(loop: For) -> bool:
    """Whether each round makes something by a function of addresses, and merges it behind what there is:
    made = f(addresses, ...); state = merge(state, made)."""
    loads = [one for one in loop.body if isinstance(one, Load)]
    match loop.body[len(loads) :]:
        case (Compute(made), *rows, Compute(state, _, operands)):
            alone = all(isinstance(one, Compute) and _as_row(one) for one in rows)
            return bool(loads) and all(one.origin for one in loads) and alone and operands == (*state, *made)
    return False


def _as_row(step: Compute) -> bool:
    return step.op == "as_row" and step.operands == step.results


class Sweep:
    """Rounds of `loop` in lanes that have `counts` of them each, one or more. Names of `let` are replaced."""

    def __init__(self, loop: For, lanes: Lanes, counts: Ints) -> None:
        self.counts, self.most = counts, int(counts.max())
        self.by: dict[str, Number] = {}
        for name, index in loop.let:
            self.by[name] = replaced(index, self.by)
        self.rounds = [lanes.having(**{loop.variable: number}) for number in range(self.most)]

    def values(self, index: Number) -> list[Ints]:
        """Of each round."""
        index = replaced(index, self.by)
        return [lanes.value(index, {}) for lanes in self.rounds]

    def box(self, load: Load) -> tuple[Box, bool]:
        """What a load goes over, and whether it does so row by row, and in nothing but rows."""
        dims = len(load.region.start)
        rows = dims - 2
        starts = [self.values(one) for one in load.region.start]
        extents = [self.values(one) for one in load.region.extent]
        torn = self._moves(self.values(load.region.at))
        for dim in range(dims):
            torn |= dim != rows and (self._moves(starts[dim]) or self._moves(extents[dim]))
        reached = starts[rows][0].copy()
        for number, (start, extent) in enumerate(zip(starts[rows], extents[rows], strict=True)):
            going = self.counts > number
            torn |= bool((going & (start != reached)).any())
            reached = np.where(going, start + extent, reached)
        sizes = [each[0] for each in extents]
        sizes[rows] = reached - starts[rows][0]
        return (tuple(each[0] for each in starts), tuple(sizes)), torn

    def mask(self, step: Compute, load: Load) -> tuple[dict[int, Ints], bool]:
        """Operands of a masked step for all rounds at once, by their place: where the first query stands, how many keys there
        are; and whether a round has none that fit its own tile."""
        if step.op == FOLDS[0]:
            return {}, False
        ahead, here = (self.values(one) if isinstance(one, Index) else self._always(one) for one in step.operands[8:10])
        starts, extents = (self.values(side[-2]) for side in (load.region.start, load.region.extent))
        total, torn, window = np.zeros_like(starts[0]), False, int(str(step.operands[10]))
        follows, open_ = np.ones(len(total), bool), np.full(len(total), window == 0)  # the rows; it hides nothing
        for number, start in enumerate(starts):
            going = self.counts > number
            torn |= bool((going & (here[number] != extents[number])).any())
            follows &= ~going | (ahead[number] + start == ahead[0] + starts[0])
            open_ &= ~going | (ahead[number] >= here[number] - 1)
            total += np.where(going, here[number], 0)
        torn |= bool((~follows & ~open_).any())
        return {8: np.where(follows, ahead[0], ahead[0] + total), 9: total}, torn

    def _always(self, number: object) -> list[Ints]:
        column = np.full(len(self.counts), int(str(number)), np.int64)
        return [column] * self.most

    def _moves(self, columns: list[Ints]) -> bool:
        return any(bool(((self.counts > n) & (one != columns[0])).any()) for n, one in enumerate(columns))


class Blocks(Sweep):
    """Rounds that merge blocks: what each load goes over, in pieces along one dimension."""

    def boxes(self, load: Load) -> tuple[Box, tuple[Pieces | None, ...]] | None:
        """What it goes over; None if that is not piece by piece along one dimension."""
        region, torn = load.region, self._moves(self.values(load.region.at))
        starts, extents = ([self.values(one) for one in side] for side in (region.start, region.extent))
        pieces = list[Pieces | None]()
        sizes = [each[0] for each in extents]
        for dim, (start, extent) in enumerate(zip(starts, extents, strict=True)):
            if not self._moves(start) and not self._moves(extent):
                pieces.append(None)
                continue
            reached = start[0].copy()
            for number, (begins, size) in enumerate(zip(start, extent, strict=True)):
                going = self.counts > number
                torn |= bool((going & (begins != reached)).any())
                reached = np.where(going, begins + size, reached)
            sizes[dim] = reached - start[0]
            pieces.append(Pieces(np.stack(start) - start[0], np.stack(extent)))
        many = sum(one is not None for one in pieces)
        return None if torn or many > 1 else ((tuple(each[0] for each in starts), tuple(sizes)), tuple(pieces))

    def operands(self, step: Compute) -> Mapping[int, Ints]:
        """How far behind those of the first round operands of later rounds are, by their place: of those that change."""
        found = dict[int, Ints]()
        for place, one in enumerate(step.operands):
            if isinstance(one, Index) and self._moves(each := self.values(one)):
                found[place] = np.stack(each) - each[0]
        return found


def rounds_of(start: Number, extent: Number, variable: str, lanes: Lanes, rounds: int) -> tuple[Ints, Ints]:
    """Where each round begins and how far it gets: a row each, of one column where that is the same in all lanes but for where
    the first one begins."""
    number = np.arange(rounds)
    alone = Lanes({variable: number}, number, number)
    only, rest = _terms_with(start, variable)
    if names_in(extent) <= {variable} and rest is not None:
        return alone.value(only, {})[:, None], alone.value(extent, {})[:, None]
    rows = [lanes.having(**{variable: one}) for one in range(rounds)]
    return np.stack([one.value(start, {}) for one in rows]), np.stack([one.value(extent, {}) for one in rows])


def _terms_with(index: Number, variable: str) -> tuple[Number, Number | None]:
    """`index` as a sum of what depends on `variable` alone, and of what does not; (0, None) if it is no such sum."""
    names = names_in(index)
    if variable not in names:
        return 0, index
    if names == {variable}:
        return index, 0
    assert isinstance(index, Index)
    if index.op in ("+", "-"):
        sides = [_terms_with(one, variable) for one in index.args]
        (a, b), (c, d) = sides
        if b is not None and d is not None:
            return (a + c, b + d) if index.op == "+" else (a - c, b - d)
    return 0, None
