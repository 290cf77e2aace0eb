"""What a library may compute: each matmul, and plain attention."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from tilelink.ir.graph import TileGraph
from tilelink.ir.ops.op import Op
from tilelink.ir.slices import as_computed
from tilelink.ir.spec import DTYPE_BYTES, Attend, BoundSpec, Matmul

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


def reads_parts(graph: TileGraph, library: AbstractSet[str]) -> bool:
    """Whether attention by the library would read what comes chunk by chunk, or lies in parts."""
    attention = (op for op in graph.ops() if op.name in library and isinstance(op.operation, Attend))
    relations = (graph.relation(read.value) for op in attention for read in op.reads)
    return any(relation is not None and not relation.plain for relation in relations)
