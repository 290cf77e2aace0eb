"""TileGraph -> groups: elementwise consumers fold into the epilogue of the op that makes their operand.

h = silu(g) * u   with g, u two matmuls   ->   group g: matmul, silu;   group u: matmul, mul (loads the tile of silu(g))
g, u of one left operand, u shared        ->   group g: matmul, matmul, silu, mul
y = a + b   with a, b two matmuls         ->   the smaller one;   the larger one, add (loads the tile of the smaller one)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

import networkx as nx

from tilelink.ir.graph import TileGraph, TileOp
from tilelink.ir.nodes import Kind
from tilelink.ir.spec import Attend, Elementwise, Matmul


@dataclass(frozen=True)
class Group:
    """Ops computed by one tile loop: an anchor and elementwise ops of the same tile space, in program order."""

    ops: tuple[TileOp, ...]

    @cached_property
    def anchor(self) -> TileOp:
        return self.ops[0]

    @cached_property
    def matmuls(self) -> int:
        """How many run in the loop of the anchor, with itself; 0 if it is none."""
        return sum(isinstance(op.operation, Matmul) for op in self.ops)

    @cached_property
    def deep(self) -> bool:
        """Whether its tiles have a depth: steps of so many elements go through what is not written."""
        return bool(self.matmuls) or isinstance(self.anchor.operation, Attend)

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


def group_ops(graph: TileGraph, library: frozenset[str], shared: Mapping[str, str] | None = None) -> tuple[Group, ...]:
    """Groups, in program order of their anchors where nothing asks for another one; nothing folds into the matmuls in `library`.
    Of `shared` matmuls each is computed in the loop of another one.

    Post-condition: every op is in one group, its matmuls first, and a group needs only groups before it.
    """
    found = _Grouping(graph, library)
    for op in graph.ops():
        place = -1
        if isinstance(op.operation, Elementwise):
            place = found.fold_into(op)
        elif op.name in (shared or {}):
            place = found.home[(shared or {})[op.name]]
        found.add(op, place)
    return tuple(Group(tuple(found.groups[place])) for place in found.order())


class _Grouping:
    """Groups so far. In `edges` the ops of a group depend on each other, so that paths are those between groups."""

    def __init__(self, graph: TileGraph, library: frozenset[str]) -> None:
        self.graph, self.library = graph, library
        self.groups: list[list[TileOp]] = []
        self.home: dict[str, int] = {}
        self.edges = graph.edges.copy()

    def add(self, op: TileOp, place: int) -> None:
        """To group `place`, or to a new one if that is negative."""
        if place < 0:
            place = len(self.groups)
            self.groups.append([])
        group = self.groups[place]
        matmuls = sum(isinstance(other.operation, Matmul) for other in group)
        if group:
            self.edges.add_edges_from([(group[0].name, op.name), (op.name, group[0].name)])
        group.insert(matmuls if isinstance(op.operation, Matmul) else len(group), op)
        self.home[op.name] = place

    def order(self) -> list[int]:
        """Groups such that each needs only groups before it, else as their anchors come in the program."""
        needs: nx.DiGraph[int] = nx.DiGraph()
        needs.add_nodes_from(range(len(self.groups)))
        for place, ops in enumerate(self.groups):
            made = {op.name for op in ops}
            for value in {read.value for op in ops for read in op.reads} - made:
                while (relation := self.graph.relation(value)) is not None:
                    value = relation.source
                if value in self.home:
                    needs.add_edge(self.home[value], place)
        return list(nx.lexicographical_topological_sort(needs))

    def fold_into(self, op: TileOp) -> int:
        """Index of the group whose epilogue computes `op`, or -1: the latest that can, or the largest where that is a matmul.
        What a large matmul makes travels while the rest of it is computed, what a small one makes has nothing to hide behind."""
        made = sorted({self.home[read.value] for read in op.reads if read.value in self.home})
        able = [place for place in made if self._can_fold(op, place)]
        if not able or not isinstance(self.groups[able[-1]][0].operation, Matmul):
            return able[-1] if able else -1
        return max(able, key=lambda place: (_multiplied(self.groups[place]), place))

    def _can_fold(self, op: TileOp, place: int) -> bool:
        graph, ops = self.graph, self.groups[place]
        shapes_agree = graph.values[op.name].shape == graph.values[ops[0].name].shape
        others = [read.value for read in op.reads if self.home.get(read.value) != place]
        ready = not any(nx.has_path(self.edges, ops[0].name, value) for value in others)
        aligned = all(
            _same_tile(graph, op, index) for index, read in enumerate(op.reads) if self.home.get(read.value) == place
        )
        routed = any(axis.routed is not None for axis in ops[0].axes)
        ready = ready and not (routed and any(one.source == op.name for one in graph.relations()))
        # rows of others lie in the order of assignments
        ready = ready and not (routed and any(graph.values[value].shape[:-1] not in ((), (1,)) for value in others))
        whole = not (_takes_items(graph, ops[0]) and any(graph.relation(value) is not None for value in others))
        return shapes_agree and ready and aligned and whole and ops[0].name not in self.library


def _multiplied(ops: list[TileOp]) -> int:
    """Multiplications of all matmuls of a group."""
    matmuls = [op for op in ops if isinstance(op.operation, Matmul)]
    return sum(prod(axis.extent for axis in op.axes) for op in matmuls)


def shareable(graph: TileGraph, library: frozenset[str]) -> dict[str, str]:
    """Matmuls that can run in the loop over k of an earlier one, each with that one.

    They have the left operand in common, their right operands are there when the loop of the first begins, tiles of the
    same shape, and what is made of them, elementwise, comes together: `silu(x @ a) * (x @ b)`. Nobody else reads them.
    """
    found: dict[str, str] = {}
    ops = graph.ops()
    matmuls = [op for op in ops if isinstance(op.operation, Matmul) and op.name not in library]
    for at, op in enumerate(matmuls):
        for first in matmuls[:at]:
            if first.name not in found and _alike(graph, first, op) and _come_together(graph, first, op):
                found[op.name] = first.name
                break
    return found


def _alike(graph: TileGraph, first: TileOp, op: TileOp) -> bool:
    left, right = op.reads
    values, relation = graph.values, graph.relation(left.value)
    same = left == first.reads[0] and right.axes == first.reads[1].axes
    given = graph.relation(right.value) is None and right.value in graph.inputs
    items = relation is not None and relation.kind is Kind.SHIFT
    made = values[op.name], values[first.name]
    return same and given and not items and (made[0].shape, made[0].dtype) == (made[1].shape, made[1].dtype)


def _come_together(graph: TileGraph, first: TileOp, op: TileOp) -> bool:
    """Whether some elementwise operation needs both, and only elementwise operations read them."""
    reached = []
    for value in (first.name, op.name):
        sent = any(relation.source == value for relation in graph.relations())
        readers = graph.consumers(value)
        if sent or value in graph.outputs or not all(isinstance(r.operation, Elementwise) for r in readers):
            return False
        seen = {reader.name for reader in readers}
        for later in graph.ops():
            if isinstance(later.operation, Elementwise) and any(read.value in seen for read in later.reads):
                seen.add(later.name)
        reached.append(seen)
    return bool(reached[0] & reached[1])


def _takes_items(graph: TileGraph, anchor: TileOp) -> bool:
    """Whether tiles of the group are items of a bounded exchange, which parts of another one would cut."""
    relation = graph.relation(anchor.reads[0].value)
    return relation is not None and relation.kind is Kind.SHIFT


def _same_tile(graph: TileGraph, op: TileOp, operand: int) -> bool:
    """Whether the operand made in the group is read without broadcast, and whole."""
    read = op.reads[operand]
    return len(read.index) == len(op.write.index) and all(read.axes) and not graph.window(op, read)
