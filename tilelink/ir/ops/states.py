"""States of a softmax that ranks merge: attention of one query a sequence over sharded keys, and states that the caller has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import sympy

from tilelink.errors import AttentionPlacement, BadAttention, BadShape
from tilelink.ir.location import Location
from tilelink.ir.ops.attention import Attention
from tilelink.ir.ops.op import Inferred, Op, text, with_sizes
from tilelink.ir.ops.user_fold import UserFold
from tilelink.ir.placement import Partial, Placement, Replicate, Shard
from tilelink.ir.value import BoundValue, Value

_WIDTHS = (16, 32, 64, 128, 256)  # of a head: extents of tiles are powers of two


@dataclass(frozen=True, slots=True)
class DecodeAttention(Op):
    """Queries [B, Q, D], one of each sequence, over keys and values [B, S, G, D] whose tokens are sharded: of each query the mean
    of the values by the softmax of its scores. Each rank has a state of it, from its own tokens.

    With `lengths` [B] sequence b has so many tokens of all ranks, and else S. With `pages` [B, P] keys and values are pages
    [N, L, G, D] of a rank, and S = P * L: page p of a sequence is number pages[b, p] of the rank that has it. The query sees
    all tokens, or the last ones of a `window`; `soft_cap` and `scale` as of `Attention`.
    """

    word: ClassVar[str] = "attention"
    most_dims: ClassVar[int] = 4
    window: int
    soft_cap: float
    scale: sympy.Expr | float
    lengths: bool
    pages: bool

    def named(self, operands: Sequence[str]) -> dict[str, str]:
        """Operands by what they are."""
        words = ["q", "k", "v", *["lengths"] * self.lengths, *["pages"] * self.pages]
        return dict(zip(words, operands, strict=True))

    def dtype(self, operands: Sequence[Value], location: Location) -> str:
        for value in operands[3:]:
            if value.dtype != "int32":
                reason = f"{value.name} is {value.dtype or 'of the dtype of plan'}"
                raise BadAttention(location, reason=reason, legal="Lengths and pages are int32.")
        return self.floats(operands[:3], location)

    def infer(self, operands: Sequence[Value], location: Location) -> Inferred:
        q, k, v, *more = operands
        for value, dims in zip(operands, (3, 4, 4, *[1] * self.lengths, *[2] * self.pages), strict=True):
            if len(value.shape) != dims:
                what = f"attention operand {value.name}"
                raise BadShape(location, what=what, rank=len(value.shape), shape=text(value.shape), legal=str(dims))
        alike: list[tuple[Value, int, Value, int, str]] = [(k, dim, v, dim, "elements") for dim in range(4)]
        alike += [(q, 2, k, 3, "elements of a head")] + ([] if self.pages else [(q, 0, k, 0, "sequences")])
        alike += [(q, 0, one, 0, "sequences") for one in more]
        for one, a, other, b, what in alike:
            if sympy.simplify(one.shape[a] - other.shape[b]) != 0:
                reason = f"{one.name} has {one.shape[a]} {what} along dimension {a}, {other.name} {other.shape[b]}"
                raise BadAttention(location, reason=reason, legal="They are as many.")
        keys, pages = (Shard(0), [Shard(1)]) if self.pages else (Shard(1), [])
        wanted: list[Placement] = [Replicate(), keys, keys, *[Replicate()] * self.lengths, *pages]
        if [one.placement for one in operands] != wanted:
            given = ", ".join(f"{one.name} is {one.placement}" for one in operands)
            named = zip(("q", "k", "v", *[one.name for one in more]), wanted, strict=True)
            legal = f"for one query a sequence: {', '.join(f'{name} {one}' for name, one in named)} -> Partial()"
            raise AttentionPlacement(location, given=given, legal=legal)
        return q.shape, Partial()

    def bound(self, operands: Sequence[BoundValue], sizes: Mapping[str, int], location: Location) -> Self:
        (_, heads, width), keys = operands[0].shape, operands[1].shape[2]
        legal = "Other shapes are computed by several operators, or by a library."
        if heads % keys:
            reason = f"{heads} heads of queries do not share {keys} heads of keys evenly"
            raise BadAttention(location, reason=reason, legal=legal)
        if width not in _WIDTHS:
            reason = f"a head has {width} elements; tiles have one head, which is of {', '.join(map(str, _WIDTHS))}"
            raise BadAttention(location, reason=reason, legal=legal)
        if self.pages and (size := operands[1].shape[1]) & (size - 1):
            reason = f"a page has {size} tokens"
            raise BadAttention(location, reason=reason, legal="Pages have a power of two of them.")
        scale = float(with_sizes(self.scale, sizes)) if isinstance(self.scale, sympy.Expr) else self.scale
        return replace(self, scale=scale or width**-0.5)


@dataclass(frozen=True, slots=True)
class MergeStates(Op):
    """States of ranks: means [T, H, D] with the logarithms [T, H] of the sums of their weights, in fp32, of base e or 2. A rank
    with -inf has seen nothing, whatever its mean is."""

    word: ClassVar[str] = "merge_states"
    most_dims: ClassVar[int] = 3
    base2: bool

    def dtype(self, operands: Sequence[Value], location: Location) -> str:
        means, logs = operands
        if logs.dtype != "fp32":
            reason = f"{logs.name} is {logs.dtype or 'of the dtype of plan'}"
            raise BadAttention(location, reason=reason, legal='Logarithms of sums are fp32: dtype="fp32".')
        return self.floats([means], location)

    def infer(self, operands: Sequence[Value], location: Location) -> Inferred:
        means, logs = operands
        for value, dims in ((means, 3), (logs, 2)):
            if len(value.shape) != dims:
                what = f"merge_states operand {value.name}"
                raise BadShape(location, what=what, rank=len(value.shape), shape=text(value.shape), legal=str(dims))
        if any(sympy.simplify(a - b) != 0 for a, b in zip(means.shape, logs.shape, strict=False)):
            reason = f"{means.name} is [{text(means.shape)}] and {logs.name} is [{text(logs.shape)}]"
            raise BadAttention(location, reason=reason, legal="There is one logarithm for each mean.")
        if {means.placement, logs.placement} != {Partial()}:
            given = ", ".join(f"{one.name} is {one.placement}" for one in operands)
            raise AttentionPlacement(location, given=given, legal="Partial() and Partial() -> Partial()")
        return means.shape, Partial()

    def bound(self, operands: Sequence[BoundValue], sizes: Mapping[str, int], location: Location) -> Self:
        width = operands[0].shape[2]
        if width not in _WIDTHS:
            reason = f"a head has {width} elements"
            raise BadAttention(location, reason=reason, legal=f"A head has {', '.join(map(str, _WIDTHS))} of them.")
        return self


StatesOp = DecodeAttention | MergeStates


@dataclass(frozen=True, slots=True)
class LogWeights(Op):
    """Of the states that `how` makes of its operands the logarithms [B, Q] or [B, S, Q] of the sums of their weights, in fp32, of
    base e or 2; -inf where nothing has been seen. They are the second part of a state, of which the means are the first one.
    Where ranks have a state each, both are reduced alike."""

    word: ClassVar[str] = "log_weights"
    suffix: ClassVar[str] = "_lse"
    most_dims: ClassVar[int] = 4
    how: StatesOp | Attention
    base2: bool

    def dtype(self, operands: Sequence[Value], location: Location) -> str:
        self.how.dtype(operands, location)
        return "fp32"

    def infer(self, operands: Sequence[Value], location: Location) -> Inferred:
        shape, placement = self.how.infer(operands, location)
        return shape[:-1], placement

    def expressions(self) -> tuple[sympy.Expr, ...]:
        return self.how.expressions()

    def bound(self, operands: Sequence[BoundValue], sizes: Mapping[str, int], location: Location) -> Self:
        return replace(self, how=self.how.bound(operands, sizes, location))


@dataclass(frozen=True, slots=True)
class Merged(Op):
    """The states that ranks have of `how`, merged: all of them on every rank, or the part along `dim` of [B, Q, D] that is its
    own. No user writes it: it is what all_reduce and reduce_scatter make of a state. `shape`: B, Q, D. Of keys and values, which
    are matrices here, `keys` heads and so many `tokens` of a sequence are on a rank; `page`: those of a page, 0 if they lie one
    behind the other. `flat`: the result is a matrix [B, Q * D]. `logs`: the value [B, Q] with the logarithms of the sums of all
    weights, if anybody needs them, of base e or of 2.

    Of a fold of the user's a row is a head of one element, and elements of the axis that it folds over are tokens. Its result
    `how.number` is the value that this makes, `others` are more. `alone`: a rank has all of that axis, and no state travels.
    `element_bytes`: of its operands, for an element of a row; elements of a row lie `apart`, where those of a column follow each
    other."""

    word: ClassVar[str] = "merge"
    most_dims: ClassVar[int] = 4
    how: StatesOp | UserFold
    dim: int | None
    shape: tuple[int, int, int]
    flat: bool = False
    keys: int = 0
    tokens: int = 0
    page: int = 0
    logs: str = ""
    base2: bool = False
    others: tuple[tuple[str, int], ...] = ()
    alone: bool = False
    element_bytes: int = 0
    apart: bool = False

    @property
    def made(self) -> tuple[str, ...]:
        """Values that it makes beside its own."""
        return (*([self.logs] if self.logs else []), *(name for name, _ in self.others))

    def infer(self, operands: Sequence[Value], location: Location) -> Inferred:
        return operands[0].shape, Replicate() if self.dim is None else Shard(self.dim)
