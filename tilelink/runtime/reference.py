"""What a spec means: global tensors in float64 on the CPU, and the parts that ranks give and should receive."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Protocol

import torch

from lowering.entry import TOLERANCES, TORCH_FUNCTIONS, input_scales
from tilelink.errors import NoReference
from tilelink.ir.placement import Partial, Replicate, Shard
from tilelink.ir.spec import AllGather, AllReduce, BoundNode, BoundSpec, Elementwise, Matmul, ReduceScatter, SendRecv
from tilelink.ir.user_op import UserOp
from tilelink.threads import one_thread


class Stream(Protocol):
    """What of a fabric's stream is needed here."""

    def copy(self, dst: torch.Tensor, src: torch.Tensor) -> None:
        """Enqueue a copy."""


TORCH_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}

_ELEMENTWISE: dict[str, Callable[..., torch.Tensor]] = {
    name: eval(f"lambda *operands: {text.format('operands[0]', 'operands[1]')}", {"torch": torch})
    for name, text in TORCH_FUNCTIONS.items()
}


def make_inputs(spec: BoundSpec, seed: int) -> list[dict[str, torch.Tensor]]:
    """Random inputs, one dict of local tensors a rank, scaled so that the values of products stay near 1."""
    generator = torch.Generator().manual_seed(seed)
    ranks: list[dict[str, torch.Tensor]] = [{} for _ in range(spec.num_ranks)]
    scales = input_scales(spec)
    for value in spec.inputs:
        scale = scales[value.name]
        dtype = TORCH_DTYPES[value.dtype]
        whole = (torch.randn(value.shape, generator=generator) * scale).to(dtype)
        for rank, parts in enumerate(ranks):
            match value.placement:
                case Replicate():
                    parts[value.name] = whole.clone()
                case Shard(dim):
                    parts[value.name] = whole.chunk(spec.num_ranks, dim)[rank].clone(
                        memory_format=torch.contiguous_format
                    )
                case Partial():
                    parts[value.name] = (torch.randn(value.shape, generator=generator) * scale).to(dtype)
    return ranks


def expected(spec: BoundSpec, ranks: list[dict[str, torch.Tensor]]) -> list[tuple[torch.Tensor, ...]]:
    """Outputs of every rank in float64, from the local inputs of all ranks."""
    held: dict[str, list[torch.Tensor]] = {
        value.name: [parts[value.name].double() for parts in ranks] for value in spec.inputs
    }
    with one_thread():
        for node in spec.nodes:
            held[node.output.name] = _apply(spec, node, [held[name] for name in node.inputs])
    return [tuple(held[name][rank] for name in spec.outputs) for rank in range(spec.num_ranks)]


def _apply(spec: BoundSpec, node: BoundNode, operands: list[list[torch.Tensor]]) -> list[torch.Tensor]:
    ranks = range(spec.num_ranks)
    match node.operation:
        case Matmul(transposed):
            rights = [right.T if transposed else right for right in operands[1]]
            return [operands[0][rank] @ rights[rank] for rank in ranks]
        case Elementwise(name):
            pointwise = _ELEMENTWISE[name]
            return [pointwise(*(operand[rank] for operand in operands)) for rank in ranks]
        case AllGather(dim):
            whole = torch.cat(operands[0], dim)
            return [whole for _ in ranks]
        case ReduceScatter(dim):
            parts = torch.stack(operands[0]).sum(0).chunk(spec.num_ranks, dim)
            return [parts[rank] for rank in ranks]
        case AllReduce():
            total = torch.stack(operands[0]).sum(0)
            return [total for _ in ranks]
        case SendRecv(by):
            return [operands[0][(rank - by) % spec.num_ranks] for rank in ranks]
        case UserOp():
            theirs = user_reference(node.operation)
            return [theirs(*(operand[rank] for operand in operands)) for rank in ranks]


def user_reference(op: UserOp) -> Callable[..., torch.Tensor]:
    """The torch reference of a user's op, from its text. Raises NoReference if the op was declared without one."""
    if not op.reference:
        raise NoReference(name=op.name)
    scope: dict[str, object] = {"torch": torch}
    exec(op.reference, scope)
    names = [name for name, value in scope.items() if callable(value) and name != "torch"]
    function: Callable[..., torch.Tensor] = scope[names[-1]]  # type: ignore[assignment]
    return function


def poison(tensors: Iterable[torch.Tensor]) -> None:
    """Fill floating-point tensors with nan: what no program writes must not look like a result."""
    for tensor in tensors:
        if tensor.is_floating_point():
            tensor.fill_(math.nan)


def kept(stream: Stream, outputs: Iterable[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Copies of `outputs` made on `stream`, behind the call: as their reader does, before the next call may reuse them."""
    copies = []
    for tensor in outputs:
        copies.append(torch.full_like(tensor, math.nan) if tensor.is_floating_point() else torch.empty_like(tensor))
        stream.copy(copies[-1], tensor)
    return tuple(copies)


def relative_error(result: torch.Tensor, wanted: torch.Tensor) -> float:
    """Frobenius norm of the difference over that of `wanted`; infinite for nan or another shape."""
    if tuple(result.shape) != tuple(wanted.shape):
        return math.inf
    error = (result.double() - wanted).norm() / wanted.norm().clamp_min(1e-30)
    return math.inf if torch.isnan(error) else float(error)


def tolerance(spec: BoundSpec) -> float:
    """Relative error that rounding to the spec's dtype explains."""
    return max(TOLERANCES[value.dtype] for value in spec.inputs)
