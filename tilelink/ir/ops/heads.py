"""Heads as dimensions of their own, or side by side in the columns of a matrix: no element moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import sympy

from tilelink.errors import AttentionPlacement, BadAttention, BadShape
from tilelink.ir.location import Location
from tilelink.ir.ops.attention import BATCH, HEADS, TOKENS, WIDTH
from tilelink.ir.ops.op import Inferred, Op, Shape, text, with_sizes
from tilelink.ir.placement import Partial, Placement, Replicate, Shard
from tilelink.ir.value import BoundValue, Value

_ROWS, _COLUMNS = 0, 1  # of a matrix
# of tokens and heads, as rows and columns: sequences of a rank follow each other
_SIDE_BY_SIDE: dict[Placement, Placement] = {
    Replicate(): Replicate(),
    Shard(BATCH): Shard(_ROWS),
    Shard(TOKENS): Shard(_ROWS),
    Shard(HEADS): Shard(_COLUMNS),
}


@dataclass(frozen=True, slots=True)
class Flatten(Op):
    """`[B, Q, D] -> [B, Q * D]`, or `[B, S, Q, D] -> [B * S, Q * D]`: heads side by side, as the projection behind attention
    takes them."""

    word: ClassVar[str] = "flatten"
    suffix: ClassVar[str] = "_flat"
    most_dims: ClassVar[int] = 4

    def infer(self, operands: Sequence[Value], location: Location) -> Inferred:
        (x,) = operands
        if len(x.shape) not in (3, 4):
            what = f"flatten operand {x.name}"
            raise BadShape(location, what=what, rank=len(x.shape), shape=text(x.shape), legal="3 or 4")
        heads = len(x.shape) - 2
        if x.placement == Partial() or x.placement == Shard(heads + 1):
            legal = f"Replicate(), Shard(0) to Shard({heads}): all_reduce or reduce_scatter comes first"
            raise AttentionPlacement(location, given=f"{x.name} is {x.placement}", legal=legal)
        *rows, heads_of, width = x.shape
        if len(rows) == 1:
            return (rows[0], heads_of * width), x.placement
        return (rows[0] * rows[1], heads_of * width), _SIDE_BY_SIDE[x.placement]

    def bound(self, operands: Sequence[BoundValue], sizes: Mapping[str, int], location: Location) -> Self:
        (x,) = operands
        if len(x.shape) == 4 and x.placement == Shard(TOKENS) and x.shape[BATCH] != 1:
            reason = f"ranks have some tokens of each of the {x.shape[BATCH]} sequences of {x.name}: no rows behind each other"
            legal = "One sequence; or placements Replicate(), Shard(0) and Shard(2)."
            raise BadAttention(location, reason=reason, legal=legal)
        return self


@dataclass(frozen=True, slots=True)
class Unflatten(Op):
    """`[B * S, Q * D] -> [B, S, Q, D]` of `shape`: the columns of a matrix as heads, as attention takes them. Sharded columns
    become sharded heads, sharded rows sequences; or tokens, if there is one sequence: B is the number 1."""

    word: ClassVar[str] = "unflatten"
    suffix: ClassVar[str] = "_heads"
    shape: Shape | tuple[int, ...]

    def expressions(self) -> tuple[sympy.Expr, ...]:
        return tuple(sympy.sympify(one) for one in self.shape)

    def infer(self, operands: Sequence[Value], location: Location) -> Inferred:
        (x,) = operands
        shape = self.expressions()
        if len(x.shape) != 2:
            raise BadShape(
                location, what=f"unflatten operand {x.name}", rank=len(x.shape), shape=text(x.shape), legal="2"
            )
        if x.placement == Partial():
            legal = "Replicate(), Shard(0), Shard(1): all_reduce or reduce_scatter comes first"
            raise AttentionPlacement(location, given=f"{x.name} is {x.placement}", legal=legal)
        matrix = shape[BATCH] * shape[TOKENS], shape[HEADS] * shape[WIDTH]
        if any(sympy.simplify(a - b) != 0 for a, b in zip(x.shape, matrix, strict=True)):
            reason = f"{x.name} is [{text(x.shape)}], which is not [{text(shape)}] as [{text(matrix)}]"
            raise BadAttention(location, reason=reason, legal="[B * S, Q * D] as [B, S, Q, D].")
        return shape, self._placement(x.placement, shape)

    def _placement(self, placement: Placement, shape: Shape) -> Placement:
        if not isinstance(placement, Shard):
            return placement
        if placement == Shard(_COLUMNS):
            return Shard(HEADS)
        return Shard(TOKENS) if shape[BATCH] == 1 else Shard(BATCH)

    def bound(self, operands: Sequence[BoundValue], sizes: Mapping[str, int], location: Location) -> Self:
        return replace(self, shape=tuple(int(with_sizes(one, sizes)) for one in self.expressions()))


Heads = Flatten | Unflatten
