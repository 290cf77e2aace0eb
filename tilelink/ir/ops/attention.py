"""Attention: a fold over keys and values, whose state is carried from tile to tile."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import sympy

from tilelink.errors import AttentionPlacement, BadAttention, BadShape
from tilelink.ir.location import Location
from tilelink.ir.ops.op import Indices, Inferred, Op, text, with_sizes
from tilelink.ir.placement import Placement, Replicate, Shard
from tilelink.ir.value import BoundValue, Value

BATCH, TOKENS, HEADS, WIDTH = range(4)  # dimensions of queries, keys and values
_WIDTHS = (16, 32, 64, 128, 256)  # of a head: extents of tiles are powers of two

_WIDEST_OF_LIBRARY = 128  # head, of cuDNN on all GPUs

_RULES: dict[tuple[Placement, Placement], Placement] = {
    (Replicate(), Replicate()): Replicate(),
    (Shard(TOKENS), Replicate()): Shard(TOKENS),
    (Shard(HEADS), Shard(HEADS)): Shard(HEADS),
    (Shard(BATCH), Shard(BATCH)): Shard(BATCH),
}


@dataclass(frozen=True, slots=True)
class Attention(Op):
    """Queries [B, S, Q, D] over keys and values [B, T, G, D]: of each query the mean of the values by the softmax of its scores.
    Q is a multiple of G: heads of queries share a head of keys. Scores and sums are in fp32.

    `causal`: query i sees keys up to i. `window`: it sees so many of the last ones, itself included, 0 for all. `soft_cap`:
    scores become soft_cap * tanh(score / soft_cap), 0 for none. `scale` of scores; 0 for 1 / sqrt(D). `zigzag`: tokens of all
    tensors are cut into two blocks for each rank, of which rank r has number r and the last but r.
    """

    word: ClassVar[str] = "attention"
    most_dims: ClassVar[int] = 4
    causal: bool = False
    window: int = 0
    soft_cap: float = 0.0
    scale: sympy.Expr | float = 0.0
    zigzag: bool = False

    def infer(self, operands: Sequence[Value], location: Location) -> Inferred:
        q, k, v = operands
        for value in operands:
            if len(value.shape) != 4:
                what = f"attention operand {value.name}"
                raise BadShape(location, what=what, rank=len(value.shape), shape=text(value.shape), legal="4")
        self._check_shapes(q, k, v, location)
        placement = _RULES.get((q.placement, k.placement))
        if placement is None or k.placement != v.placement:
            given = ", ".join(f"{one.name} is {one.placement}" for one in operands)
            legal = "; ".join(f"{a} over {b} -> {c}" for (a, b), c in _RULES.items())
            raise AttentionPlacement(location, given=given, legal=legal)
        return q.shape, placement

    def _check_shapes(self, q: Value, k: Value, v: Value, location: Location) -> None:
        if any(_differ(a, b) for a, b in zip(k.shape, v.shape, strict=True)):
            reason = f"{k.name} is [{text(k.shape)}] and {v.name} is [{text(v.shape)}]"
            raise BadAttention(location, reason=reason, legal="Keys and values have one shape.")
        for dim, what in ((BATCH, "sequences"), (WIDTH, "elements of a head")):
            if _differ(q.shape[dim], k.shape[dim]):
                reason = f"{q.name} has {q.shape[dim]} {what}, and {k.name} has {k.shape[dim]}"
                raise BadAttention(location, reason=reason, legal=f"Queries and keys have as many {what}.")
        if (self.causal or self.window) and _differ(q.shape[TOKENS], k.shape[TOKENS]):
            reason = f"{q.name} has {q.shape[TOKENS]} tokens, and {k.name} has {k.shape[TOKENS]}"
            legal = "With causal or window, query i and key i are of the same token: there are as many of both."
            raise BadAttention(location, reason=reason, legal=legal)
        if self.zigzag and (not self.causal or self.window or q.placement != Shard(TOKENS)):
            reason = f"zigzag=True with causal={self.causal}, window={self.window}, and {q.name} is {q.placement}"
            legal = "It balances a causal mask without a window, where each rank has queries of its own: Shard(1)."
            raise BadAttention(location, reason=reason, legal=legal)

    def bound(self, operands: Sequence[BoundValue], sizes: Mapping[str, int], location: Location) -> Self:
        queries, keys, _ = operands
        legal = "Other shapes are computed by several operators, or by a library."
        for reason in _why_not(queries.shape, keys.shape, queries.placement):
            raise BadAttention(location, reason=reason, legal=legal)
        ranks = queries.shape[TOKENS] // queries.local[TOKENS]
        if self.zigzag and queries.shape[TOKENS] % (2 * ranks):
            reason = f"{queries.shape[TOKENS]} tokens are not two blocks for each of {ranks} ranks"
            raise BadAttention(location, reason=reason, legal=f"zigzag=True takes a multiple of {2 * ranks} tokens.")
        scale = float(with_sizes(self.scale, sizes)) if isinstance(self.scale, sympy.Expr) else self.scale
        return replace(self, scale=scale or queries.shape[WIDTH] ** -0.5)


@dataclass(frozen=True, slots=True)
class Attend(Op):
    """`Attention` as it is computed, on matrices: queries [B * S, Q * D] over keys and values [B * T, G * D] of a rank. No user
    writes it. `apart`: queries of a rank lie behind those of lower ranks. Keys lie in so many `parts`, each of which has
    some tokens of all `sequences`; if they are `zigzag`, two blocks of them, one of the first ones and one of the last ones.
    `logs`: the value [B * S, Q] with the logarithms of the sums of weights, if anybody needs them, of base e or of 2."""

    word: ClassVar[str] = "attention"
    causal: bool
    window: int
    soft_cap: float
    scale: float
    heads: int
    shared: int  # heads of queries that share a head of keys
    width: int  # of a head
    apart: bool
    sequences: int
    parts: int
    zigzag: bool = False
    logs: str = ""
    base2: bool = False

    @property
    def in_library(self) -> bool:
        """cuDNN has neither windows, soft caps nor these blocks, and its logarithms are natural."""
        plain = not (self.window or self.soft_cap or self.zigzag or (self.logs and self.base2))
        return plain and self.width <= _WIDEST_OF_LIBRARY

    def infer(self, operands: Sequence[Value], location: Location) -> Inferred:
        return operands[0].shape, operands[0].placement

    def indices(self, shapes: Sequence[tuple[int, ...]]) -> Indices:
        return (("m", "n"), ("k", "d"), ("k", "d")), ("m", "n")

    def reach(self, tokens: int, ranks: int) -> int:
        """How many of the ranks before it a rank sees keys of, where each has so many tokens of a sequence, queries and keys."""
        return min(ranks - 1, max(1, -(-(self.window - 1) // tokens))) if self.window else ranks - 1

    @property
    def log2_scale(self) -> float:
        """Of scores whose exponentials are of 2."""
        return self.scale * math.log2(math.e)


def _why_not(queries: tuple[int, ...], keys: tuple[int, ...], placement: Placement) -> Iterator[str]:
    """Why there is no attention of such sizes."""
    if queries[HEADS] % keys[HEADS]:
        yield f"{queries[HEADS]} heads of queries do not share {keys[HEADS]} heads of keys evenly"
    if queries[WIDTH] not in _WIDTHS:
        legal = ", ".join(map(str, _WIDTHS))
        yield f"a head has {queries[WIDTH]} elements; tiles have one head, which is of {legal}"


def _differ(one: sympy.Expr | int, other: sympy.Expr | int) -> bool:
    return bool(sympy.simplify(one - other) != 0)
