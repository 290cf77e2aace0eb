"""Folds of the user's as what merges their states.

a, b = fold(x, y)                         ->  a = the fold of x, y, of the own state; b is made with it
s = all_reduce(a);  t = all_reduce(b)     ->  s = the merge of the states that ranks have of the fold of x, y; t is made with it
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilelink.errors import BadUserOp
from tilelink.ir.ops.states import Merged
from tilelink.ir.ops.user_fold import UserFold
from tilelink.ir.placement import Partial
from tilelink.ir.spec import DTYPE_BYTES, AllReduce, BoundNode, BoundSpec, BoundValue, ReduceScatter


def has_folds(spec: BoundSpec) -> bool:
    return any(isinstance(node.operation, UserFold) for node in spec.nodes)


def of_fold(spec: BoundSpec, node: BoundNode) -> list[BoundNode] | None:
    """What `node` becomes if it is a result of a fold, or a reduction of one; None if it is neither. Raises BadUserOp."""
    if isinstance(node.operation, UserFold):
        if node.output.placement == Partial():
            _check_readers(spec, node)
            return []
        return _of_group(spec, node, [(one, fold.number) for one, fold in _call(spec, node)])
    if not isinstance(node.operation, AllReduce | ReduceScatter):
        return None
    made = next((one for one in spec.nodes if one.output.name == node.inputs[0]), None)
    if made is None or not isinstance(made.operation, UserFold):
        return None
    number = _reductions(spec, node, made).index(node)  # of the same result, in the same way
    group = list[tuple[BoundNode, int]]()
    for one, fold in _call(spec, made):
        found = _reductions(spec, node, one)
        group += [(found[number], fold.number)] if len(found) > number else []
    return _of_group(spec, node, group)


def _call(spec: BoundSpec, node: BoundNode) -> Iterator[tuple[BoundNode, UserFold]]:
    """The nodes of the call that makes `node`: results follow each other."""
    assert isinstance(node.operation, UserFold), "asked for"
    first = spec.nodes.index(node) - node.operation.number
    for one in spec.nodes[first : first + len(node.operation.finishes)]:
        assert isinstance(one.operation, UserFold), "a call writes all of its results"
        yield one, one.operation


def _reductions(spec: BoundSpec, like: BoundNode, made: BoundNode) -> list[BoundNode]:
    """Reductions of what `made` makes, each done as `like` is."""
    return [one for one in spec.nodes if one.inputs == (made.output.name,) and one.operation == like.operation]


def _of_group(spec: BoundSpec, node: BoundNode, group: list[tuple[BoundNode, int]]) -> list[BoundNode]:
    """Values of one fold with the numbers of their results: the first of those that are needed is the merge."""
    read = {name for one in spec.nodes for name in one.inputs}.union(spec.outputs)
    needed = sorted(
        ((one, result) for one, result in group if one.output.name in read), key=lambda of: spec.nodes.index(of[0])
    )
    if all(one is not node for one, _ in needed):
        return []
    (first, result), *others = needed
    alone = isinstance(first.operation, UserFold)
    of_first = first if alone else next(one for one in spec.nodes if one.output.name in first.inputs)
    fold = of_first.operation
    assert isinstance(fold, UserFold), "a reduction reads it, or it is one"
    if node is not first:
        number = next(number for one, number in others if one is node)
        return [replace(node, operation=replace(fold, number=number), inputs=(first.output.name,))]
    dim = 1 if isinstance(first.operation, ReduceScatter) else None
    rows = first.output.local[0] if alone else first.output.shape[0]
    told = tuple((one.output.name, number) for one, number in others)
    how = Merged(
        replace(fold, number=result),
        dim,
        (1, rows, 1),
        keys=1,
        tokens=_elements(spec, of_first, fold),
        element_bytes=sum(DTYPE_BYTES[one.dtype] for one in _long(spec, of_first, fold)),
        others=told,
        alone=alone,
        apart=any(len(index) > 1 and index[0] == fold.over for _, index in fold.block.reads),
    )
    return [replace(first, operation=how, inputs=of_first.inputs)]


def _elements(spec: BoundSpec, node: BoundNode, fold: UserFold) -> int:
    """Of the axis that a rank folds over."""
    for name, (_, index) in zip(node.inputs, fold.block.reads, strict=True):
        if fold.over in index:
            return spec.value(name).local[index.index(fold.over)]
    raise AssertionError("some tensor has it")


def _long(spec: BoundSpec, node: BoundNode, fold: UserFold) -> Iterator[BoundValue]:
    """Operands that have the axis that is folded over."""
    for name, (_, index) in zip(node.inputs, fold.block.reads, strict=True):
        if fold.over in index:
            yield spec.value(name)


def _check_readers(spec: BoundSpec, node: BoundNode) -> None:
    """A state is no tensor until it has been reduced. Raises BadUserOp."""
    for reader in spec.nodes:
        if node.output.name in reader.inputs and not isinstance(reader.operation, AllReduce | ReduceScatter):
            reason = f"{reader.operation.word} takes {node.output.name}, of which ranks have a state each"
            legal = "all_reduce or reduce_scatter it first."
            raise BadUserOp(reader.line, name=node.operation.word, reason=reason, legal=legal)
