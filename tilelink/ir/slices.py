"""A spec as it is computed: without values that nobody needs, and with slices where they cost nothing.

`(x @ w)[:, :F]` is computed as `x @ w[:, :F]`.
A value of which only slices are read need not be stored: its slices are computed instead, from slices of its operands. So
`gate, up = (x @ w).chunk(2, dim=1)` is two matmuls of one left operand, which may share a loop. What is left are slices of
tensors in memory, which their readers load from there, see `tilelink.ir.expand`.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import lru_cache

from tilelink.ir.collective import Adder, Collective
from tilelink.ir.experts import by_gathering, returned
from tilelink.ir.matrices import as_matrices
from tilelink.ir.spec import AllGather, BoundNode, BoundSpec, BoundValue, Elementwise, Matmul, Slice


@lru_cache(maxsize=256)
def as_computed(spec: BoundSpec) -> BoundSpec:
    """`spec` without values that no output needs, or of which only slices are read and each element is computed by itself.
    Rows go to experts as `by_gathering` says, and
    `as_matrices` has tensors of four dimensions."""
    spec = by_gathering(as_matrices(spec))
    nodes = _needed(spec)
    at = len(nodes) - 1 if any(isinstance(node.operation, Slice) for node in nodes) else -1
    while at >= 0:  # from the last one on: what moves up is looked at again
        moved = _moved(spec, nodes, at)
        at = at - 1 if moved is None else len(moved) - 1
        nodes = moved or nodes
    return replace(spec, nodes=tuple(nodes))


def as_carried_out(spec: BoundSpec, collectives: Iterable[tuple[str, Collective]]) -> BoundSpec:
    """`as_computed`, with rows of experts that travel where `collectives` say so."""
    return _carried_out(spec, frozenset(name for name, how in collectives if how.adder is Adder.RECEIVER))


@lru_cache(maxsize=256)
def _carried_out(spec: BoundSpec, sums: AbstractSet[str]) -> BoundSpec:
    computed = as_computed(spec)
    if not sums:
        return computed
    changed = returned(computed, sums)
    return replace(changed, nodes=tuple(_needed(changed)))


def _needed(spec: BoundSpec) -> list[BoundNode]:
    """Nodes on which an output depends, in their order."""
    needed, found = set(spec.outputs), []
    for node in reversed(spec.nodes):
        if node.output.name in needed:
            needed.update(node.inputs)
            found.append(node)
    return found[::-1]


def _moved(spec: BoundSpec, nodes: list[BoundNode], at: int) -> list[BoundNode] | None:
    """The nodes without the one at `at`, or None if it is needed as it is."""
    made, values = nodes[at], {value.name: value for value in (*spec.inputs, *(node.output for node in nodes))}
    name = made.output.name
    readers = [node for node in nodes if name in node.inputs]
    slices = [node.operation for node in readers if isinstance(node.operation, Slice)]
    if not readers or len(slices) < len(readers) or name in spec.outputs:
        return None
    dims = {one.dim: _dims(made, values, one.dim) for one in slices}
    gathered = {node.output.name: node.operation.dim for node in nodes if isinstance(node.operation, AllGather)}
    for found in dims.values():
        # parts that arrive one by one would have to be put together for a slice across them
        if found is None or any(
            gathered.get(operand, -1) == dim for operand, dim in zip(made.inputs, found, strict=True)
        ):
            return None
    result: list[BoundNode] = []
    for node in nodes:
        if node in readers and isinstance(node.operation, Slice):
            inputs = []
            for operand, dim in zip(made.inputs, dims[node.operation.dim] or (), strict=True):
                inputs.append(operand if dim is None else _sliced(result, node, values[operand], dim))
            result.append(replace(made, inputs=tuple(inputs), output=node.output))
        elif node is not made:
            result.append(node)
    return result


def _dims(made: BoundNode, values: dict[str, BoundValue], dim: int) -> tuple[int | None, ...] | None:
    """Along which dimension each operand is cut if the result is along `dim`: None for an operand that stays whole."""
    if not isinstance(made.operation, Matmul | Elementwise):
        return None
    indices, write = made.operation.indices([values[operand].shape for operand in made.inputs])
    return tuple(index.index(write[dim]) if write[dim] in index else None for index in indices)


def _sliced(result: list[BoundNode], like: BoundNode, value: BoundValue, dim: int) -> str:
    """The name of the slice of `value` along `dim` that has the bounds of `like`, appended to `result` unless it is there."""
    assert isinstance(like.operation, Slice), "bounds come from a slice"
    cut = replace(like.operation, dim=dim)
    for node in result:
        if (node.operation, node.inputs) == (cut, (value.name,)):
            return node.output.name
    extent = cut.stop - cut.start
    shape, local = (_with(shape, dim, extent) for shape in (value.shape, value.local))
    name = _fresh(f"{like.output.name}_of_{value.name}", (node.output.name for node in result))
    result.append(
        BoundNode(cut, (value.name,), BoundValue(name, shape, local, value.placement, value.dtype), like.line)
    )
    return name


def _with(shape: tuple[int, ...], dim: int, extent: int) -> tuple[int, ...]:
    return (*shape[:dim], extent, *shape[dim + 1 :])


def _fresh(name: str, taken: Iterable[str]) -> str:
    known, found, count = set(taken), name, 1
    while found in known:
        count += 1
        found = f"{name}_{count}"
    return found
