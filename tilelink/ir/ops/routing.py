"""Operations by a routing: tokens go to experts, as a table that each call brings along says.

A routing has the expert of each token's j-th choice, [T, K], -1 where there is none. Rows by assignment have row t * K + j for
token t at its j-th expert.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import sympy

from tilelink.errors import BadRouting, BadShape, RoutedPlacement
from tilelink.ir.dtype import DTYPES
from tilelink.ir.location import Location
from tilelink.ir.ops.op import Indices, Inferred, Op, text, with_sizes
from tilelink.ir.placement import ByExpert, Partial, Placement, Replicate, Shard, share
from tilelink.ir.value import BoundValue, Value

MOST_CHOICES = 32  # experts of a token
IDS = "int32"


@dataclass(frozen=True, slots=True)
class Route(Op):
    """A routing from `ids`, [T, K] of int32: numbers outside of 0 .. num_experts - 1 choose no expert. Those but -1 are an
    error of the caller's, which the operator counts."""

    word: ClassVar[str] = "route"
    num_experts: sympy.Expr | int
    parts: int = 1  # of experts, of which the rank with that number has its own: others are none to it

    def own(self, rank: int) -> range:
        """Experts of a rank, of as many as are bound."""
        return share(int(self.num_experts), self.parts, rank if self.parts > 1 else 0)

    def dtype(self, operands: Sequence[Value], location: Location) -> str:
        (ids,) = operands
        if ids.dtype != IDS:
            reason = f"{ids.name} has {f'dtype {ids.dtype}' if ids.dtype else 'the dtype given to plan'}"
            raise BadRouting(location, op=self.word, reason=reason, legal=f'Declare it with dtype="{IDS}".')
        return IDS

    def infer(self, operands: Sequence[Value], location: Location) -> Inferred:
        (ids,) = operands
        if len(ids.shape) != 2:
            raise BadShape(location, what=f"ids {ids.name}", rank=len(ids.shape), shape=text(ids.shape), legal="2")
        if ids.placement not in (Replicate(), Shard(0)):
            given, legal = f"{ids.name} is {ids.placement}", "ids of all tokens on every rank, Replicate(), or Shard(0)"
            raise RoutedPlacement(location, op=self.word, given=given, legal=legal)
        return ids.shape, ids.placement

    def bound(self, operands: Sequence[BoundValue], sizes: Mapping[str, int], location: Location) -> Self:
        experts, choices = int(with_sizes(sympy.sympify(self.num_experts), sizes)), operands[0].shape[1]
        if experts < 1 or choices > MOST_CHOICES:
            reason = f"{experts} experts" if experts < 1 else f"{choices} experts a token"
            legal = f"There is 1 expert or more, and a token has {MOST_CHOICES} at most."
            raise BadRouting(location, op=self.word, reason=reason, legal=legal)
        return replace(self, num_experts=experts)


class _Routed(Op):
    """An operation of rows, by a routing that is its last operand."""

    __slots__ = ()

    def dtype(self, operands: Sequence[Value], location: Location) -> str:
        return self.floats(operands[:-1], location)

    @abstractmethod
    def placed(self, placements: tuple[Placement, ...]) -> Placement | None:
        """The placement of the result, by those of all operands but the routing; None if they do not go together."""

    def check(self, operands: Sequence[Value], legal: str, location: Location) -> Placement:
        *others, routing = operands
        placement = self.placed(tuple(one.placement for one in others))
        there = Shard(0) if _by_expert(others) else Replicate()
        if placement is None or routing.placement != there:
            given = ", ".join(f"{one.name} is {one.placement}" for one in operands)
            raise RoutedPlacement(location, op=self.word, given=given, legal=legal)
        return placement


@dataclass(frozen=True, slots=True)
class GroupedMatmul(_Routed):
    """Each row times the matrix of its expert: rows of tokens [T, H], or by assignment [T * K, H], times w [E, H, F] make
    [T * K, F] by assignment, accumulated in fp32. Rows of no expert are zeros."""

    word: ClassVar[str] = "grouped_matmul"
    most_dims: ClassVar[int] = 3
    num_experts: sympy.Expr | int

    def infer(self, operands: Sequence[Value], location: Location) -> Inferred:
        rows, weights, routing = operands
        for value, dims in ((rows, 2), (weights, 3)):
            if len(value.shape) != dims:
                what = f"{self.word} operand {value.name}"
                raise BadShape(location, what=what, rank=len(value.shape), shape=text(value.shape), legal=str(dims))
        tokens, choices = routing.shape
        if not _equal(rows.shape[0], tokens) and not _equal(rows.shape[0], tokens * choices):
            reason = f"{rows.name} has {rows.shape[0]} rows, and the routing is of {tokens} tokens with {choices} experts each"
            raise BadRouting(location, op=self.word, reason=reason, legal="Rows of tokens, or by assignment.")
        if not _equal(weights.shape[0], sympy.sympify(self.num_experts)):
            reason = f"{weights.name} has {weights.shape[0]} matrices, and the routing is to {self.num_experts} experts"
            raise BadRouting(location, op=self.word, reason=reason, legal="A matrix for each expert.")
        if not _equal(weights.shape[1], rows.shape[1]):
            reason = f"rows of {rows.name} have {rows.shape[1]} elements, and matrices of {weights.name} {weights.shape[1]} rows"
            raise BadRouting(location, op=self.word, reason=reason, legal="w is [experts, elements of a row, columns].")
        legal = "; ".join(f"{a} and {b} -> {c}" for (a, b), c in _GROUPED.items())
        return (tokens * choices, weights.shape[2]), self.check(operands, legal, location)

    def placed(self, placements: tuple[Placement, ...]) -> Placement | None:
        return _GROUPED.get((placements[0], placements[1]))

    def bound(self, operands: Sequence[BoundValue], sizes: Mapping[str, int], location: Location) -> Self:
        return replace(self, num_experts=int(with_sizes(sympy.sympify(self.num_experts), sizes)))

    def indices(self, shapes: Sequence[tuple[int, ...]]) -> Indices:
        return (("m", "k"), ("m", "k", "n")), ("m", "n")


_GROUPED: dict[tuple[Placement, Placement], Placement] = {
    (Replicate(), Replicate()): Replicate(),
    (Replicate(), Shard(2)): Shard(1),
    (Shard(1), Shard(1)): Partial(),
    (Partial(), Replicate()): Partial(),
    (ByExpert(), Shard(0)): ByExpert(),
}


@dataclass(frozen=True, slots=True)
class Dispatch(_Routed):
    """Rows of tokens [T, H] to the ranks of their experts, by assignment [T * K, H]."""

    word: ClassVar[str] = "dispatch"

    def infer(self, operands: Sequence[Value], location: Location) -> Inferred:
        rows, routing = operands
        if len(rows.shape) != 2:
            raise BadShape(location, what=f"rows {rows.name}", rank=len(rows.shape), shape=text(rows.shape), legal="2")
        tokens, choices = routing.shape
        if not _equal(rows.shape[0], tokens):
            reason = f"{rows.name} has {rows.shape[0]} rows, and the routing is of {tokens} tokens"
            raise BadRouting(location, op=self.word, reason=reason, legal="A row for each token.")
        if rows.placement != Shard(0) or routing.placement != Shard(0):
            given = f"{rows.name} is {rows.placement}, and ids are {routing.placement}"
            raise RoutedPlacement(location, op=self.word, given=given, legal="rows and ids Shard(0)")
        return (tokens * choices, rows.shape[1]), ByExpert()

    def placed(self, placements: tuple[Placement, ...]) -> Placement | None:
        return ByExpert()


@dataclass(frozen=True, slots=True)
class Spread(_Routed):
    """Rows of tokens [T, H] by assignment [T * K, H], for those of the experts of a rank. No user writes it: it is what readers
    of dispatched rows take, but for matmuls, which find rows of tokens themselves."""

    word: ClassVar[str] = "spread"

    def infer(self, operands: Sequence[Value], location: Location) -> Inferred:
        rows, routing = operands
        return (routing.shape[0] * routing.shape[1], rows.shape[1]), Partial()

    def placed(self, placements: tuple[Placement, ...]) -> Placement | None:
        return Partial()


@dataclass(frozen=True, slots=True)
class Return(_Routed):
    """Rows by assignment, each from the rank of its expert to that of its token. No user writes it: it is a way to combine."""

    word: ClassVar[str] = "return"

    def infer(self, operands: Sequence[Value], location: Location) -> Inferred:
        return operands[0].shape, Shard(0)

    def placed(self, placements: tuple[Placement, ...]) -> Placement | None:
        return Shard(0)


def _by_expert(operands: Sequence[Value]) -> bool:
    return any(isinstance(one.placement, ByExpert) for one in operands)


@dataclass(frozen=True, slots=True)
class Combine(_Routed):
    """Rows by assignment [T * K, H] back to tokens [T, H]: the sum of a token's rows, each times its weight, of those with an
    expert. It is added in fp32, in the order of the token's choices."""

    word: ClassVar[str] = "combine"

    def dtype(self, operands: Sequence[Value], location: Location) -> str:
        rows, weights, _ = operands
        self.floats((rows,), location)
        if weights.dtype and DTYPES[weights.dtype].integer:
            reason = f"weights {weights.name} are {weights.dtype}"
            raise BadRouting(
                location, op=self.word, reason=reason, legal='Weights are floating-point, such as dtype="fp32".'
            )
        return rows.dtype

    def infer(self, operands: Sequence[Value], location: Location) -> Inferred:
        rows, weights, routing = operands
        tokens, choices = routing.shape
        if len(rows.shape) != 2 or not _equal(rows.shape[0], tokens * choices):
            reason = f"{rows.name} is [{text(rows.shape)}], and the routing has {tokens} * {choices} assignments"
            raise BadRouting(
                location, op=self.word, reason=reason, legal="Rows by assignment, as grouped_matmul makes them."
            )
        if len(weights.shape) != 2 or not (_equal(weights.shape[0], tokens) and _equal(weights.shape[1], choices)):
            reason = f"weights {weights.name} are [{text(weights.shape)}], and the routing is [{tokens}, {choices}]"
            raise BadRouting(location, op=self.word, reason=reason, legal="A weight for each choice of each token.")
        legal = (
            "weights Replicate() with rows Replicate(), Shard(1) or Partial(); weights Shard(0) with rows ByExpert()"
        )
        return (tokens, rows.shape[1]), self.check(operands, legal, location)

    def placed(self, placements: tuple[Placement, ...]) -> Placement | None:
        rows, weights = placements
        if isinstance(rows, ByExpert):
            return Shard(0) if weights == Shard(0) else None
        return rows if weights == Replicate() and rows in (Replicate(), Shard(1), Partial()) else None

    def indices(self, shapes: Sequence[tuple[int, ...]]) -> Indices:
        return (("t", "n"), ("t", "j"), ("t", "j")), ("t", "n")


def _equal(one: sympy.Expr | int, other: sympy.Expr | int) -> bool:
    return bool(sympy.simplify(one - other) == 0)
