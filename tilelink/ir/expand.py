"""BoundSpec -> TileGraph: collectives become relations between parts, plus the sums that they imply.

y_sum = reduce_scatter(y, 0)   ->   y_parts = scatter y along 0;        y_sum[m, n] = sum of y_parts[part, m, n]
y_sum = all_reduce(y) one-shot ->   y_parts = gather y, stacked;        y_sum[m, n] = sum of y_parts[part, m, n]
y_sum = all_reduce(y) two-shot ->   reduce_scatter as above, then       y_sum = gather of the sums along 0
y_sum = all_reduce(y) pooled   ->   the same; an output is gathered in a free place of a pool, not copied
y_sum = all_reduce(y) in-place ->   the same; an output is gathered where the caller reads it, not copied
y_sum = f(y) library or words  ->   y_sum = f(y), by one call
y_sum = f(y) words of tiles    ->   y_sum = f(y), by the tiles of y; a gather by the kernel that reads it
r = send_recv(x, by)           ->   r_queue = shift x;                  r[m, n] = r_queue[m, n]
p = y[:, a:b]                  ->   nothing: readers of p[m, n] read y[m, n + a]; where p must be a plain tensor,
                                    p[m, n] = y[m, n + a]
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

import sympy

from tilelink.ir.graph import Copy, GraphAxis, GraphValue, Index, Map, Relation, Sum, TileGraph, TileOp, TileOperation
from tilelink.ir.nodes import Algorithm, Kind
from tilelink.ir.ops.user_op import WHOLE, UserOp
from tilelink.ir.slices import as_computed
from tilelink.ir.spec import (
    DTYPE_BYTES,
    AllGather,
    AllReduce,
    BoundNode,
    BoundSpec,
    Elementwise,
    Matmul,
    ReduceScatter,
    SendRecv,
    Slice,
)
from tilelink.ir.word import Protocol

_IN_ONE_SHOT = (Algorithm.LL, Algorithm.LL_TILES, Algorithm.LAMPORT, Algorithm.LAMPORT_TILES)  # by words
LEGAL_ALGORITHMS: dict[type, tuple[Algorithm, ...]] = {
    AllGather: (Algorithm.DIRECT, *_IN_ONE_SHOT, Algorithm.LIBRARY),
    ReduceScatter: (Algorithm.DIRECT, *_IN_ONE_SHOT, Algorithm.LIBRARY),
    AllReduce: (
        Algorithm.ONE_SHOT,
        Algorithm.TWO_SHOT,
        Algorithm.IN_PLACE,
        Algorithm.POOLED,
        *_IN_ONE_SHOT,
        Algorithm.LAMPORT_TWO_SHOT,
        Algorithm.LAMPORT_TILES_TWO_SHOT,
        Algorithm.LIBRARY,
    ),
    SendRecv: (Algorithm.DIRECT,),
}

_GATHERED_THERE = {Algorithm.POOLED, Algorithm.IN_PLACE}  # where the caller reads it


@dataclass(frozen=True, slots=True)
class _View:
    """Elements of `value` in memory, from `first` on along each dimension."""

    value: str
    shape: tuple[int, ...]
    first: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ByWords:
    """How an algorithm moves words (`WordCollective`, `SumWords`)."""

    protocol: Protocol
    in_tiles: bool = False
    shots: int = 1


BY_WORDS = {
    Algorithm.LL: ByWords(Protocol.LL),
    Algorithm.LL_TILES: ByWords(Protocol.LL, in_tiles=True),
    Algorithm.LAMPORT: ByWords(Protocol.LAMPORT),
    Algorithm.LAMPORT_TILES: ByWords(Protocol.LAMPORT, in_tiles=True),
    Algorithm.LAMPORT_TWO_SHOT: ByWords(Protocol.LAMPORT, shots=2),
    Algorithm.LAMPORT_TILES_TWO_SHOT: ByWords(Protocol.LAMPORT, in_tiles=True, shots=2),
}
_OF_PLAIN_TENSORS = (AllGather, ReduceScatter, AllReduce, SendRecv, UserOp)  # what takes no slice of a tensor
_ONE_CALL = {*BY_WORDS, Algorithm.LIBRARY}  # of which one relation is left, from values to their sum
MOST_WORDS = 512 << 10  # to a peer: beyond, signals cost less than the numbers that words of LL carry (2 x H200)


def collectives(spec: BoundSpec) -> tuple[tuple[str, tuple[Algorithm, ...]], ...]:
    """(name, legal algorithms) of each collective of the spec. Two-shot needs rows that `num_ranks` divides; what is made
    in place is an output, and nothing else reads it; what travels in words are a few whole ones to a peer, and those of a tile
    are neighbours of a row of it."""
    found, spec = [], as_computed(spec)
    for node in spec.nodes:
        legal = LEGAL_ALGORITHMS.get(type(node.operation))
        if legal is not None:
            name, illegal = node.output.name, set[Algorithm]()
            if isinstance(node.operation, AllReduce) and node.output.local[0] % spec.num_ranks:
                illegal |= {Algorithm.TWO_SHOT, *_GATHERED_THERE}
            if name not in spec.outputs or any(name in other.inputs for other in spec.nodes):
                illegal |= _GATHERED_THERE
            part = math.prod(node.output.local) * DTYPE_BYTES[node.output.dtype]
            part //= spec.num_ranks if isinstance(node.operation, AllGather) else 1
            illegal |= {algorithm for algorithm, by in BY_WORDS.items() if not _whole_words(spec, node, by, part)}
            found.append((name, tuple(algorithm for algorithm in legal if algorithm not in illegal)))
    return tuple(found)


def _whole_words(spec: BoundSpec, node: BoundNode, by: ByWords, part: int) -> bool:
    """Whether the `part` bytes that go to a peer, or a share of them for each rank, are a few whole words; tiles have shares of
    their own."""
    shares = spec.num_ranks if by.shots > 1 and not by.in_tiles else 1
    words, rest = divmod(part, by.protocol.data_bytes * shares)
    return not rest and words <= MOST_WORDS and (not by.in_tiles or _words_of_tiles(spec, node, by.protocol))


def _words_of_tiles(spec: BoundSpec, node: BoundNode, protocol: Protocol) -> bool:
    """Whether what `node` adds is made by tiles whose rows are whole words, none of them for two ranks; a gather takes no
    tiles apart."""
    if isinstance(node.operation, AllGather):
        return True
    maker = next((other for other in spec.nodes if other.output.name == node.inputs[0]), None)
    if maker is None or not isinstance(maker.operation, Matmul | Elementwise) or len(maker.output.local) != 2:
        return False
    cols = maker.output.local[1]
    if isinstance(node.operation, ReduceScatter) and node.operation.dim == 1:
        cols //= spec.num_ranks
    return cols * DTYPE_BYTES[maker.output.dtype] % protocol.data_bytes == 0


def expand(spec: BoundSpec, algorithms: Mapping[str, Algorithm], library: AbstractSet[str] = frozenset()) -> TileGraph:
    """The graph of `spec` with each collective done by `algorithms[its name]`, and the matmuls in `library` by the library,
    which reads whole matrices only."""
    return _Expansion(spec, algorithms, library).graph()


class _Expansion:
    def __init__(self, spec: BoundSpec, algorithms: Mapping[str, Algorithm], library: AbstractSet[str]) -> None:
        self.spec = as_computed(spec)
        self.algorithms = algorithms
        self.library = library
        self.values = {value.name: GraphValue(value.name, value.local, value.dtype) for value in spec.inputs}
        self.nodes: list[TileOp | Relation] = []
        self.views: dict[str, _View] = {}

    def graph(self) -> TileGraph:
        for node in self.spec.nodes:
            self._node(node)
        return TileGraph(self.values, tuple(v.name for v in self.spec.inputs), self.spec.outputs, tuple(self.nodes))

    def _node(self, node: BoundNode) -> None:
        operation, out, source = node.operation, node.output.name, node.inputs[0]
        algorithm = self.algorithms.get(out)
        match operation:
            case AllGather(dim):
                target = f"{out}_whole" if self._needs_copy(out, dim) else out
                library = algorithm in _ONE_CALL
                self._relation(node, target, Kind.GATHER, source, dim, self.values[source].shape, library=library)
                if target != out:
                    self._op(node, Copy(), out, (target,))
            case ReduceScatter(dim) if algorithm in _ONE_CALL:
                source = self._settled(node, source, dim)
                self._relation(node, out, Kind.SCATTER, source, dim, self._cut(source, dim), summed=True)
            case ReduceScatter(dim):
                source = self._settled(node, source, dim)
                self._scatter_and_sum(node, source, dim, out)
            case AllReduce() if algorithm in _ONE_CALL:
                self._relation(node, out, Kind.REDUCE, source, 0, self.values[source].shape, summed=True)
            case AllReduce() if algorithm is Algorithm.TWO_SHOT or algorithm in _GATHERED_THERE:
                self._scatter_and_sum(node, source, 0, f"{out}_part")
                copied = algorithm is Algorithm.TWO_SHOT and self._needs_copy(out, 0)
                target = f"{out}_whole" if copied else out
                self._relation(node, target, Kind.GATHER, f"{out}_part", 0, self._cut(source, 0))
                if target != out:
                    self._op(node, Copy(), out, (target,))
            case AllReduce():
                parts = self._parts(source, out)
                self._relation(node, parts, Kind.GATHER, source, 0, self.values[source].shape, stacked=True)
                self._op(node, Sum(), out, (parts,))
            case SendRecv(by):
                self._relation(node, f"{out}_queue", Kind.SHIFT, source, 0, self.values[source].shape, by=by)
                self._op(node, Copy(), out, (f"{out}_queue",))
            case Slice():
                self._slice(node, operation)
            case Matmul() | Elementwise() | UserOp():
                self._op(node, operation, out, node.inputs)

    def _slice(self, node: BoundNode, cut: Slice) -> None:
        """A view, or a copy of it where a plain tensor is needed."""
        whole, name = self._view(node.inputs[0]), node.output.name
        first = tuple(start + (cut.start if dim == cut.dim else 0) for dim, start in enumerate(whole.first))
        self.views[name] = _View(whole.value, node.output.local, first)
        readers = [other for other in self.spec.nodes if name in other.inputs]
        if name in self.spec.outputs or any(isinstance(other.operation, _OF_PLAIN_TENSORS) for other in readers):
            self._op(node, Copy(), name, (name,))
            del self.views[name]

    def _view(self, name: str) -> _View:
        """Where operations find the value."""
        if name in self.views:
            return self.views[name]
        shape = self.values[name].shape
        return _View(name, shape, (0,) * len(shape))

    def _scatter_and_sum(self, node: BoundNode, source: str, dim: int, out: str) -> None:
        parts = self._parts(source, out)
        self._relation(node, parts, Kind.SCATTER, source, dim, self._cut(source, dim), stacked=True)
        self._op(node, Sum(), out, (parts,))

    def _parts(self, source: str, out: str) -> str:
        """Name of the parts of `source` that become `out`; several collectives may send the same value."""
        return f"{source}_parts" if f"{source}_parts" not in self.values else f"{out}_from_parts"

    def _cut(self, source: str, dim: int) -> tuple[int, ...]:
        shape = list(self.values[source].shape)
        shape[dim] //= self.spec.num_ranks
        return tuple(shape)

    def _settled(self, node: BoundNode, source: str, dim: int) -> str:
        """Parts along columns are no slices of a plain tensor: an input is copied into parts, and so is what a user's
        tile body makes, because it has whole rows only."""
        maker = next((n for n in self.spec.nodes if n.output.name == source), None)
        if dim == 0 or not (maker is None or isinstance(maker.operation, UserOp)):
            return source
        if f"{source}_settled" not in self.values:
            self._op(node, Copy(), f"{source}_settled", (source,))
        return f"{source}_settled"

    def _needs_copy(self, out: str, dim: int) -> bool:
        """Parts must be put together where a plain tensor is needed: an output, a pointer for a user's body, or a matrix for
        the library."""
        if out in self.spec.outputs:
            return True
        readers = [n for n in self.spec.nodes if out in n.inputs]
        if any(isinstance(n.operation, AllGather | ReduceScatter | AllReduce) for n in readers):
            return True
        if dim == 1 and any(n.output.name in self.library for n in readers):
            return True
        # parts along rows may be read in some of their columns: every other slice crosses parts, or chunks of them
        if any(isinstance(n.operation, Slice) and not (dim == 0 and n.operation.dim == 1) for n in readers):
            return True
        return any(isinstance(n.operation, UserOp) and _needs_plain(n.operation, n.inputs, out, dim) for n in readers)

    def _relation(
        self,
        node: BoundNode,
        name: str,
        kind: Kind,
        source: str,
        dim: int,
        part: tuple[int, ...],
        *,
        stacked: bool = False,
        summed: bool = False,
        library: bool = False,
        by: int = 0,
    ) -> None:
        ranks = self.spec.num_ranks
        shape = list(part)
        if stacked:
            shape = [ranks, *part]
        elif not summed and kind is not Kind.SHIFT:
            shape[dim] *= ranks
        self.values[name] = GraphValue(name, tuple(shape), node.output.dtype)
        by_library = library or summed
        words = BY_WORDS.get(self.algorithms[node.output.name]) if by_library else None
        relation = Relation(name, kind, source, dim, part, ranks, stacked, summed, by_library, node.line, by)
        if words is not None:
            within = words.in_tiles and kind is Kind.GATHER
            relation = replace(relation, protocol=words.protocol, shots=words.shots, within=within)
            relation = replace(relation, in_tiles=words.in_tiles and not within)
        self.nodes.append(relation)

    def _op(self, node: BoundNode, operation: TileOperation, out: str, inputs: tuple[str, ...]) -> None:
        views = [self._view(name) for name in inputs]
        indices, write = operation.indices([view.shape for view in views])
        extents: dict[str, int] = {}
        for view, index in zip(views, indices, strict=True):
            extents |= {axis.removesuffix(WHOLE): extent for axis, extent in zip(index, view.shape, strict=True)}
            extents |= dict(zip(index, view.shape, strict=True))
        names = dict.fromkeys(
            (*write, *(axis for index in indices for axis in index if axis))
        )  # written axes come first
        axes = tuple(GraphAxis(axis, extents[axis], axis not in write) for axis in names)
        self.values[out] = GraphValue(out, tuple(extents[axis] for axis in write), node.output.dtype)
        reads = tuple(Map(view.value, _from(view.first, index)) for view, index in zip(views, indices, strict=True))
        self.nodes.append(TileOp(operation, axes, reads, Map(out, tuple(map(_symbol, write))), node.line))


def _from(first: tuple[int, ...], index: tuple[str, ...]) -> Index:
    """Where the element lies, of which operations count from `first` on."""
    return tuple(
        (_symbol(axis) if axis else 0) + sympy.Integer(start) for start, axis in zip(first, index, strict=True)
    )


def _symbol(axis: str) -> sympy.Symbol:
    return sympy.Symbol(axis, integer=True, nonnegative=True)


def _needs_plain(op: UserOp, inputs: tuple[str, ...], value: str, dim: int) -> bool:
    """Whether the body wants `value`, gathered along `dim`, as one tensor. It counts along an axis from the start of a part where
    a tensor lies in parts along it, which must then be rows of every tensor: the distance of rows is that of a whole tensor."""
    axes = [op.read_index(tensor)[dim] for (tensor, _), name in zip(op.reads, inputs, strict=True) if name == value]
    columns = [op.read_index(tensor)[1:] for tensor, _ in op.reads]
    return any((axis,) in columns for axis in axes)
