"""TileGraph: tile ops with their tile spaces and access maps, the exchanges between ranks, and edges between them.

An edge is the composition of two maps: what the consumer's tile reads, what the producer's tile or chunk writes. Every
wait, notify and order is derived from these; nothing here knows about schedules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import networkx as nx
import sympy

from tilelink.ir.collective import Collective
from tilelink.ir.drawing import Arrow, Shape, dot, svg
from tilelink.ir.nodes import Kind
from tilelink.ir.ops.attention import Attend
from tilelink.ir.ops.elementwise import Elementwise, lined_up
from tilelink.ir.ops.matmul import Matmul
from tilelink.ir.ops.op import Indices
from tilelink.ir.ops.routing import Combine
from tilelink.ir.ops.states import Merged
from tilelink.ir.ops.user_op import UserOp
from tilelink.ir.routed import Along, Routed


@dataclass(frozen=True, slots=True)
class Sum:
    """`out[m, n] = sum over ranks of parts[part, m, n]`."""

    def indices(self, shapes: Sequence[tuple[int, ...]]) -> Indices:
        _, write = lined_up([shape[1:] for shape in shapes])
        return (("part", *write),), write


@dataclass(frozen=True, slots=True)
class Copy:
    """`out[m, n] = x[m, n]`."""

    def indices(self, shapes: Sequence[tuple[int, ...]]) -> Indices:
        return lined_up(shapes)


TileOperation = Matmul | Elementwise | UserOp | Sum | Copy | Combine | Attend

Index = tuple[sympy.Expr, ...]
Interval = tuple[int, int]  # [first, end)
Box = Mapping[str, Interval]  # axis -> elements of it that a tile spans


@dataclass(frozen=True, slots=True)
class GraphAxis:
    name: str
    extent: int
    reduction: bool  # not written: the tile runs over all of it
    routed: Routed | None = None  # its elements are assignments, in the order of a routing


@dataclass(frozen=True, slots=True)
class Map:
    """Which elements of `value` a tile touches: one sympy expression of the axes for each dimension (0: broadcast). `along`: of
    dimensions that follow their axis by a routing; any of their elements may be touched."""

    value: str
    index: Index
    along: tuple[Along | None, ...] = ()

    def region(self, box: Box) -> tuple[Interval, ...]:
        """Image of `box`: per dimension the smallest interval that holds it. Expressions are monotone in each axis."""
        region = []
        for dim, expression in enumerate(self.index):
            if self.along and (by := self.along[dim]) is not None:
                region.append((0, by.extent))
                continue
            if expression.is_Symbol:  # sympy takes its time to put a number in the place of a name
                region.append(box[expression.name])
                continue
            low = expression.subs({axis: box[str(axis)][0] for axis in expression.free_symbols})
            high = expression.subs({axis: box[str(axis)][1] - 1 for axis in expression.free_symbols})
            region.append((int(low), int(high) + 1))
        return tuple(region)

    def axis_of(self, dim: int) -> str:
        """Name of the axis that indexes `dim`, empty for a broadcast dimension."""
        return _axis_name(self.index[dim])

    @property
    def axes(self) -> tuple[str, ...]:
        """`axis_of` each dimension."""
        return tuple(map(_axis_name, self.index))


@cache
def _axis_name(expression: sympy.Expr) -> str:
    """Of the axis along which it goes element by element; a slice, or another axis, adds to that where it starts."""
    return next((str(axis) for axis in expression.free_symbols if expression.coeff(axis) == 1), "")


@dataclass(frozen=True, slots=True)
class TileOp:
    """`write.value = operation(reads)`, tile by tile; axes that are written come first."""

    operation: TileOperation
    axes: tuple[GraphAxis, ...]
    reads: tuple[Map, ...]
    write: Map
    line: str  # of the user's file

    @property
    def name(self) -> str:
        return self.write.value

    def axis(self, name: str) -> GraphAxis:
        return next(axis for axis in self.axes if axis.name == name)

    def boxes(self, tiles: Mapping[str, int], segments: Mapping[str, int]) -> Iterator[dict[str, Interval]]:
        """All tiles: written axes cut in `segments` pieces, each piece in tiles of `tiles` elements."""
        pieces = []
        for axis in self.axes:
            if axis.reduction:
                pieces.append([(0, axis.extent)])
                continue
            length = axis.extent // segments.get(axis.name, 1)
            pieces.append(
                [
                    (start + first, start + min(first + tiles[axis.name], length))
                    for start in range(0, axis.extent, length)
                    for first in range(0, length, tiles[axis.name])
                ]
            )
        for box in product(*pieces):
            yield dict(zip((axis.name for axis in self.axes), box, strict=True))


@dataclass(frozen=True, slots=True)
class Relation:
    """A collective as a relation between parts of ranks, along dimension `dim` of the concatenated tensor.

    A SHIFT delivers the one part of the rank `by` before.

    `part` is the shape of one part. `stacked`: the target has a leading dimension of ranks instead of concatenating along
    `dim`. `library`: carried out by one library call, which is also how a relation can be `summed` (REDUCE always is), or, if
    it goes in packets, by one kernel that does what such a call would. `how`: of packets, the collective that it is part of.
    """

    name: str  # value delivered
    kind: Kind
    source: str
    dim: int
    part: tuple[int, ...]
    num_ranks: int
    stacked: bool
    summed: bool
    library: bool
    line: str
    how: Collective
    by: int = 0  # SHIFT: how far the rank is that receives

    @property
    def by_packets(self) -> bool:
        return self.how.by_packets

    @property
    def in_tiles(self) -> bool:
        """Whether the kernel that makes the source carries it out, tile by tile."""
        return self.how.in_tiles and self.kind is not Kind.GATHER

    @property
    def within(self) -> bool:
        """Whether the kernel that reads the value first carries it out, before its tiles."""
        return self.how.in_tiles and self.kind is Kind.GATHER

    @property
    def by_call(self) -> bool:
        """Whether one call on the compute stream does all of it."""
        return self.library and not self.in_tiles and not self.within

    @property
    def plain(self) -> bool:
        """Whether the target is one ordinary tensor that is complete when its readers are launched."""
        return self.library and (self.summed or self.dim == 0)

    def chunk_region(self, part: int, chunk: int, chunks: int) -> tuple[Interval, ...]:
        """Elements of the target (concatenated or stacked) that chunk `chunk` of part `part` delivers."""
        rows = -(-self.part[0] // chunks)
        inner = [(0, extent) for extent in self.part]
        inner[0] = (chunk * rows, min((chunk + 1) * rows, self.part[0]))
        if self.stacked:
            return ((part, part + 1), *inner)
        offset = part * self.part[self.dim]
        first, end = inner[self.dim]
        inner[self.dim] = (first + offset, end + offset)
        return tuple(inner)


@dataclass(frozen=True, slots=True)
class Merging:
    """`name` = the merge of the states that all ranks have, by one call: what `operation` is told of `reads`."""

    name: str
    operation: Merged
    reads: tuple[str, ...]
    line: str

    @property
    def made(self) -> tuple[str, ...]:
        """Values that it makes: the means, and the logarithms that somebody needs, or results of a fold."""
        return (self.name, *self.operation.made)


def in_part(window: tuple[Interval, ...], relation: Relation) -> tuple[Interval, ...]:
    """The window of a read of all parts of `relation`, as it lies in each of them: along the parts it is whole."""
    if not window:
        return ()
    inner = list(window[1:] if relation.stacked else window)
    inner[relation.dim] = (0, relation.part[relation.dim])
    return tuple(inner)


def overlaps(a: tuple[Interval, ...], b: tuple[Interval, ...]) -> bool:
    return all(
        first < other_end and other_first < end for (first, end), (other_first, other_end) in zip(a, b, strict=True)
    )


@dataclass(frozen=True, slots=True)
class GraphValue:
    name: str
    shape: tuple[int, ...]
    dtype: str


class TileGraph:
    """Ops and relations by the value they make, in program order, and the networkx graph of their edges."""

    def __init__(
        self,
        values: Mapping[str, GraphValue],
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        nodes: tuple[TileOp | Relation | Merging, ...],
        routings: tuple[Routed, ...] = (),
    ) -> None:
        self.values = dict(values)
        self.inputs = inputs
        self.outputs = outputs
        self.nodes = nodes
        self.routings = routings
        self.edges: nx.DiGraph[str] = nx.DiGraph()
        self.edges.add_nodes_from([*inputs, *(name for node in nodes for name in _made(node))])
        for node in nodes:
            self.edges.add_edges_from((source, name) for source in _sources(node) for name in _made(node))

        self._ops = {node.name: node for node in nodes if isinstance(node, TileOp)}
        self._relations = {node.name: node for node in nodes if isinstance(node, Relation)}
        self.merges = tuple(node for node in nodes if isinstance(node, Merging))

    def ops(self) -> tuple[TileOp, ...]:
        return tuple(self._ops.values())

    def relations(self) -> tuple[Relation, ...]:
        return tuple(self._relations.values())

    def op(self, name: str) -> TileOp | None:
        return self._ops.get(name)

    def relation(self, name: str) -> Relation | None:
        return self._relations.get(name)

    def consumers(self, value: str) -> tuple[TileOp, ...]:
        return tuple(op for op in self.ops() if any(read.value == value for read in op.reads))

    def window(self, op: TileOp, read: Map) -> tuple[Interval, ...]:
        """What all tiles of `op` together read by `read`, along each dimension; empty if it is the whole value."""
        whole = tuple((0, extent) for extent in self.values[read.value].shape)
        region = read.region({axis.name: (0, axis.extent) for axis in op.axes})
        return () if region == whole else region

    def depends(self, later: str, earlier: str) -> bool:
        """Whether value `later` is computed from `earlier`."""
        return later == earlier or bool(nx.has_path(self.edges, earlier, later))

    def chunks_needed(self, op: TileOp, box: Box, relation: Relation, chunks: int) -> tuple[tuple[int, int], ...]:
        """(part, chunk) of `relation` that the tile `box` of `op` reads."""
        needed = []
        for read in op.reads:
            if read.value == relation.name:
                region = read.region(box)
                needed += [
                    (part, chunk)
                    for part in range(relation.num_ranks)
                    for chunk in range(chunks)
                    if overlaps(region, relation.chunk_region(part, chunk, chunks))
                ]
        return tuple(dict.fromkeys(needed))

    def tiles_completing(
        self, op: TileOp, relation: Relation, part: int, chunk: int, chunks: int, boxes: Iterator[Box]
    ) -> tuple[Box, ...]:
        """Tiles of `op`, out of `boxes`, that write elements of chunk `chunk` of part `part` that `relation` sends."""
        rows = -(-relation.part[0] // chunks)
        inner = [(0, extent) for extent in relation.part]
        inner[0] = (chunk * rows, min((chunk + 1) * rows, relation.part[0]))
        if relation.kind is Kind.SCATTER:
            first, end = inner[relation.dim]
            offset = part * relation.part[relation.dim]
            inner[relation.dim] = (first + offset, end + offset)
        return tuple(box for box in boxes if overlaps(op.write.region(box), tuple(inner)))

    def to_dot(self) -> str:
        """Graphviz text: boxes are tile ops with their axes, ellipses relations, edges carry the composed maps."""
        return dot(self._drawn())

    def _repr_html_(self) -> str:
        """The same as a picture, in a notebook."""
        return svg(self._drawn())

    def __repr__(self) -> str:
        ops = sum(isinstance(node, TileOp) for node in self.nodes)
        ends = f"{', '.join(self.inputs)} -> {', '.join(self.outputs)}"
        return f"<tile graph {ends}: {ops} tile ops, {len(self.nodes) - ops} others>"

    def _drawn(self) -> Iterator[Shape | Arrow]:
        for name in self.inputs:
            yield Shape(name, f"{name} {list(self.values[name].shape)}", "plaintext")
        for node in self.nodes:
            if isinstance(node, TileOp):
                axes = ", ".join(f"{axis.name}={axis.extent}{' sum' if axis.reduction else ''}" for axis in node.axes)
                yield Shape(node.name, f"{node.name} = {_label(node)}\n{axes}", "box")
                yield from (Arrow(read.value, node.name, f"[{', '.join(map(str, read.index))}]") for read in node.reads)
            elif isinstance(node, Merging):
                yield Shape(node.name, f"merge of states {node.name}", "ellipse")
                yield from (Arrow(source, node.name) for source in node.reads)
            else:
                yield Shape(node.name, f"{node.kind.value} {node.name}\ndim {node.dim}", "ellipse")
                yield Arrow(node.source, node.name, f"part {list(node.part)}")


def _sources(node: TileOp | Relation | Merging) -> Iterator[str]:
    match node:
        case TileOp(reads=reads):
            yield from (read.value for read in reads)
        case Merging(reads=names):
            yield from names
        case Relation(source=source):
            yield source


def _made(node: TileOp | Relation | Merging) -> tuple[str, ...]:
    return node.made if isinstance(node, Merging) else (node.name,)


def _label(op: TileOp) -> str:
    match op.operation:
        case Matmul():
            return "matmul"
        case Elementwise(function):
            return function
        case UserOp():
            return op.operation.name
        case Sum():
            return "sum over ranks"
        case Copy():
            return "copy"
        case Combine():
            return "combine"
        case Attend():
            return "attention"
