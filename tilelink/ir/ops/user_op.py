"""A user's own tile op, as `tilelink.ir.user_op` makes one of a declaration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sympy

from tilelink.errors import BadUserOp
from tilelink.ir.location import Location
from tilelink.ir.ops.op import Indices, Inferred, Op, text
from tilelink.ir.placement import Partial, Replicate, Shard
from tilelink.ir.value import Value

WHOLE = "_whole"  # end of the name of the axis that stands for all of a written one


@dataclass(frozen=True, slots=True)
class UserOp(Op):
    """A registered tile op. All fields are text, so that a schedule that uses it can be printed, stored and compared."""

    name: str
    parameters: tuple[str, ...]  # of the body, in order
    reads: tuple[tuple[str, tuple[str, ...]], ...]  # tensor parameter -> axis of each dimension
    writes: tuple[str, ...]
    body: str  # source of the @triton.jit function and of those it calls
    reference: str  # source of a torch expression or function of the tensors, empty if none was given
    whole: tuple[str, ...]  # written axes of which a tile may read all; the others are tiled
    sums: tuple[str, ...]  # reduced axes over which the result is a sum
    linear: tuple[str, ...]  # tensor parameters in which it is linear

    def read_index(self, tensor: str) -> tuple[str, ...]:
        """Axes that a tile reads of `tensor`: where it reads all of a written axis, that is a reduced axis of its own."""
        return tuple(f"{axis}{WHOLE}" if axis in self.whole else axis for axis in dict(self.reads)[tensor])

    @property
    def word(self) -> str:
        return self.name

    def dtype(self, operands: Sequence[Value], location: Location) -> str:
        """That of its operands, beside which others may be fp32, as what folds make is."""
        return self.floats([one for one in operands if one.dtype != "fp32"] or operands, location)

    def infer(self, operands: Sequence[Value], location: Location) -> Inferred:
        """Cut is an axis whose parts lie on the ranks: a written one that is tiled, or a reduced one that is summed over."""
        extents = extents_of(self, operands, location)
        cut = cut_axis(self, operands, location)
        summands = [
            (tensor, v) for v, (tensor, _) in zip(operands, self.reads, strict=True) if v.placement == Partial()
        ]
        shape = tuple(extents[axis] for axis in self.writes)
        if not summands:
            return shape, Replicate() if not cut else Shard(self.writes.index(cut)) if cut in self.writes else Partial()
        tensor, value = summands[0]
        reason = f"{tensor!r} got {value.name}, which is Partial, "
        if tensor not in self.linear:
            reason += f"and it is not declared linear in {tensor!r}"
        elif cut:
            reason += f"and its axis {cut} is sharded: each rank would have a summand of a part"
        elif len(summands) > 1:
            reason += f"and so is {summands[1][1].name}: the result would lack the products of summands of other ranks"
        else:
            return shape, Partial()
        legal = f"Resolve {value.name} first, with reduce_scatter or all_reduce."
        raise BadUserOp(location, name=self.name, reason=reason, legal=legal)

    def indices(self, shapes: Sequence[tuple[int, ...]]) -> Indices:
        return tuple(self.read_index(tensor) for tensor, _ in self.reads), self.writes


def extents_of(op: UserOp, operands: Sequence[Value], location: Location) -> dict[str, sympy.Expr]:
    """Global extent of each axis."""
    extents: dict[str, sympy.Expr] = {}
    for value, (tensor, index) in zip(operands, op.reads, strict=True):
        if len(index) != len(value.shape):
            reason = f"{tensor!r} is declared with {len(index)} dimensions and got [{text(value.shape)}]"
            raise BadUserOp(location, name=op.name, reason=reason, legal="Pass a tensor of that many dimensions.")
        for axis, extent in zip(index, value.shape, strict=True):
            if sympy.simplify(extents.setdefault(axis, extent) - extent) != 0:
                reason = f"axis {axis} is {extents[axis]} in one tensor and {extent} in {tensor!r}"
                raise BadUserOp(location, name=op.name, reason=reason, legal="An axis has one extent.")
    return extents


def cut_axis(op: UserOp, operands: Sequence[Value], location: Location) -> str:
    """The axis that is sharded, empty if none is. All tensors that have it are cut along it, and the op allows it."""
    sharded: dict[str, bool] = {}
    gathers: dict[str, list[str]] = {}
    for value, (tensor, index) in zip(operands, op.reads, strict=True):
        for dim, axis in enumerate(index):
            is_sharded = value.placement == Shard(dim)
            if is_sharded:
                gathers.setdefault(axis, []).append(f"all_gather({value.name}, dim={dim})")
            if sharded.setdefault(axis, is_sharded) != is_sharded:
                reason = f"axis {axis} is sharded in one tensor and whole in {tensor!r}"
                legal = "Shard or gather all tensors along an axis alike."
                raise BadUserOp(location, name=op.name, reason=reason, legal=legal)
    if len(gathers) > 1:
        reason = f"its axes {', '.join(gathers)} are all sharded"
        legal = "At most one axis may be sharded; gather the others."
        raise BadUserOp(location, name=op.name, reason=reason, legal=legal)
    for axis, gather in gathers.items():
        written = axis in op.writes
        if axis in op.whole or (not written and axis not in op.sums):
            needs, when = "reduces over", "the result is a sum over {0}, declare sums=({0},)"
            if written:
                needs, when = "may need", "a tile reads along {0} only what it writes, declare tiled=({0},)"
            reason = f"axis {axis} is sharded, and a tile {needs} all of it"
            legal = f"Gather it first: {', '.join(gather)}. If {when.format(axis)}."
            raise BadUserOp(location, name=op.name, reason=reason, legal=legal)
    return next(iter(gathers), "")
