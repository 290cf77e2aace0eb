"""Queries, keys and values as matrices: tokens are rows, the elements of all heads are columns. States become what merges them.

q [1, S, Q, D]                ->  q [S, Q * D]
all_gather(k, dim=1)          ->  all_gather(k, dim=0)
attention(q, k, v)            ->  the same with heads as ranges of columns
y = attention(q, k, v), q [B, Q, D];  all_reduce(y)   ->  the merge of the states of q over k, v
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from tilelink.errors import BadAttention, BadShape
from tilelink.ir.folded import has_folds, of_fold
from tilelink.ir.ops.attention import BATCH, HEADS, TOKENS, WIDTH
from tilelink.ir.placement import Placement, Shard
from tilelink.ir.spec import (
    AllGather,
    AllReduce,
    Attend,
    Attention,
    BoundNode,
    BoundSpec,
    BoundValue,
    DecodeAttention,
    Flatten,
    LogWeights,
    Merged,
    MergeStates,
    ReduceScatter,
    Unflatten,
)

_DIMS, _OF_ROWS = 4, 2  # dimensions of what becomes a matrix, and how many of them are rows


def as_matrices(spec: BoundSpec) -> BoundSpec:
    """`spec` with matrices for tensors of four dimensions, and with merges for states; the spec itself if it has none."""
    values = (*spec.inputs, *(node.output for node in spec.nodes))
    if not any(len(value.shape) > _OF_ROWS for value in values) and not has_folds(spec):
        return spec
    if any(isinstance(node.operation, Merged) for node in spec.nodes):
        return spec  # it has been
    for node in spec.nodes:
        _check_gathered(spec, node)
    nodes = tuple(one for node in spec.nodes for one in _nodes(spec, node))
    return _without_views(spec, replace(spec, inputs=tuple(map(_value, spec.inputs)), nodes=nodes))


def _check_gathered(spec: BoundSpec, node: BoundNode) -> None:
    """Gathered tokens of several sequences lie rank by rank, which keys and values of attention may. Raises BadAttention."""
    name, shape = node.output.name, node.output.shape
    if node.operation != AllGather(TOKENS) or len(shape) != _DIMS or shape[BATCH] == 1:
        return
    attends = (Attention, LogWeights)
    others = [one for one in spec.nodes if name in one.inputs[: 1 if isinstance(one.operation, attends) else None]]
    if others or name in spec.outputs:
        who = f"{others[0].operation.word} takes" if others else "the caller gets"
        reason = f"{who} {name}, tokens of {shape[BATCH]} sequences that lie rank by rank"
        raise BadAttention(node.line, reason=reason, legal="Keys and values of attention; or one sequence.")


def _views(spec: BoundSpec, node: BoundNode) -> bool:
    """Whether it gives another shape to what is a matrix in both."""
    of_tokens = isinstance(node.operation, Flatten) and len(spec.value(node.inputs[0]).shape) == _DIMS
    return of_tokens or isinstance(node.operation, Unflatten)


def _without_views(spec: BoundSpec, made: BoundSpec) -> BoundSpec:
    """`made` of `spec` with one name for what views show in other shapes. Raises BadAttention."""
    names, given = dict[str, str](), {value.name for value in spec.inputs}
    for node in spec.nodes:
        if not _views(spec, node):
            continue
        source, name = names.get(node.inputs[0], node.inputs[0]), node.output.name
        if name in spec.outputs and (source in spec.outputs or source in given):
            reason = f"{name} is returned, which is the memory of {source} in another shape"
            legal = "A parameter is no result; of a result one shape is returned."
            raise BadAttention(node.line, reason=reason, legal=legal)
        old, kept = (source, name) if name in spec.outputs else (name, source)
        names = {one: kept if other == old else other for one, other in names.items()} | {old: kept}

    def renamed(node: BoundNode) -> BoundNode:
        output = replace(node.output, name=names.get(node.output.name, node.output.name))
        return replace(node, inputs=tuple(names.get(one, one) for one in node.inputs), output=output)

    return replace(made, nodes=tuple(map(renamed, made.nodes))) if names else made


def matrix_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """How a tensor lies as rows and columns, if it has so many dimensions."""
    return (math.prod(shape[:_OF_ROWS]), math.prod(shape[_OF_ROWS:])) if len(shape) == _DIMS else shape


def _value(value: BoundValue) -> BoundValue:
    if len(value.shape) != _DIMS:
        return value
    shape, local = map(matrix_shape, (value.shape, value.local))
    return replace(value, shape=shape, local=local, placement=_placement(value.placement))


def _rows_of_heads(value: BoundValue) -> BoundValue:
    """[B, S, Q] as a matrix, a row for each token."""
    shape, local = ((math.prod(one[:_OF_ROWS]), one[-1]) for one in (value.shape, value.local))
    return replace(value, shape=shape, local=local, placement=_placement(value.placement))


def _placement(placement: Placement) -> Placement:
    return Shard(placement.dim // _OF_ROWS) if isinstance(placement, Shard) else placement


def _nodes(spec: BoundSpec, node: BoundNode) -> Iterator[BoundNode]:
    """What `node` becomes. Means and logarithms of states are merged where the first of both is reduced."""
    if (found := of_fold(spec, node)) is not None:
        yield from found
        return
    if _views(spec, node):
        return
    if isinstance(node.operation, Attention):
        logs = _beside(spec, node)
        yield _attend(spec, node, logs)
        if logs is not None:
            yield replace(logs, inputs=(node.output.name,), output=_rows_of_heads(logs.output))
        return
    means, logs = node, _logs_of(spec, node)
    if _log_weights(spec, node) is not None:
        means, logs = _means_of(spec, node), node
    if logs is None or _means_of(spec, logs) is not means:  # another reduction of the same means has them
        if (made := _node(spec, node)) is not None:
            yield made
    elif node is min(means, logs, key=spec.nodes.index):
        wanted = logs.output.name in spec.outputs or any(logs.output.name in one.inputs for one in spec.nodes)
        merged, log_weights = _merged(spec, means, logs if wanted else None), _log_weights(spec, logs)
        assert log_weights is not None, "it reduces them"
        yield merged
        if wanted:
            yield replace(logs, operation=log_weights, inputs=(merged.output.name,))


def _node(spec: BoundSpec, node: BoundNode) -> BoundNode | None:
    match node.operation:
        case LogWeights(Attention()):
            return None  # whose tiles store them
        case DecodeAttention() | MergeStates() | LogWeights():
            _check_readers(spec, node)
            return None  # who reduces it merges
        case AllReduce() | ReduceScatter() if len(node.output.shape) > _OF_ROWS:
            return _merged(spec, node, None)
        case Flatten():
            _check_flat(spec, node)
            return None  # who merges stores it so
        case AllGather(dim) if len(node.output.shape) == _DIMS:
            return replace(node, operation=AllGather(dim // _OF_ROWS), output=_value(node.output))
    return replace(node, output=_value(node.output))


def _attend(spec: BoundSpec, node: BoundNode, logs: BoundNode | None) -> BoundNode:
    """Attention of matrices, whose tiles store its logarithms if they are given. Raises BadAttention."""
    how = node.operation
    assert isinstance(how, Attention) and isinstance(how.scale, float), "bound"
    queries, keys, _ = map(spec.value, node.inputs)
    heads, width = queries.local[HEADS], queries.local[WIDTH]
    apart = queries.placement == Shard(TOKENS)
    parts = spec.num_ranks if _gathered(spec, node.inputs[1]) else 1
    shared = heads // keys.local[HEADS]
    if how.zigzag and parts == 1:
        reason = f"zigzag=True, and {node.inputs[1]} is not gathered along its tokens"
        raise BadAttention(node.line, reason=reason, legal="Keys and values are Shard(1), and gathered.")
    numbers = heads, shared, width, apart, queries.local[BATCH], parts, how.zigzag, *_named(logs)
    attend = Attend(how.causal, how.window, how.soft_cap, how.scale, *numbers)
    return replace(node, operation=attend, output=_value(node.output))


def _check_readers(spec: BoundSpec, node: BoundNode) -> None:
    """A state is no tensor until it has been reduced, and what the caller gives is one as it is. Raises BadAttention."""
    made = [name for name in node.inputs if all(name != one.name for one in spec.inputs)]
    if isinstance(node.operation, MergeStates) and made:
        reason = f"{made[0]} is computed, and merge_states takes states of the caller"
        raise BadAttention(node.line, reason=reason, legal="Both operands are parameters.")
    for reader in spec.nodes:
        if node.output.name in reader.inputs and not isinstance(reader.operation, AllReduce | ReduceScatter):
            reason = f"{reader.operation.word} takes {node.output.name}, of which ranks have a state each"
            raise BadAttention(reader.line, reason=reason, legal="all_reduce or reduce_scatter it first.")


def _check_flat(spec: BoundSpec, node: BoundNode) -> None:
    """It is the one form in which a merge stores its result. Raises BadAttention."""
    (name,) = node.inputs
    made = next((one for one in spec.nodes if one.output.name == name), None)
    if made is None or not isinstance(made.operation, AllReduce | ReduceScatter):
        reason = f"flatten takes {name}, which is not what all_reduce or reduce_scatter makes of a state"
        raise BadAttention(node.line, reason=reason, legal="A tensor of the caller is passed as a matrix.")
    if name in spec.outputs or sum(name in one.inputs for one in spec.nodes) > 1:
        reason = f"{name} is flattened, and read as it is, too"
        raise BadAttention(node.line, reason=reason, legal="One of both: the result of flatten may be read many times.")


def _maker_of(spec: BoundSpec, name: str) -> BoundNode | None:
    return next((one for one in spec.nodes if one.output.name == name), None)


def _log_weights(spec: BoundSpec, node: BoundNode) -> LogWeights | None:
    """What the operand of `node` is, if it is logarithms of sums of weights."""
    made = _maker_of(spec, node.inputs[0])
    return made.operation if made is not None and isinstance(made.operation, LogWeights) else None


def _means_of(spec: BoundSpec, node: BoundNode) -> BoundNode:
    """The reduction of the means of the states whose logarithms `node` reduces. Raises BadAttention."""
    for other in spec.nodes:
        if _logs_of(spec, other) is node:
            return other
    reason = f"{node.inputs[0]} is reduced by {node.operation.word}, and the result that it belongs to is not"
    legal = "Both are reduced alike; an output that is not needed may be left out."
    raise BadAttention(node.line, reason=reason, legal=legal)


def _logs_of(spec: BoundSpec, node: BoundNode) -> BoundNode | None:
    """The reduction of the same kind of the logarithms of the states that `node` reduces, if there is one."""
    made = _maker_of(spec, node.inputs[0])
    logs = _logs_with(spec, made) if made is not None else None
    same = (one for one in spec.nodes if one.operation == node.operation)
    return next((one for one in same if logs is not None and one.inputs == (logs.output.name,)), None)


def _logs_with(spec: BoundSpec, node: BoundNode) -> BoundNode | None:
    """The second part of what `node` makes, which is written right behind it."""
    other = next(iter(spec.nodes[spec.nodes.index(node) + 1 :]), node)
    same = isinstance(other.operation, LogWeights) and other.operation.how == node.operation
    return other if same and other.inputs == node.inputs else None


def _beside(spec: BoundSpec, node: BoundNode) -> BoundNode | None:
    """The logarithms that attention of many queries stores, if they are wanted: nothing of a spec reads them."""
    logs = _logs_with(spec, node)
    return logs if logs is not None and logs.output.name in spec.outputs else None


def _named(logs: BoundNode | None) -> tuple[str, bool]:
    """The value of logarithms that somebody needs, and whether they are of base 2."""
    if logs is None:
        return "", False
    assert isinstance(logs.operation, LogWeights), "it is found by that"
    return logs.output.name, logs.operation.base2


def _flat(spec: BoundSpec, node: BoundNode) -> BoundNode | None:
    return next((one for one in spec.nodes if one.inputs == (node.output.name,) and one.operation == Flatten()), None)


def _merged(spec: BoundSpec, node: BoundNode, logs: BoundNode | None) -> BoundNode:
    """What a reduction makes of states; `logs` is that of the logarithms that are needed. Raises BadShape, BadAttention."""
    made = _maker_of(spec, node.inputs[0])
    what = f"{node.operation.word} operand {node.inputs[0]}"
    if made is None or not isinstance(made.operation, DecodeAttention | MergeStates):
        shape = ", ".join(map(str, node.output.shape))
        raise BadShape(node.line, what=what, rank=len(node.output.shape), shape=shape, legal="1 or 2")
    dim = node.operation.dim if isinstance(node.operation, ReduceScatter) else None
    if dim == HEADS:
        reason = f"reduce_scatter(dim=2) of {node.inputs[0]} would cut heads"
        raise BadAttention(node.line, reason=reason, legal="dim=0, sequences or tokens, or dim=1, heads.")
    sequences, heads, width = node.output.shape
    flat = _flat(spec, node)
    merged = Merged(made.operation, dim, (sequences, heads, width), flat is not None)
    of_logs = _log_weights(spec, logs) if logs is not None else None
    if logs is not None and of_logs is not None:
        merged = replace(merged, logs=logs.output.name, base2=of_logs.base2)
    if isinstance(made.operation, DecodeAttention):
        keys, named = spec.value(made.inputs[1]), made.operation.named(made.inputs)
        _, size, heads, _ = keys.local
        tokens, page = (spec.value(named["pages"]).local[1] * size, size) if made.operation.pages else (size, 0)
        merged = replace(merged, keys=heads, tokens=tokens, page=page)
    return replace(node, operation=merged, inputs=made.inputs, output=node.output if flat is None else flat.output)


def _gathered(spec: BoundSpec, name: str) -> bool:
    """Whether the value is put together of tokens of all ranks. Raises BadAttention."""
    made = _maker_of(spec, name)
    if made is None or not isinstance(made.operation, Unflatten):
        return made is not None and made.operation == AllGather(TOKENS)
    rows, sequences = _maker_of(spec, made.inputs[0]), made.output.shape[BATCH]
    if rows is None or rows.operation != AllGather(0):
        return False
    if sequences > 1:
        reason = f"{name} is of {sequences} sequences, and unflatten makes it of rows that are gathered"
        raise BadAttention(made.line, reason=reason, legal="unflatten comes first, then all_gather(dim=1).")
    return True


def names_of_matrices(values: Iterable[BoundValue]) -> frozenset[str]:
    """Of values that users hand over, or get, with four dimensions."""
    return frozenset(value.name for value in values if len(value.shape) == _DIMS)
