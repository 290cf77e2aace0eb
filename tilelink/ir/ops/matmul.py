"""The matmul."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import sympy

from tilelink.errors import BadShape, MatmulMismatch, MatmulPlacement
from tilelink.ir.location import Location
from tilelink.ir.ops.op import Indices, Inferred, Op, text
from tilelink.ir.placement import Partial, Placement, Replicate, Shard
from tilelink.ir.value import Value

_RULES: dict[tuple[Placement, Placement], Placement] = {
    (Replicate(), Replicate()): Replicate(),
    (Shard(0), Replicate()): Shard(0),
    (Replicate(), Shard(1)): Shard(1),
    (Shard(1), Shard(0)): Partial(),
    (Partial(), Replicate()): Partial(),
    (Replicate(), Partial()): Partial(),
}


@dataclass(frozen=True, slots=True)
class Matmul(Op):
    """`[M, K] @ [K, N] -> [M, N]`, accumulated in fp32. With `transposed` the right operand lies as [N, K], row after row along
    the contracted dimension, as the weights of `torch.nn.Linear` do."""

    word: ClassVar[str] = "matmul"
    in_library: ClassVar[bool] = True
    transposed: bool = False

    def infer(self, operands: Sequence[Value], location: Location) -> Inferred:
        left, right = operands
        right = _transposed(right) if self.transposed else right
        for value in (left, right):
            if len(value.shape) != 2:
                what = f"matmul operand {value.name}"
                raise BadShape(location, what=what, rank=len(value.shape), shape=text(value.shape), legal="2")
        if sympy.simplify(left.shape[1] - right.shape[0]) != 0:
            shapes = {"left_shape": text(left.shape), "right_shape": text(right.shape)}
            inner = {"left_k": left.shape[1], "right_k": right.shape[0]}
            raise MatmulMismatch(location, left=left.name, right=right.name, **shapes, **inner)
        placement = _RULES.get((left.placement, right.placement))
        if placement is None:
            placements = {"left_placement": left.placement, "right_placement": right.placement}
            why = _why_not(left.placement, right.placement)
            legal = "; ".join(f"{a} @ {b} -> {c}" for (a, b), c in _RULES.items())
            raise MatmulPlacement(location, left=left.name, right=right.name, **placements, reason=why, legal=legal)
        return (left.shape[0], right.shape[1]), placement

    def indices(self, shapes: Sequence[tuple[int, ...]]) -> Indices:
        return (("m", "k"), ("n", "k") if self.transposed else ("k", "n")), ("m", "n")


def _transposed(value: Value) -> Value:
    """As it takes part in a matmul: [K, N]."""
    placement = Shard(1 - value.placement.dim) if isinstance(value.placement, Shard) else value.placement
    return replace(value, name=f"{value.name}.T", shape=value.shape[::-1], placement=placement)


def _why_not(left: Placement, right: Placement) -> str:
    if Partial() in (left, right):
        return "a Partial operand must be resolved first unless the other one is replicated"
    if (left, right) == (Shard(0), Shard(1)):
        return "each rank has other rows and other columns, so most of the product belongs to no rank; all_gather one of them"
    return "the contracted dimension is sharded on one side only"
