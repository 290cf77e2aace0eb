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
    SliceOfShards,
)
from tilelink.ir.functions import FUNCTIONS, with_constants
from tilelink.ir.location import Location
from tilelink.ir.placement import Partial, Placement, Replicate, Shard
from tilelink.ir.spec import (
    AllGather,
    AllReduce,
    Elementwise,
    Matmul,
    Operation,
    ReduceScatter,
    SendRecv,
    Slice,
    Value,
)
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
        case Elementwise():
            return _elementwise(operation, operands, location)
        case Slice(dim, start, stop):
            return _slice(operands[0], dim, sympy.simplify(stop - start), location)
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


def _elementwise(operation: Elementwise, operands: Sequence[Value], location: Location) -> Inferred:
    function = operation.function
    shape = operands[0].shape
    for value in operands[1:]:
        found = _broadcast(shape, value.shape)
        if found is None:
            raise ElementwiseMismatch(
                location, function=function, left_shape=text(shape), right_shape=text(value.shape)
            )
        shape = found
    if any(isinstance(value.placement, Partial) for value in operands):
        return shape, _of_summands(operation, operands, location)
    placement: Placement = Replicate()
    for value in operands:
        for dim, extent in enumerate(value.shape):
            at = dim + len(shape) - len(value.shape)
            if value.placement == Shard(dim) and extent == shape[at]:
                placement = Shard(at)
    if any(_in_result(value, shape, placement) != placement for value in operands):
        raise ElementwisePlacement(
            location,
            function=function,
            placements=_placements(operands),
            reason="each rank would combine parts that do not belong together",
            legal="Legal: equal placements; Shard(1) with a row that is Shard of its only dimension, or a replicated column "
            "(M, 1); Shard(0) with a replicated row, or a column that is Shard(0); Partial + Partial; Partial * Replicate.",
        )
    return shape, placement


def _broadcast(left: Shape, right: Shape) -> Shape | None:
    """The shape of an elementwise result, by torch's rule: sizes agree from the last one on, or one of them is 1."""
    few, many = sorted((left, right), key=len)
    shape = []
    for a, b in zip((sympy.Integer(1),) * (len(many) - len(few)) + few, many, strict=True):
        if a != b and 1 not in (a, b) and sympy.simplify(a - b) != 0:
            return None
        shape.append(b if a == 1 else a)
    return tuple(shape)


def _in_result(value: Value, shape: Shape, placement: Placement) -> Placement:
    """The placement of an elementwise result of `shape`, of which one operand has `placement`, as far as `value` agrees."""
    offset = len(shape) - len(value.shape)
    if isinstance(value.placement, Shard):
        return Shard(value.placement.dim + offset)
    if not isinstance(placement, Shard):
        return value.placement
    dim = placement.dim - offset
    repeated = dim < 0 or value.shape[dim] != shape[placement.dim]
    return placement if repeated else value.placement  # what is the same for all of an axis is so for each part of it


def _of_summands(operation: Elementwise, operands: Sequence[Value], location: Location) -> Placement:
    """Partial, where the function is linear in the operands that are, and each rank has the whole of the others."""
    function, constants = operation.function, (operation.left, operation.right)
    kinds = with_constants(tuple(value.placement for value in operands), *constants)
    where = tuple(isinstance(kind, Partial) for kind in kinds)
    others = [value.placement for value in operands if not isinstance(value.placement, Partial)]
    linear = FUNCTIONS[function].linear
    if where in linear and all(isinstance(other, Replicate) for other in others):
        return Partial()
    shown = _placements(operands)
    if where in linear:
        reason = "the other operand must be replicated, so that every summand meets the same one"
        legal = "Gather the other operand first, or resolve the summands with reduce_scatter(…, dim) or all_reduce(…)."
    elif function in ("add", "sub"):
        reason = "every rank would add it, so that it comes into the sum once a rank"
        legal = "Resolve the summands first with reduce_scatter(…, dim) or all_reduce(…), then add; or add two Partial tensors."
        shown += f" and the number {next(c for c in constants if c is not None)}" if len(operands) == 1 else ""
    else:
        reason = "it is not linear, so summands cannot be passed through it"
        legal = "Resolve the operand first with reduce_scatter(…, dim) or all_reduce(…)."
    raise ElementwisePlacement(location, function=function, placements=shown, reason=reason, legal=legal)


def _placements(operands: Sequence[Value]) -> str:
    return " and ".join(f"{value.name} ({value.placement})" for value in operands)


def _slice(value: Value, dim: int, extent: sympy.Expr, location: Location) -> Inferred:
    if value.placement == Shard(dim):
        raise SliceOfShards(location, tensor=value.name, shape=text(value.shape), dim=dim)
    return (*value.shape[:dim], extent, *value.shape[dim + 1 :]), value.placement


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
