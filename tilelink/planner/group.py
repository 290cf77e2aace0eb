"""TileGraph -> groups: elementwise consumers fold into the epilogue of the op that makes their operand.

h = silu(g) * u   with g, u two matmuls   ->   group g: matmul, silu;   group u: matmul, mul (loads the tile of silu(g))
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tilelink.ir.graph import TileGraph, TileOp
from tilelink.ir.nodes import Kind
from tilelink.ir.spec import Elementwise


@dataclass(frozen=True)
class Group:
    """Ops computed by one tile loop: an anchor and elementwise ops of the same tile space, in program order."""

    ops: tuple[TileOp, ...]

    @cached_property
    def anchor(self) -> TileOp:
        return self.ops[0]

    @cached_property
    def name(self) -> str:
        """The name of the last value: what the group makes."""
        return self.ops[-1].name

    @cached_property
    def made(self) -> frozenset[str]:
        return frozenset(op.name for op in self.ops)

    def makes(self, value: str) -> bool:
        return value in self.made

    @cached_property
    def _reads(self) -> tuple[str, ...]:
        seen = dict.fromkeys(read.value for op in self.ops for read in op.reads)
        return tuple(value for value in seen if value not in self.made)

    def reads(self) -> tuple[str, ...]:
        """Values from outside, in order of first use."""
        return self._reads


def group_ops(graph: TileGraph, library: frozenset[str]) -> tuple[Group, ...]:
    """Groups in program order of their anchors; nothing folds into the matmuls in `library`.

    Post-condition: every op is in one group, and a group needs only groups before it.
    """
    groups: list[list[TileOp]] = []
    home: dict[str, int] = {}
    for op in graph.ops():
        place = _fold_into(graph, op, groups, home, library) if isinstance(op.operation, Elementwise) else -1
        if place < 0:
            place = len(groups)
            groups.append([])
        groups[place].append(op)
        home[op.name] = place
    return tuple(Group(tuple(ops)) for ops in groups)


def _fold_into(
    graph: TileGraph, op: TileOp, groups: list[list[TileOp]], home: dict[str, int], library: frozenset[str]
) -> int:
    """Index of the latest group whose epilogue can compute `op`, or -1."""
    made = sorted({home[read.value] for read in op.reads if read.value in home}, reverse=True)
    for place in made:
        ops = groups[place]
        shapes_agree = graph.values[op.name].shape == graph.values[ops[0].name].shape
        others = [read.value for read in op.reads if home.get(read.value) != place]
        ready = all(_made_before(graph, value, place, home) for value in others)
        aligned = all(
            _same_tile(op, index, ops) for index, read in enumerate(op.reads) if home.get(read.value) == place
        )
        whole = not (_takes_items(graph, ops[0]) and any(graph.relation(value) is not None for value in others))
        if shapes_agree and ready and aligned and whole and ops[0].name not in library:
            return place
    return -1


def _takes_items(graph: TileGraph, anchor: TileOp) -> bool:
    """Whether tiles of the group are items of a bounded exchange, which parts of another one would cut."""
    relation = graph.relation(anchor.reads[0].value)
    return relation is not None and relation.kind is Kind.SHIFT


def _same_tile(op: TileOp, operand: int, ops: list[TileOp]) -> bool:
    """Whether the operand made in the group is read without broadcast."""
    return len(op.reads[operand].index) == len(op.write.index) and all(e.free_symbols for e in op.reads[operand].index)


def _made_before(graph: TileGraph, value: str, place: int, home: dict[str, int]) -> bool:
    """Whether `value` is there, or can be waited for, when group `place` runs; groups run in order."""
    relation = graph.relation(value)
    if relation is not None:
        return _made_before(graph, relation.source, place, home)
    return home.get(value, -1) < place
