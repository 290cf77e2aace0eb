"""A loop over tiles of keys as one round: loads have all that their lane goes over, a mask knows how many keys there are."""

from __future__ import annotations

import numpy as np

from tilelink.proof.happens_before.lanes import Lanes
from tilelink.schedule.index import Index, Ints, Number, replaced
from tilelink.schedule.steps import FOLDS, Compute, For, Load

Box = tuple[tuple[Ints, ...], tuple[Ints, ...]]  # start and extent along each dimension


def folds(loop: For) -> bool:
    """Whether the loop loads keys and values, and does nothing with them but to take them into a fold."""
    *loads, last = loop.body
    return isinstance(last, Compute) and last.op in FOLDS and all(isinstance(one, Load) for one in loads)


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
