"""Shape and placement of each operation's result, from those of its operands; the errors say what would be legal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import sympy

from tilelink.errors import (
    BadDim,
    BadShape,
    BadShift,
    BadUserOp,
    ElementwiseMismatch,
    ElementwisePlacement,
    MatmulMismatch,
    MatmulPlacement,
    NothingToGather,
    NothingToReduce,
    NothingToSend,
)
from tilelink.ir.location import Location
from tilelink.ir.placement import Partial, Placement, Replicate, Shard
from tilelink.ir.spec import AllGather, AllReduce, Elementwise, Matmul, Operation, ReduceScatter, SendRecv, Value
from tilelink.ir.user_op import UserOp

Shape = tuple[sympy.Expr, ...]
Inferred = tuple[Shape, Placement]

_MATMUL_RULES: dict[tuple[Placement, Placement], Placement] = {
    (Replicate(), Replicate()): Replicate(),
    (Shard(0), Replicate()): Shard(0),
    (Replicate(), Shard(1)): Shard(1),
    (Shard(1), Shard(0)): Partial(),
    (Partial(), Replicate()): Partial(),
    (Replicate(), Partial()): Partial(),
}


def infer(operation: Operation, operands: Sequence[Value], location: Location) -> Inferred:
    """Shape and placement of `operation(*operands)`; raises the error of the first rule it breaks."""
    match operation:
        case Matmul(transposed):
            right = _transposed(operands[1]) if transposed else operands[1]
            return _matmul(operands[0], right, location)
        case Elementwise(function):
            return _elementwise(function, operands, location)
        case AllGather(dim):
            return _all_gather(operands[0], dim, location)
        case ReduceScatter(dim):
            _check_dim("reduce_scatter", operands[0], dim, location)
            return _reduce(operands[0], "reduce_scatter", dim, location)
        case AllReduce():
            return _reduce(operands[0], "all_reduce", None, location)
        case SendRecv(by):
            return _send_recv(operands[0], by, location)
        case UserOp():
            return _user_op(operation, operands, location)


def text(shape: Sequence[object]) -> str:
    return ", ".join(map(str, shape))


def _matmul(left: Value, right: Value, location: Location) -> Inferred:
    for value in (left, right):
        if len(value.shape) != 2:
            what = f"matmul operand {value.name}"
            raise BadShape(location, what=what, rank=len(value.shape), shape=text(value.shape), legal="2")
    if sympy.simplify(left.shape[1] - right.shape[0]) != 0:
        raise MatmulMismatch(
            location,
            left=left.name,
            left_shape=text(left.shape),
            right=right.name,
            right_shape=text(right.shape),
            left_k=left.shape[1],
            right_k=right.shape[0],
        )
    placement = _MATMUL_RULES.get((left.placement, right.placement))
    if placement is None:
        raise MatmulPlacement(
            location,
            left=left.name,
            left_placement=left.placement,
            right=right.name,
            right_placement=right.placement,
            reason=_why_not(left.placement, right.placement),
            legal="; ".join(f"{a} @ {b} -> {c}" for (a, b), c in _MATMUL_RULES.items()),
        )
    return (left.shape[0], right.shape[1]), placement


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


def _elementwise(function: str, operands: Sequence[Value], location: Location) -> Inferred:
    if len(operands) == 1:
        value = operands[0]
        if isinstance(value.placement, Partial):
            raise ElementwisePlacement(
                location,
                function=function,
                placements=f"{value.name} (Partial())",
                reason="it is not linear, so summands cannot be passed through it",
                legal="Resolve the operand first with reduce_scatter(…, dim) or all_reduce(…).",
            )
        return value.shape, value.placement
    left, right = operands
    if left.shape != right.shape and not _broadcasts(left.shape, right.shape):
        if _broadcasts(right.shape, left.shape):
            left, right = right, left
        else:
            raise ElementwiseMismatch(
                location, function=function, left_shape=text(left.shape), right_shape=text(right.shape)
            )
    placement = _binary_placement(function, left, right)
    if placement is None:
        raise ElementwisePlacement(
            location,
            function=function,
            placements=f"{left.name} ({left.placement}) and {right.name} ({right.placement})",
            reason="each rank would combine parts that do not belong together",
            legal="Legal: equal placements; Shard(1) with a row that is Shard of its only dimension; Shard(0) with a "
            "replicated row; Partial + Partial; Partial * Replicate.",
        )
    return left.shape, placement


def _broadcasts(shape: Shape, row: Shape) -> bool:
    """Whether `row` is `(N,)` or `(1, N)` below `shape` `(M, N)`."""
    return len(shape) == 2 and row[-1] == shape[-1] and (len(row) == 1 or row[0] == 1)


def _binary_placement(function: str, left: Value, right: Value) -> Placement | None:
    a, b = left.placement, right.placement
    if Partial() in (a, b):
        if function == "add":
            return Partial() if a == b else None
        return Partial() if a != b and Replicate() in (a, b) else None
    if len(right.shape) < len(left.shape) and isinstance(b, Shard):
        b = Shard(1)  # the only dimension of a row lies under the columns
    if left.shape != right.shape and isinstance(a, Shard) and a.dim == 0:
        return a if b == Replicate() else None  # every rank needs the whole row
    return a if a == b else None


def _all_gather(value: Value, dim: int, location: Location) -> Inferred:
    _check_dim("all_gather", value, dim, location)
    if value.placement != Shard(dim):
        legal = f"dim={value.placement.dim}" if isinstance(value.placement, Shard) else "nothing, it is not sharded"
        raise NothingToGather(location, dim=dim, tensor=value.name, placement=value.placement, legal=legal)
    return value.shape, Replicate()


def _reduce(value: Value, collective: str, dim: int | None, location: Location) -> Inferred:
    if not isinstance(value.placement, Partial):
        hint = "use it as it is"
        if isinstance(value.placement, Shard):
            hint = f"to give every rank the whole of it use all_gather(…, dim={value.placement.dim})"
        raise NothingToReduce(
            location,
            collective=collective,
            tensor=value.name,
            placement=value.placement,
            legal=f"{value.name} is not: {hint}",
        )
    return value.shape, Replicate() if dim is None else Shard(dim)


def _send_recv(value: Value, by: int, location: Location) -> Inferred:
    if not isinstance(by, int) or isinstance(by, bool) or by == 0:
        reason = "every rank would send to itself" if by == 0 else "it is not an integer"
        raise BadShift(location, by=by, reason=reason, legal="an integer other than 0, such as by=1")
    match value.placement:
        case Shard():
            return value.shape, value.placement
        case Replicate():
            reason, legal = "every rank holds the same already", "use it as it is"
        case Partial():
            reason, legal = "summands that move from rank to rank add up to the same", "resolve it first"
    raise NothingToSend(location, by=by, tensor=value.name, placement=value.placement, reason=reason, legal=legal)


def _check_dim(collective: str, value: Value, dim: int, location: Location) -> None:
    if not isinstance(dim, int) or not 0 <= dim < len(value.shape):
        legal = ", ".join(str(d) for d in range(len(value.shape)))
        raise BadDim(location, collective=collective, dim=dim, tensor=value.name, shape=text(value.shape), legal=legal)


def _user_op(op: UserOp, operands: Sequence[Value], location: Location) -> Inferred:
    """Cut is an axis whose parts lie on the ranks: a written one that is tiled, or a reduced one that is summed over."""
    extents = _extents(op, operands, location)
    cut = _cut_axis(op, operands, location)
    summands = [(tensor, v) for v, (tensor, _) in zip(operands, op.reads, strict=True) if v.placement == Partial()]
    shape = tuple(extents[axis] for axis in op.writes)
    if not summands:
        return shape, Replicate() if not cut else Shard(op.writes.index(cut)) if cut in op.writes else Partial()
    tensor, value = summands[0]
    reason = f"{tensor!r} got {value.name}, which is Partial, "
    if tensor not in op.linear:
        reason += f"and it is not declared linear in {tensor!r}"
    elif cut:
        reason += f"and its axis {cut} is sharded: each rank would have a summand of a part"
    elif len(summands) > 1:
        reason += f"and so is {summands[1][1].name}: the result would lack the products of summands of other ranks"
    else:
        return shape, Partial()
    legal = f"Resolve {value.name} first, with reduce_scatter or all_reduce."
    raise BadUserOp(location, name=op.name, reason=reason, legal=legal)


def _extents(op: UserOp, operands: Sequence[Value], location: Location) -> dict[str, sympy.Expr]:
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


def _cut_axis(op: UserOp, operands: Sequence[Value], location: Location) -> str:
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
