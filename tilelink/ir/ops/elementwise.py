"""Elementwise functions, a row each, and the operation that computes one.

A new function is a row here, a line in `tilelink.ir.functions`, and, if its text is a call of no function of Triton's, a device
function in `lowering.device.math`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sympy

from tilelink.errors import BadScalar, ElementwiseMismatch, ElementwisePlacement
from tilelink.ir.location import Location
from tilelink.ir.ops.op import Index, Indices, Inferred, Op, Shape, text, with_sizes
from tilelink.ir.placement import ByExpert, Partial, Placement, Replicate, Shard
from tilelink.ir.value import BoundValue, Value

if TYPE_CHECKING:
    import torch

_LARGEST_FP32 = 3.4028234663852886e38
_ONE, _BOTH = (True,), (True, True)
_LEFT, _RIGHT = (True, False), (False, True)


@dataclass(frozen=True, slots=True)
class Function:
    """`text` has a place for each operand. `meaning` is what it is of tensors in float64: results are compared with it, so it is
    no other text that is printed. The reference of an emitted file has `in_torch`, if the text of kernels means nothing there.

    `linear` lists which operands may be summands of ranks (Partial) at once: with the others fixed the function is linear in
    those, so that the results are summands again."""

    text: str
    meaning: Callable[..., torch.Tensor]
    in_torch: str = ""
    linear: frozenset[tuple[bool, ...]] = frozenset()

    @property
    def num_operands(self) -> int:
        return 2 if "{1}" in self.text else 1

    def on(self, *operands: object) -> str:
        """The text of the function of `operands`, in a kernel."""
        return self.text.format(*operands)

    def on_tensors(self, *operands: object) -> str:
        """The same in torch."""
        return (self.in_torch or self.text).format(*operands)


FUNCTIONS = {
    "silu": Function("silu({0})", lambda x: x * x.sigmoid(), "torch.nn.functional.silu({0})"),
    "gelu": Function("gelu({0})", lambda x: x * (1 + (x * 0.5**0.5).erf()) / 2, "torch.nn.functional.gelu({0})"),
    "relu": Function("relu({0})", lambda x: x.clamp_min(0), "torch.relu({0})"),
    "neg": Function("-{0}", lambda x: -x, linear=frozenset({_ONE})),
    "add": Function("{0} + {1}", lambda x, y: x + y, linear=frozenset({_BOTH})),
    "sub": Function("{0} - {1}", lambda x, y: x - y, linear=frozenset({_BOTH})),
    "mul": Function("{0} * {1}", lambda x, y: x * y, linear=frozenset({_LEFT, _RIGHT})),
    "div": Function("{0} / {1}", lambda x, y: x / y, linear=frozenset({_LEFT})),
}


def in_fp32(number: float) -> float:
    """The number of fp32 nearest to `number`: functions are computed in fp32, with constants of it, as in torch."""
    return float(struct.unpack("f", struct.pack("f", number))[0])


def with_constants(values: Iterable[object], left: object, right: object) -> tuple[object, ...]:
    """All operands in order: `values`, and the constants on their left and right where they are given."""
    before = () if left is None else (str(left),)
    behind = () if right is None else (str(right),)
    return (*before, *values, *behind)


def why_no_constant(function: str, side: str, number: float) -> str:
    """Why `number` cannot be the operand of `function` on this `side`, or nothing."""
    if not abs(number) <= _LARGEST_FP32:  # nor is nan
        return "it is not a finite number of fp32, in which elementwise functions are computed"
    if function == "div" and side == "right" and number == 0:
        return "every element would be infinite or not a number"
    return ""


@dataclass(frozen=True, slots=True)
class Elementwise(Op):
    """One of `FUNCTIONS`, computed in fp32; dimensions of size 1, and those that are missing, broadcast.

    A constant may stand in the place of the `left` or the `right` operand: in a Spec an expression of sizes, in a BoundSpec
    a number.
    """

    function: str
    left: float | sympy.Expr | None = None
    right: float | sympy.Expr | None = None

    @property
    def word(self) -> str:
        return self.function

    def infer(self, operands: Sequence[Value], location: Location) -> Inferred:
        function = self.function
        shape = operands[0].shape
        for value in operands[1:]:
            found = _broadcast(shape, value.shape)
            if found is None:
                raise ElementwiseMismatch(
                    location, function=function, left_shape=text(shape), right_shape=text(value.shape)
                )
            shape = found
        if any(isinstance(value.placement, Partial) for value in operands):
            return shape, _of_summands(self, operands, location)
        if any(isinstance(value.placement, ByExpert) for value in operands):
            if all(isinstance(one.placement, ByExpert) or len(one.shape) < len(shape) for one in operands):
                return shape, ByExpert()
            why = "rows by experts lie with their experts, and others do not"
            placements, legal = _placements(operands), "Legal: rows that are ByExpert, too, or one replicated row."
            raise ElementwisePlacement(location, function=function, placements=placements, reason=why, legal=legal)
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

    def bound(self, operands: Sequence[BoundValue], sizes: Mapping[str, int], location: Location) -> Elementwise:
        sides = (("left", self.left), ("right", self.right))
        return Elementwise(self.function, *(_bound(self.function, *side, sizes, location) for side in sides))

    def indices(self, shapes: Sequence[tuple[int, ...]]) -> Indices:
        return lined_up(shapes)


def lined_up(shapes: Sequence[tuple[int, ...]]) -> Indices:
    """Dimensions line up from the last one on. Where one is 1 below more, its element is repeated."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    full = [max(extents) for extents in zip(*padded, strict=True)]
    write = ("m", "n")[:rank]

    def index(shape: tuple[int, ...]) -> Index:
        below = zip(shape, full[rank - len(shape) :], write[rank - len(shape) :], strict=True)
        return tuple("" if extent == 1 != most else axis for extent, most, axis in below)

    return tuple(map(index, shapes)), write


def _bound(function: str, side: str, constant: object, sizes: Mapping[str, int], location: Location) -> float | None:
    if not isinstance(constant, sympy.Expr):
        assert constant is None or isinstance(constant, float), "numbers have become floats where they were written"
        return constant
    number = with_sizes(constant, sizes)
    reason = "it is not a finite real number" if not number.is_real else why_no_constant(function, side, float(number))
    if reason:
        raise BadScalar(location, function=function, scalar=constant, reason=reason)
    return float(number)


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
