"""`Tensor`: the declaration in a signature, and the symbolic tensor inside the body of an `@overlap` function."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeAlias

import sympy

from tilelink.errors import (
    BadScalar,
    BadShape,
    NotATensor,
    ShardOutOfRange,
    TransposedOperand,
    UnknownPlacement,
    UnknownReduction,
)
from tilelink.ir.cutting import chunk_bounds, index_bounds, split_bounds
from tilelink.ir.dtype import dtype_name
from tilelink.ir.location import Location, here
from tilelink.ir.names import split_names
from tilelink.ir.ops.elementwise import Elementwise, why_no_constant
from tilelink.ir.ops.matmul import Matmul
from tilelink.ir.ops.op import text
from tilelink.ir.ops.slices import Slice
from tilelink.ir.placement import Placement, Replicate, Shard, as_placement
from tilelink.ir.spec import Operation
from tilelink.ir.symbolic import Symbolic

if TYPE_CHECKING:  # who imports tilelink need not have torch's placements
    import torch
    from torch.distributed.tensor.placement_types import Placement as TorchPlacement


class Recorder(Protocol):
    """Where operations on tensors are written down (a Trace)."""

    def record(self, operation: Operation, operands: Sequence[Tensor], location: Location) -> Tensor: ...


Size: TypeAlias = sympy.Expr | int
MOST_DIMS = 4  # queries, keys and values
_LEGAL_DIMS = "1 to 4"

Scalar: TypeAlias = float | Real | sympy.Expr


def dims(names: str) -> tuple[sympy.Symbol, ...]:
    """Symbols for sizes: `M, N, K = dims("M N K")`. They are positive integers, given to `plan` by name. Raises BadNames."""
    return tuple(sympy.Symbol(name, integer=True, positive=True) for name in split_names(names, "dims"))


class Tensor(Symbolic):
    """A tensor of a spec: global shape, placement (default Replicate), dtype (default: the one given to `plan`).

    `Tensor(M, K, placement=Shard(0), dtype="bf16")` declares a parameter. Placements of DTensor and dtypes of torch will do,
    and `Shard(-1)` counts from the last dimension. Inside the function body the parameter is a Tensor as well. New ones are
    made by `+ - * /` with tensors and numbers, `@`, slices, and the operations of tilelink.
    Raises BadShape, UnknownPlacement, UnknownReduction, ShardOutOfRange.
    """

    __slots__ = ("dtype", "location", "name", "placement", "shape", "trace")

    def __init__(
        self,
        *shape: Size,
        placement: Placement | TorchPlacement | Sequence[TorchPlacement] = Replicate(),  # noqa: B008 (frozen)
        dtype: str | torch.dtype = "",
        name: str = "",
        location: Location | None = None,
        trace: Recorder | None = None,
    ) -> None:
        self.location = location or here()
        self.shape = tuple(_size(size, shape, self.location) for size in shape)
        if not 1 <= len(shape) <= MOST_DIMS:
            raise BadShape(self.location, what="Tensor", rank=len(shape), shape=text(shape), legal=_LEGAL_DIMS)
        self.placement = _placement(placement, shape, name, self.location)
        self.dtype = dtype_name(dtype)
        self.name = name
        self.trace = trace

    def __add__(self, other: Tensor | Scalar) -> Tensor:
        return self.elementwise("add", other, "+")

    def __sub__(self, other: Tensor | Scalar) -> Tensor:
        return self.elementwise("sub", other, "-")

    def __mul__(self, other: Tensor | Scalar) -> Tensor:
        return self.elementwise("mul", other, "*")

    def __truediv__(self, other: Tensor | Scalar) -> Tensor:
        return self.elementwise("div", other, "/")

    def __neg__(self) -> Tensor:
        return record(Elementwise("neg"), (self,), "-")

    # Python tries these when the left operand is no Tensor: it is a number, or a mistake
    def __radd__(self, other: Scalar) -> Tensor:
        return self.elementwise("add", other, "+", reflected=True)

    def __rsub__(self, other: Scalar) -> Tensor:
        return self.elementwise("sub", other, "-", reflected=True)

    def __rmul__(self, other: Scalar) -> Tensor:
        return self.elementwise("mul", other, "*", reflected=True)

    def __rtruediv__(self, other: Scalar) -> Tensor:
        return self.elementwise("div", other, "/", reflected=True)

    def __matmul__(self, other: Tensor | Transposed) -> Tensor:
        if isinstance(other, Transposed):
            return record(Matmul(transposed=True), (self, other.tensor), "@")
        return record(Matmul(), (self, other), "@")

    def __getitem__(self, index: object) -> Tensor:
        """`y[a:b]`, `y[:, :F]`: a slice along axes that are not sharded, with bounds that are integers or expressions of sizes.
        Raises BadSlice, SliceOfShards."""
        location, found = here(), self
        for dim, (start, stop) in index_bounds(self, index, location):
            found = found._cut(dim, start, stop, location)
        return found

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
        """`chunks` equal pieces along `dim`, as of `torch.chunk`. Raises BadSlice, SliceOfShards."""
        location = here()
        dim, bounds = chunk_bounds(self, chunks, dim, location)
        return tuple(self._cut(dim, start, stop, location) for start, stop in bounds)

    def split(self, sizes: Size | Sequence[Size], dim: int = 0) -> tuple[Tensor, ...]:
        """Pieces of so many elements along `dim`, or of that many each, as of `torch.split`. Raises BadSlice, SliceOfShards."""
        location = here()
        dim, bounds = split_bounds(self, sizes, dim, location)
        return tuple(self._cut(dim, start, stop, location) for start, stop in bounds)

    def _cut(self, dim: int, start: sympy.Expr, stop: sympy.Expr, location: Location) -> Tensor:
        if start == 0 and sympy.simplify(stop - self.shape[dim]) == 0:
            return self
        return record(Slice(dim, start, stop), (self,), "[…]")

    @property
    def T(self) -> Transposed:
        """The right operand of a matmul, of a tensor that lies as [N, K]. Raises BadShape unless it has two dimensions."""
        if len(self.shape) != 2:
            what = f"transposed tensor {self.name}"
            raise BadShape(here(), what=what, rank=len(self.shape), shape=text(self.shape), legal="2")
        return Transposed(self)

    def t(self) -> Transposed:
        """`T`, as torch spells it, too."""
        return self.T

    def __rmatmul__(self, other: object) -> NoReturn:
        raise NotATensor(here(), what="@", value=other)

    def elementwise(self, function: str, other: object, what: str, *, reflected: bool = False) -> Tensor:
        """`function` of this tensor and `other`, which may be a number, on the left if `reflected`."""
        if not isinstance(other, Real | sympy.Expr) or isinstance(other, bool):
            operands = (other, self) if reflected else (self, other)
            return record(Elementwise(function), operands, what, self.trace)
        side = "left" if reflected else "right"
        constant = scalar(function, side, other, here())
        return record(Elementwise(function, **{side: constant}), (self,), what)

    def __repr__(self) -> str:
        return f"Tensor({text(self.shape)}, placement={self.placement})"


def _turned(sign: str) -> Callable[..., NoReturn]:
    """A method for an operator that transposed tensors have not."""

    def refuse(operand: Transposed, *_: object) -> NoReturn:
        raise TransposedOperand(here(), what=sign, tensor=operand.tensor.name)

    return refuse


@dataclass(frozen=True, slots=True)
class Transposed(Symbolic):
    """`tensor` as [K, N], which lies as [N, K]. Only the right operand of a matmul may be one."""

    tensor: Tensor

    @property
    def T(self) -> Tensor:
        return self.tensor

    def t(self) -> Tensor:
        return self.tensor

    __add__ = __radd__ = _turned("+")
    __sub__ = __rsub__ = __neg__ = _turned("-")
    __mul__ = __rmul__ = _turned("*")
    __truediv__ = __rtruediv__ = _turned("/")
    __getitem__ = chunk = split = _turned("[…]")
    __matmul__ = __rmatmul__ = _turned("@")  # a Tensor on the left has taken it before


def record(operation: Operation, operands: Sequence[object], what: str, trace: Recorder | None = None) -> Tensor:
    """`operation` of tensors of one `trace`, that of the first of them unless it is given, written down there; `what` is how
    the user wrote it. Raises TransposedOperand, NotATensor, and what the operation does."""
    location, found = here(), []
    trace = trace or (operands[0].trace if isinstance(operands[0], Tensor) else None)
    for operand in operands:
        if isinstance(operand, Transposed):
            raise TransposedOperand(location, what=what, tensor=operand.tensor.name)
        if not isinstance(operand, Tensor) or trace is None or operand.trace is not trace:
            raise NotATensor(location, what=what, value=operand)
        found.append(operand)
    assert trace is not None, "checked"
    return trace.record(operation, found, location)


def scalar(function: str, side: str, value: object, location: Location) -> float | sympy.Expr:
    """The number that stands on one `side` of `function`: one of Python or numpy, or an expression of sizes, which `bind`
    makes one of. Raises BadScalar."""
    if isinstance(value, sympy.Expr) and value.free_symbols:
        return value
    number = float(value)  # type: ignore[arg-type]
    reason = why_no_constant(function, side, number)
    if reason:
        raise BadScalar(location, function=function, scalar=value, reason=reason)
    return number


def _placement(given: object, shape: Sequence[object], name: str, location: Location) -> Placement:
    """The placement of a tensor of `shape`, its dimension counted from the first one on. Raises UnknownPlacement,
    UnknownReduction, ShardOutOfRange."""
    tensor = name or f"Tensor({text(shape)})"
    placement = as_placement(given)
    if placement is None:
        if hasattr(given, "reduce_op"):
            raise UnknownReduction(location, placement=given, tensor=tensor, reduction=given.reduce_op)
        raise UnknownPlacement(location, placement=given, tensor=tensor)
    if not isinstance(placement, Shard):
        return placement
    if placement.dim not in range(-len(shape), len(shape)):
        legal = ", ".join(f"Shard({dim})" for dim in range(len(shape)))
        raise ShardOutOfRange(location, dim=placement.dim, tensor=tensor, rank=len(shape), legal=legal)
    return Shard(placement.dim % len(shape))


def _size(size: object, shape: Sequence[object], location: Location) -> sympy.Expr:
    if isinstance(size, sympy.Expr) and not size.is_number:
        return size
    if hasattr(size, "__index__") and not isinstance(size, bool | Symbolic) and operator.index(size) > 0:
        return sympy.Integer(operator.index(size))
    raise BadShape(location, what="Tensor", rank=len(shape), shape=text(shape), legal=_LEGAL_DIMS)
