"""What a library may compute: each matmul, and plain attention."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from tilelink.ir.graph import TileGraph, TileOp
from tilelink.ir.nodes import Kind
from tilelink.ir.ops.op import Op
from tilelink.ir.slices import as_computed
from tilelink.ir.spec import DTYPE_BYTES, Attend, BoundSpec, Matmul
from tilelink.ir.warpgroups import SHARED_ROWS
from topologies.topology import Gpu, Vendor

_OF_ATTENTION = 2  # bytes of an element


def in_library(spec: BoundSpec) -> list[str]:
    """Names of what the library may compute, in program order."""
    nodes = {node.output.name: node for node in (*spec.nodes, *as_computed(spec).nodes)}
    return [name for name, node in nodes.items() if library_computes(node.operation, node.output.dtype)]


def library_computes(operation: object, dtype: str) -> bool:
    """Whether the library has a call for the operation that makes elements of `dtype`."""
    return (
        isinstance(operation, Op)
        and operation.in_library
        and (isinstance(operation, Matmul) or DTYPE_BYTES[dtype] == _OF_ATTENTION)
    )


def attention_by(graph: TileGraph, library: AbstractSet[str]) -> list[TileOp]:
    """Attention that the library computes."""
    return [op for op in graph.ops() if op.name in library and isinstance(op.operation, Attend)]


def attends_to_parts(graph: TileGraph, op: TileOp) -> bool:
    """Whether keys and values of attention by the library come part by part."""
    return isinstance(op.operation, Attend) and any(not _plain(graph, read.value) for read in op.reads[1:])


def whole_tiles(graph: TileGraph, op: TileOp) -> bool:
    """Whether the rows of attention and the keys of each part of a sequence are whole tiles of those that warpgroups share, which
    are planned with as many keys as rows."""
    how = op.operation
    assert isinstance(how, Attend), "it is attention"
    rows, keys = (
        graph.values[read.value].shape[0] if (found := graph.relation(read.value)) is None else found.part[0]
        for read in op.reads[:2]
    )
    return not any(many % (how.sequences * SHARED_ROWS) for many in (rows, keys))


def why_not_in_library(graph: TileGraph, op: TileOp, gpu: Gpu) -> str:
    """Why the library cannot attend to what its operands are: keys and values are one tensor each, or both come part by part."""
    if gpu.vendor is not Vendor.NVIDIA:
        return f"attention by the library is that of cuDNN, which {gpu.name} has not"
    how = op.operation
    assert isinstance(how, Attend), "it is attention"
    queries, *given = (read.value for read in op.reads)
    if not _plain(graph, queries):
        return f"{queries} lies in parts, which the library cannot read as one matrix"
    if not attends_to_parts(graph, op):
        many = how.sequences > 1 and how.parts > 1
        return f"tokens of each sequence of {given[0]} do not lie one behind the other" if many else ""
    for value in given:
        relation = graph.relation(value)
        if relation is None or relation.library or relation.kind is not Kind.GATHER or relation.dim != 0:
            return f"{value} does not come part by part, as keys and values do where one of them does"
        if how.causal and (not how.apart or relation.part[0] != graph.values[queries].shape[0]):
            return f"queries of {queries} are not of the tokens of a part of {value}, which a mask part by part takes"
    return ""


def _plain(graph: TileGraph, value: str) -> bool:
    relation = graph.relation(value)
    return relation is None or relation.plain
