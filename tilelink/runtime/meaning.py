"""What a spec means: torch on whole tensors, in float64.

A spec is a program over global tensors. A placement says where their parts lie, and never changes a value. So the meaning is
computed without ranks: `whole_inputs` puts the parts of all ranks together, `evaluate` runs the program, and `cut` gives
each rank its part. Results of schedules are compared with this, so no rule of shapes, placements, graphs or plans is used here,
and an elementwise function has a `meaning` beside the texts that are printed: a wrong text must not be compared with itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch

from tilelink.errors import NoReference, ReferenceFailed
from tilelink.ir.dtype import DTYPES
from tilelink.ir.ops.elementwise import FUNCTIONS
from tilelink.ir.ops.states import StatesOp
from tilelink.ir.ops.user_fold import UserFold
from tilelink.ir.placement import ByExpert, Partial, Placement, Replicate, Shard, share
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
)
from tilelink.ir.user_op import UserOp
from tilelink.ir.user_reference import in_float64, reference_of


def whole_inputs(spec: BoundSpec, ranks: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """The inputs as global tensors in float64, from the local parts of each rank, in the order of the ranks. States are no
    summands: those of all ranks are kept, with the ranks in front."""
    states = {name for node in spec.nodes if _is_merge(node) for name in node.inputs}
    found = {}
    for value in spec.inputs:
        parts = [held[value.name].double() for held in ranks]
        found[value.name] = torch.stack(parts) if value.name in states else _whole(value.placement, parts)
    return found


def _is_merge(node: BoundNode) -> bool:
    operation = node.operation.how if isinstance(node.operation, LogWeights) else node.operation
    return isinstance(operation, MergeStates)


def _whole(placement: Placement, parts: list[torch.Tensor]) -> torch.Tensor:
    match placement:
        case Replicate():
            return parts[0]
        case Shard(dim):
            return torch.cat(parts, dim)
        case Partial():
            return torch.stack(parts).sum(0)
        case ByExpert():
            raise AssertionError("no input lies by experts")


def evaluate(spec: BoundSpec, whole: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The global value of every name of `spec` in float64, from global inputs in float64.

    Raises NoReference and ReferenceFailed for tile ops of the user's.
    """
    values = {value.name: whole[value.name] for value in spec.inputs}
    for node in spec.nodes:
        values[node.output.name] = _meaning(spec, node, [values[name] for name in node.inputs])
    return values


def _meaning(spec: BoundSpec, node: BoundNode, operands: list[torch.Tensor]) -> torch.Tensor:
    match node.operation:
        case Matmul(transposed):
            left, right = operands
            return left @ (right.T if transposed else right)
        case Elementwise(function, left, right):
            return FUNCTIONS[function].meaning(*_constant(left), *operands, *_constant(right))
        case Slice(dim, start, stop):
            return operands[0].narrow(dim, start, stop - start)
        case Route(num_experts):
            (ids,) = operands
            return torch.where((ids >= 0) & (ids < num_experts), ids, -1)
        case Dispatch() | Spread():
            return operands[0].repeat_interleave(operands[1].shape[1], 0)
        case GroupedMatmul(num_experts):
            return _grouped(num_experts, *operands)
        case Combine():
            rows, weights, routing = operands
            there = routing >= 0
            counted = torch.where(there[..., None], rows.view(*routing.shape, -1), 0)
            return (counted * torch.where(there, weights, 0)[..., None]).sum(1)
        case Attention() as how:
            return _attention(how, spec.num_ranks, *operands)[0]
        case DecodeAttention() as how:
            return _decode(how, spec.num_ranks, *operands)[0]
        case LogWeights(how, base2):
            return _logs(how, spec.num_ranks, operands) / (math.log(2) if base2 else 1)
        case MergeStates(base2):
            return _merged(2.0 if base2 else math.e, *operands)
        case Attend() | Merged():
            raise AssertionError("it is of matrices")
        case Flatten():
            return operands[0].flatten(-2).flatten(0, -2)
        case Unflatten(shape):
            return operands[0].view(shape)
        case AllGather() | ReduceScatter() | AllReduce() | Return():
            return operands[0]  # the same tensor, placed otherwise
        case SendRecv(by):
            placement = node.output.placement
            assert isinstance(placement, Shard)  # only parts can move from rank to rank
            parts = operands[0].chunk(spec.num_ranks, placement.dim)
            return torch.cat([parts[(rank - by) % spec.num_ranks] for rank in range(spec.num_ranks)], placement.dim)
        case UserOp() as op:
            return _of_user(op, operands, node)
        case UserFold() as fold:
            kinds = [DTYPES[spec.value(name).dtype].integer for name in node.inputs]
            given = [one.long() if integer else one for one, integer in zip(operands, kinds, strict=True)]
            return _of_user(fold.block, given, node, fold.number if len(fold.finishes) > 1 else None)


def _grouped(num_experts: int, rows: torch.Tensor, w: torch.Tensor, routing: torch.Tensor) -> torch.Tensor:
    choices, expert = routing.shape[1], routing.flatten()
    of_tokens = len(rows) == len(routing)
    out = torch.zeros(len(expert), w.shape[2], dtype=torch.float64)
    for number in range(num_experts):
        (mine,) = torch.nonzero(expert == number, as_tuple=True)
        out[mine] = rows[mine // choices if of_tokens else mine] @ w[number]
    return out


def _attention(
    how: Attention, ranks: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Head by head: scores of all pairs, those that are not seen left out, then the mean of values by softmax; and the natural
    logarithms of the sums of weights."""
    sequences, queries, heads, _ = q.shape
    keys, shared = k.shape[1], heads // k.shape[2]
    token = torch.arange(queries)  # at each place
    if how.zigzag:
        blocks = torch.arange(2 * ranks).view(ranks, 2)
        blocks[:, 1] = 2 * ranks - 1 - blocks[:, 0] // 2
        blocks[:, 0] //= 2
        each = queries // (2 * ranks)
        token = (blocks.reshape(-1, 1) * each + torch.arange(each)).reshape(-1)
    distance = token.unsqueeze(1) - (token if how.causal else torch.arange(keys)).unsqueeze(0)
    seen = torch.ones(queries, keys, dtype=torch.bool)
    if how.causal:
        seen &= distance >= 0
    if how.window:
        seen &= distance < how.window
    out, logs = torch.empty_like(q), torch.empty(q.shape[:3], dtype=torch.float64)
    for b in range(sequences):
        for head in range(heads):
            scores = torch.einsum("sd,td->st", q[b, :, head], k[b, :, head // shared]) * how.scale
            if how.soft_cap:
                scores = how.soft_cap * torch.tanh(scores / how.soft_cap)
            top = torch.where(seen, scores, -torch.inf).amax(1, keepdim=True)
            weights = torch.where(seen, (scores - top).exp(), 0)
            out[b, :, head] = weights @ v[b, :, head // shared] / weights.sum(1, keepdim=True)
            logs[b, :, head] = top.squeeze(1) + weights.sum(1).log()
    return out, logs


def _decode(
    how: DecodeAttention, ranks: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *more: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sequence by sequence: the tokens that are seen, wherever they lie, the mean of their values by softmax, and the natural
    logarithm of the sum of their weights."""
    given = dict(zip(["lengths"] * how.lengths + ["pages"] * how.pages, more, strict=True))
    tokens = k.shape[1] * (given["pages"].shape[1] if how.pages else 1)
    shared = q.shape[1] // k.shape[2]
    out, logs = torch.zeros_like(q), torch.full(q.shape[:2], -torch.inf, dtype=torch.float64)
    for b in range(len(q)):
        length = max(0, min(tokens, int(given["lengths"][b]))) if how.lengths else tokens
        token = torch.arange(length)
        token = token[token >= length - how.window] if how.window else token
        if not len(token):
            continue
        if how.pages:
            in_a_row = given["pages"][b].view(ranks, -1) + torch.arange(ranks).unsqueeze(1) * (len(k) // ranks)
            page, slot = in_a_row.flatten()[token // k.shape[1]].long(), token % k.shape[1]
            keys, values = k[page, slot], v[page, slot]
        else:
            keys, values = k[b, token], v[b, token]
        for head in range(q.shape[1]):
            scores = keys[:, head // shared] @ q[b, head] * how.scale
            if how.soft_cap:
                scores = how.soft_cap * torch.tanh(scores / how.soft_cap)
            out[b, head] = scores.softmax(0) @ values[:, head // shared]
            logs[b, head] = scores.max() + (scores - scores.max()).exp().sum().log()
    return out, logs


def _merged(base: float, means: torch.Tensor, logs: torch.Tensor) -> torch.Tensor:
    """The mean of means by weight. Ranks that have seen nothing have none, and neither has a mean that nobody has seen."""
    there = logs > -torch.inf
    weights = torch.where(there, base ** (logs - logs.max(0).values), 0)
    terms = weights.unsqueeze(3) * torch.where(there.unsqueeze(3), means, 0)
    return terms.sum(0) / torch.where(there.any(0), weights.sum(0), 1).unsqueeze(2)


def _logs(how: Attention | StatesOp, ranks: int, operands: list[torch.Tensor]) -> torch.Tensor:
    """Natural logarithms of sums of weights, of nothing if no rank has seen any."""
    match how:
        case Attention():
            return _attention(how, ranks, *operands)[1]
        case DecodeAttention():
            return _decode(how, ranks, *operands)[1]
        case MergeStates(base2):
            logs = operands[1] * (math.log(2) if base2 else 1)
            top = logs.max(0).values
            sums = (logs - torch.where(top > -torch.inf, top, 0)).exp().sum(0)
            return torch.where(top > -torch.inf, top + sums.log(), -torch.inf)


def _constant(number: object) -> list[float]:
    """A constant is a number of fp32, as in torch, so that cancellation does not show how it was rounded."""
    return [] if number is None else [torch.tensor(number, dtype=torch.float32).item()]


def cut(value: torch.Tensor, placement: Placement, rank: int, num_ranks: int) -> torch.Tensor:
    """The part of the global `value` that lies on `rank`, as a view.

    Raises ValueError for Partial: a sum does not tell its summands.
    """
    match placement:
        case Replicate():
            return value
        case Shard(dim):
            held = share(value.shape[dim], num_ranks, rank)
            return value.narrow(dim, held.start, len(held))
        case Partial() | ByExpert():
            raise ValueError("a global value does not say what the ranks hold of it")


def _of_user(op: UserOp, operands: list[torch.Tensor], node: BoundNode, number: int | None = None) -> torch.Tensor:
    """The user's reference, called once with whole tensors; result `number` of several."""
    reference = user_reference(op)
    try:
        result = in_float64(reference, operands)
    except Exception as error:
        raise ReferenceFailed(node.line, name=op.name, reason=f"raises {type(error).__name__}: {error}") from error
    if number is not None and isinstance(result, tuple) and len(result) > number:
        result = result[number]
    if not isinstance(result, torch.Tensor):
        raise ReferenceFailed(node.line, name=op.name, reason=f"returns {result!r}, which is not a tensor")
    if tuple(result.shape) != node.output.shape:
        shapes = f"returns the shape {list(result.shape)} where the op writes {list(node.output.shape)}"
        raise ReferenceFailed(node.line, name=op.name, reason=shapes)
    return result.double()


def user_reference(op: UserOp) -> Callable[..., object]:
    """The torch reference of a user's op, from its text. Raises NoReference if the op was declared without one."""
    if not op.reference:
        raise NoReference(name=op.name)
    return reference_of(op.reference)
