"""BoundSpec -> TileGraph: collectives become relations between parts, plus the sums that they imply.

y_sum = reduce_scatter(y, 0)   ->   y_parts = scatter y along 0;        y_sum[m, n] = sum of y_parts[part, m, n]
y_sum = all_reduce(y) 1 shot   ->   y_parts = gather y, stacked;        y_sum[m, n] = sum of y_parts[part, m, n]
y_sum = all_reduce(y) 2 shots  ->   reduce_scatter as above, then       y_sum = gather of the sums along 0
         landing pooled        ->   the same; an output is gathered in a free place of a pool, not copied
         landing reused        ->   the same; an output is gathered where the caller reads it, not copied
y_sum = f(y) library or kernel ->   y_sum = f(y), by one call
z = merge(states of q, k, v)   ->   z = the merge of them, by one call
y_sum = f(y) packets of tiles  ->   y_sum = f(y), by the tiles of y; a gather by the kernel that reads it
s = spread(x, r)               ->   s[m, n] = x[token of m, n], m by assignment
a = attention(q, k, v)         ->   a[m, n] = fold over k of q[m, n], k[k, head of n], v[k, head of n]
h = grouped_matmul(x, w, r)    ->   h[m, n] = sum over k of x[token of m, k] * w[expert of m, k, n], m by assignment
b = rows of h returned         ->   b = returns of h: each row to the rank of its token
c = combine(h, r, v)           ->   c[t, n] = sum over j of h[row of t and j, n] * v[t, j]
r = send_recv(x, by)           ->   r_queue = shift x;                  r[m, n] = r_queue[m, n]
p = y[:, a:b]                  ->   nothing: readers of p[m, n] read y[m, n + a]; where p must be a plain tensor,
                                    p[m, n] = y[m, n + a]
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import sympy

from tilelink.ir.collective import Collective
from tilelink.ir.graph import (
    Copy,
    GraphAxis,
    GraphValue,
    Index,
    Map,
    Merging,
    Relation,
    Sum,
    TileGraph,
    TileOp,
    TileOperation,
)
from tilelink.ir.nodes import Kind
from tilelink.ir.ops.user_op import WHOLE, UserOp
from tilelink.ir.routed import Along, Follows, Routed
from tilelink.ir.slices import as_carried_out
from tilelink.ir.spec import (
    AllGather,
    AllReduce,
    Attend,
    Attention,
    BoundNode,
    BoundSpec,
    Combine,
    DecodeAttention,
    Dispatch,
    Elementwise,
    Flatten,
    GroupedMatmul,
    LogWeights,
    Matmul,
    Merged,
    MergeStates,
    ReduceScatter,
    Return,
    Route,
    SendRecv,
    Slice,
    Spread,
    Unflatten,
    UserFold,
)


@dataclass(frozen=True, slots=True)
class _View:
    """Elements of `value` in memory, from `first` on along each dimension."""

    value: str
    shape: tuple[int, ...]
    first: tuple[int, ...]


_BY_CHUNKS = Collective()
_COLLECTIVES = (AllGather, ReduceScatter, AllReduce, SendRecv)
_ROUTED = (GroupedMatmul, Combine)
_OF_PLAIN_TENSORS = (*_COLLECTIVES, *_ROUTED, UserOp, Merged)  # what takes no slice of a tensor


def expand(
    spec: BoundSpec, collectives: Mapping[str, Collective], library: AbstractSet[str] = frozenset()
) -> TileGraph:
    """The graph of `spec` with each collective done as `collectives[its name]`, and the matmuls in `library` by the library,
    which reads whole matrices only."""
    return _Expansion(spec, collectives, library).graph()


class _Expansion:
    def __init__(self, spec: BoundSpec, collectives: Mapping[str, Collective], library: AbstractSet[str]) -> None:
        self.spec = as_carried_out(spec, collectives.items())
        self.collectives = collectives
        self.library = library
        self.values = {value.name: GraphValue(value.name, value.local, value.dtype) for value in self.spec.inputs}
        self.nodes: list[TileOp | Relation | Merging] = []
        self.views: dict[str, _View] = {}
        self.routings: dict[str, Routed] = {}

    def graph(self) -> TileGraph:
        for node in self.spec.nodes:
            self._node(node)
        inputs = tuple(v.name for v in self.spec.inputs)
        return TileGraph(self.values, inputs, self.spec.outputs, tuple(self.nodes), tuple(self.routings.values()))

    def _node(self, node: BoundNode) -> None:
        operation, out = node.operation, node.output.name
        source = self._by_assignment(node, node.inputs[0])
        chosen = self.collectives.get(out, _BY_CHUNKS)
        match operation:
            case AllGather(dim):
                at_once = chosen.by_call and dim == 0  # into a plain tensor
                target = f"{out}_whole" if self._needs_copy(out, dim, at_once=at_once) else out
                library = not chosen.by_chunks
                self._relation(node, target, Kind.GATHER, source, dim, self.values[source].shape, library=library)
                if target != out:
                    self._op(node, Copy(), out, (target,))
            case ReduceScatter(dim) if not chosen.by_chunks:
                source = self._settled(node, source, dim)
                self._relation(node, out, Kind.SCATTER, source, dim, self._cut(source, dim), summed=True)
            case ReduceScatter(dim):
                source = self._settled(node, source, dim)
                self._scatter_and_sum(node, source, dim, out)
            case AllReduce() if not chosen.by_chunks:
                self._relation(node, out, Kind.REDUCE, source, 0, self.values[source].shape, summed=True)
            case AllReduce() if chosen.shots > 1:
                self._scatter_and_sum(node, source, 0, f"{out}_part")
                copied = not chosen.lands_there and self._needs_copy(out, 0)
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
            case Route(num_experts, parts) as route:
                tokens, choices = node.output.local
                assert isinstance(num_experts, int), "bound"
                most = len(route.own(0))
                missing = most * parts - num_experts
                self.routings[out] = Routed(out, source, tokens, choices, most, parts, missing)
            case Return():
                self._relation(node, out, Kind.RETURN, source, 0, self._cut(source, 0))
            case Merged():
                self.values[out] = GraphValue(out, node.output.local, node.output.dtype)
                self.nodes.append(Merging(out, operation, node.inputs, node.line))
            case LogWeights() | UserFold():  # of the merge that makes its operand
                self.values[out] = GraphValue(out, node.output.local, node.output.dtype)
            case Dispatch() | Attention() | DecodeAttention() | MergeStates() | Flatten() | Unflatten():
                raise AssertionError("it is computed otherwise")
            case Attend():
                self._attend(node, operation)
            case Spread():
                self._spread(node)
            case GroupedMatmul():
                self._grouped(node)
            case Combine():
                self._combine(node)
            case Matmul() | Elementwise() | UserOp():
                self._op(node, operation, out, node.inputs)

    def _grouped(self, node: BoundNode) -> None:
        """A matmul whose rows follow a routing: of one tile all are of one expert."""
        rows, weights, table = node.inputs
        routed, values = self.routings[table], self.values
        m, k, n = map(_symbol, ("m", "k", "n"))
        _, depth, width = values[weights].shape
        by_token = values[rows].shape[0] == routed.tokens
        along = Along(Follows.TOKEN if by_token else Follows.ROW, values[rows].shape[0])
        reads = (
            Map(rows, (m, k), (along, None)),
            Map(weights, (m, k, n), (Along(Follows.EXPERT, routed.experts), None, None)),
        )
        axes = (GraphAxis("m", routed.rows, False, routed), GraphAxis("n", width, False), GraphAxis("k", depth, True))
        out = node.output.name
        values[out] = GraphValue(out, (routed.rows, width), node.output.dtype)
        write = Map(out, (m, n), (Along(Follows.ROW, routed.rows), None))
        self.nodes.append(TileOp(Matmul(), axes, reads, write, node.line))

    def _spread(self, node: BoundNode) -> None:
        rows, table = node.inputs
        routed, out = self.routings[table], node.output.name
        m, n = map(_symbol, ("m", "n"))
        width = self.values[rows].shape[1]
        read = Map(rows, (m, n), (Along(Follows.TOKEN, routed.tokens), None))
        write = Map(out, (m, n), (Along(Follows.ROW, routed.rows), None))
        self.values[out] = GraphValue(out, (routed.rows, width), node.output.dtype)
        axes = GraphAxis("m", routed.rows, False, routed), GraphAxis("n", width, False)
        self.nodes.append(TileOp(Copy(), axes, (read,), write, node.line))

    def _combine(self, node: BoundNode) -> None:
        rows, weights, table = node.inputs
        routed = self.routings[table]
        t, n, j = map(_symbol, ("t", "n", "j"))
        width = self.values[rows].shape[1]
        reads = (
            Map(rows, (t, n), (Along(Follows.CHOICES, routed.rows), None)),
            Map(weights, (t, j)),
            Map(routed.ids, (t, j)),
        )
        axes = (
            GraphAxis("t", routed.tokens, False),
            GraphAxis("n", width, False),
            GraphAxis("j", routed.choices, True),
        )
        out = node.output.name
        self.values[out] = GraphValue(out, (routed.tokens, width), node.output.dtype)
        self.nodes.append(TileOp(Combine(), axes, reads, Map(out, (t, n)), node.line))

    def _attend(self, node: BoundNode, attend: Attend) -> None:
        """Tiles of columns are heads. Of a head of keys several heads of queries read the same columns."""
        queries, keys, values = node.inputs
        m, n, k, d = map(_symbol, ("m", "n", "k", "d"))
        width, out = attend.width, node.output.name
        column = n // (attend.shared * width) * width + d
        rows, cols = self.values[queries].shape
        tokens, row = self.values[keys].shape[0] // attend.sequences, k
        if attend.sequences > 1:  # those of the sequence of the tile's queries
            row = k + m // (rows // attend.sequences) * tokens
        reads = (Map(queries, (m, n)), Map(keys, (row, column)), Map(values, (row, column)))
        axes = (
            GraphAxis("m", rows, False),
            GraphAxis("n", cols, False),
            GraphAxis("k", tokens, True),
            GraphAxis("d", width, True),
        )
        self.values[out] = GraphValue(out, (rows, cols), node.output.dtype)
        self.nodes.append(TileOp(attend, axes, reads, Map(out, (m, n)), node.line))

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

    def _by_assignment(self, node: BoundNode, source: str) -> str:
        """What is sent lies in its own order, not in that of a routing."""
        made = next((one for one in self.nodes if one.name == source), None)
        if not isinstance(node.operation, _COLLECTIVES) or not isinstance(made, TileOp) or not any(made.write.along):
            return source
        if f"{source}_settled" not in self.values:
            self._op(node, Copy(), f"{source}_settled", (source,))
        return f"{source}_settled"

    def _settled(self, node: BoundNode, source: str, dim: int) -> str:
        """Parts along columns are no slices of a plain tensor: an input is copied into parts, and so is what a user's
        tile body makes, because it has whole rows only."""
        maker = next((n for n in self.spec.nodes if n.output.name == source), None)
        if dim == 0 or not (maker is None or isinstance(maker.operation, UserOp)):
            return source
        if f"{source}_settled" not in self.values:
            self._op(node, Copy(), f"{source}_settled", (source,))
        return f"{source}_settled"

    def _needs_copy(self, out: str, dim: int, *, at_once: bool = False) -> bool:
        """Parts must be put together where a plain tensor is needed: an output, a pointer for a user's body, a matrix for the
        library, or an operand of a merge, which waits for no parts."""
        if out in self.spec.outputs and not at_once:
            return True
        readers = [n for n in self.spec.nodes if out in n.inputs]
        if not at_once and any(
            isinstance(n.operation, AllGather | ReduceScatter | AllReduce | Merged) for n in readers
        ):
            return True
        if dim == 1 and any(n.output.name in self.library or isinstance(n.operation, _ROUTED) for n in readers):
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
        elif not summed and kind not in (Kind.SHIFT, Kind.RETURN):
            shape[dim] *= ranks
        self.values[name] = GraphValue(name, tuple(shape), node.output.dtype)
        chosen = self.collectives.get(node.output.name, _BY_CHUNKS)
        how = chosen if chosen.by_packets else _BY_CHUNKS
        relation = Relation(
            name, kind, source, dim, part, ranks, stacked, summed, library or summed, node.line, how, by
        )
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
