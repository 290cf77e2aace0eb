"""Slices: consecutive elements along one dimension."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import sympy

from tilelink.errors import SliceOfShards, SliceOutOfRange
from tilelink.ir.location import Location
from tilelink.ir.ops.op import Inferred, Op, text, with_sizes
from tilelink.ir.placement import Shard
from tilelink.ir.value import BoundValue, Value


@dataclass(frozen=True, slots=True)
class Slice(Op):
    """The elements from `start` up to `stop` along `dim` of its operand, which is not sharded there: nothing moves between
    ranks. The bounds are expressions of sizes in a Spec, integers in a BoundSpec."""

    word: ClassVar[str] = "slice"
    dim: int
    start: int | sympy.Expr
    stop: int | sympy.Expr

    def result(self, operand: Value) -> str:
        return f"{operand.name}_{'rows' if self.dim < len(operand.shape) - 1 else 'cols'}"

    def infer(self, operands: Sequence[Value], location: Location) -> Inferred:
        (value,), dim = operands, self.dim
        if value.placement == Shard(dim):
            raise SliceOfShards(location, tensor=value.name, shape=text(value.shape), dim=dim)
        extent = sympy.simplify(self.stop - self.start)
        return (*value.shape[:dim], extent, *value.shape[dim + 1 :]), value.placement

    def bound(self, operands: Sequence[BoundValue], sizes: Mapping[str, int], location: Location) -> Slice:
        first, end = (with_sizes(sympy.sympify(bound), sizes) for bound in (self.start, self.stop))
        if not first.is_integer or first < 0 or end > operands[0].shape[self.dim]:
            facts = {"start": first, "stop": end, "extent": operands[0].shape[self.dim]}
            raise SliceOutOfRange(location, tensor=operands[0].name, dim=self.dim, **facts)
        return Slice(self.dim, int(first), int(end))
