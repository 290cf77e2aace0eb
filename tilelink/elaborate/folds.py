"""Steps of a fold of the user's: each program makes states of the own part of an axis, and sends them; then it merges those of
all ranks.

    for a split of the axis, of a tile of rows:                          # the own ones
      state = that of nothing
      for a block: state = merge(state, function(addresses, ...))
      each part of it -> packets of the rank that the rows belong to, or of all ranks
    for a tile of the result:
      for state < ranks * splits: merge, in this order on every rank
      store finish(state)

Where a rank has all of the axis states stay on it, and of one split the first loop stores the result. Why no rank waits for one
that waits, and what packets say, is as in `tilelink.elaborate.states`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilelink.elaborate.positions import TILE
from tilelink.elaborate.states import STATE, States
from tilelink.ir.calls import StateMerge
from tilelink.ir.enums import Protocol
from tilelink.ir.ops.user_fold import FoldResult, UserFold
from tilelink.ir.schedule import Schedule
from tilelink.schedule.index import Index, Number, call, least, rank
from tilelink.schedule.memory import Buffer, Memory, Region, Table
from tilelink.schedule.roles import Phase, Role, Sms
from tilelink.schedule.steps import Compute, For, Let, Load, Step, Store

_SPLIT, _ROW = Index("split"), Index("row")


def merge_steps(schedule: Schedule, launch: StateMerge) -> States | Folds:
    return Folds(schedule, launch) if isinstance(launch.how.how, UserFold) else States(schedule, launch)


@dataclass(frozen=True)
class Folds:
    schedule: Schedule
    launch: StateMerge

    @property
    def fold(self) -> UserFold:
        assert isinstance(self.launch.how.how, UserFold), "of the user's"
        return self.launch.how.how

    @property
    def alone(self) -> bool:
        """Whether no other rank has a part of the axis."""
        return self.launch.how.alone

    @property
    def whole(self) -> bool:
        """Whether a program has all of the axis."""
        return self.alone and self.launch.splits == 1

    @property
    def ranks(self) -> int:
        """Those that have states."""
        return 1 if self.alone else self.schedule.num_ranks

    @property
    def rows(self) -> int:
        """Of operands on a rank."""
        for (_, index), name in zip(self.fold.block.reads, self.launch.operands, strict=True):
            if self.fold.row in index:
                return self.schedule.buffer(name).shape[index.index(self.fold.row)]
        raise AssertionError("some tensor has them")

    @property
    def own(self) -> int:
        """Rows of the result on a rank."""
        return self.schedule.buffer(self.launch.out).shape[0]

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(part for part, _ in self.fold.parts)

    @property
    def _more(self) -> tuple[str, ...]:
        return tuple(f"more_{part}" for part in self.parts)

    def _states(self, part: str) -> str:
        """The buffer of a part of the states of all ranks."""
        return f"{self.launch.out}_{part}_state"

    def buffers(self) -> Iterator[Buffer]:
        for part in () if self.whole else self.parts:
            shape = 2, self.ranks * self.launch.splits, self.own
            yield Buffer(self._states(part), Memory.SYMMETRIC, shape, "fp32", Protocol.LL)

    def tables(self) -> Iterator[Table]:
        """None."""
        yield from ()

    def role(self) -> Role:
        launch = self.launch
        engine = Sms(launch.programs, launch.warps, launch.stages, launch.per_sm)
        return Role(launch.out, engine, (self._folded(),) if self.whole else (self._folded(), self._merged()))

    # ---- own states ----
    def _folded(self) -> Phase:
        """States of splits of the axis, split by split of each tile of rows."""
        launch, splits = self.launch, self.launch.splits
        row, over = self.fold.row, self.fold.over
        rows, block, elements = launch.rows, launch.block, launch.how.tokens
        let: Let = (("split", TILE % splits), (row, TILE // splits * rows)) if splits > 1 else ((row, TILE * rows),)
        blocks = -(-elements // block)
        begins: Number = 0
        count: Number = blocks
        if splits > 1:  # at most so many, and who reads bounds off an index sees it
            begins = blocks * _SPLIT // splits
            count = least(blocks * (_SPLIT + 1) // splits - begins, -(-int(blocks) // int(splits)))
            let += (("begins", begins),)
            begins = Index("begins")
        at = (begins + Index("block")) * block
        if splits > 1:
            at = least(begins + Index("block"), blocks - 1) * block  # it is; see above
        many = least(rows, self.rows - Index(row))
        found = least(block, elements - Index(over))
        spans = {row: (Index(row), many), over: (Index(over), found)}
        loads = tuple(self._address(tensor, name, spans) for tensor, name in self._operands())
        made = Compute(self._more, self.fold.block.name, self._arguments())
        as_rows = (Compute((more,), "as_row", (more,)) for more in self._more)
        loop = For("block", count, (*loads, made, *as_rows, self._merge()), ((over, at),))
        if self.whole:
            steps = (*self._nothing(rows), loop, *self._results(Index(row), many))
            return Phase(-(-self.rows // rows), steps, let, title="folds, tile by tile of rows")
        first: Number = 0 if self.alone else rank * splits
        steps = (*self._nothing(rows), loop, *self._sent(many, first + (_SPLIT if splits > 1 else 0)))
        title = "states of the own part of the axis, to the ranks that need them"
        return Phase(-(-self.rows // rows) * splits, steps, let, title=title)

    def _operands(self) -> Iterator[tuple[str, str]]:
        """Parameters of the function with the values that they are given."""
        for (tensor, _), name in zip(self.fold.block.reads, self.launch.operands, strict=True):
            yield tensor, name

    def _address(self, tensor: str, name: str, spans: dict[str, tuple[Index, Number]]) -> Load:
        """The address of the first element, of what the function loads a block from there."""
        index = dict(self.fold.block.reads)[tensor]
        start, extent = (tuple(spans[axis][side] for axis in index) for side in (0, 1))
        return Load(tensor, Region(name, start, extent), origin=(0,) * len(index))

    def _arguments(self) -> tuple[str | float | Index, ...]:
        row, over, launch = self.fold.row, self.fold.over, self.launch
        elements = launch.how.tokens
        given: dict[str, str | float | Index] = {tensor: tensor for tensor, _ in self._operands()}
        given |= {row: Index(row), f"num_{row}": self.rows, f"TILE_{row.upper()}": launch.rows}
        given |= {over: Index(over), f"num_{over}": elements, f"TILE_{over.upper()}": launch.block}
        given |= {f"first_{over}": 0 if self.alone else rank * elements, f"all_{over}": elements * self.ranks}
        return tuple(given[name] for name in self.fold.block.parameters)

    def _nothing(self, rows: int) -> tuple[Step, ...]:
        """The state of nothing."""
        return tuple(Compute((part,), "full", (number,), (rows,)) for part, number in self.fold.parts)

    def _merge(self) -> Compute:
        return Compute(self.parts, self.fold.merge, (*self.parts, *self._more))

    def _sent(self, many: Number, state: Number) -> tuple[Step, ...]:
        """The state of rows to the rank that they belong to, or to all; the own rank as well."""
        row = Index(self.fold.row)
        if self.alone:
            return self._stores(rank, row, many, state)
        if self.launch.how.dim is not None and self.own % self.launch.rows == 0:
            return self._stores(row // self.own, row % self.own, many, state)
        peer = Index("peer")
        at = row - peer * self.own if self.launch.how.dim is not None else row  # rows of others stick out
        body = self._stores(peer, at, many, state)
        return (For("step", self.ranks, body, (("peer", (rank + Index("step")) % self.ranks),), unrolled=True),)

    def _stores(self, at: Number, row: Number, many: Number, state: Number) -> tuple[Step, ...]:
        lead = call % 2, state
        return tuple(Store(part, Region(self._states(part), (*lead, row), (1, 1, many), at)) for part in self.parts)

    # ---- those of all ranks ----
    def _merged(self) -> Phase:
        """States of all ranks, tile by tile of the own part of the result."""
        rows, _ = self.launch.merged_tile(self.ranks, "fp32")
        many = least(rows, self.own - _ROW)
        lead = call % 2, STATE, _ROW
        loads = (
            Load(more, Region(self._states(part), lead, (1, 1, many)))
            for part, more in zip(self.parts, self._more, strict=True)
        )
        loop = For(STATE.op, self.ranks * self.launch.splits, (*loads, self._merge()), unrolled=True)
        steps = (*self._nothing(rows), loop, *self._results(_ROW, many))
        return Phase(-(-self.own // rows), steps, (("row", TILE * rows),), title="states of all ranks, in their order")

    def _results(self, row: Index, many: Number) -> Iterator[Step]:
        """Each result of a whole state."""
        elements = self.launch.how.tokens * self.ranks
        for name, number in ((self.launch.out, self.fold.number), *self.launch.how.others):
            finish: FoldResult = self.fold.finishes[number]
            given: dict[str, str | float | Index] = {part: part for part in self.parts}
            given |= {f"all_{self.fold.over}": elements}
            operands = tuple(given[one] for one in finish.parameters)
            yield Compute((name,), finish.function or "copy", operands)
            yield Store(name, Region(name, (row,), (many,)))
