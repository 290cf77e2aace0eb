"""`Tensor`: the declaration in a signature, and the symbolic tensor inside the body of an `@overlap` function."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol, TypeAlias

import sympy

from tilelink.errors import BadShape, NotATensor, ShardOutOfRange, TransposedOperand, UnknownPlacement
from tilelink.ir.location import Location, here
from tilelink.ir.names import split_names
from tilelink.ir.placement import Partial, Placement, Replicate, Shard
from tilelink.ir.spec import Elementwise, Matmul, Operation
from tilelink.ir.symbolic import Symbolic


class Recorder(Protocol):
    """Where operations on tensors are written down (a Trace)."""

    def record(self, operation: Operation, operands: Sequence[Tensor], location: Location) -> Tensor: ...


Size: TypeAlias = sympy.Expr | int


def dims(names: str) -> tuple[sympy.Symbol, ...]:
    """Symbols for sizes: `M, N, K = dims("M N K")`. They are positive integers, given to `plan` by name. Raises BadNames."""
    return tuple(sympy.Symbol(name, integer=True, positive=True) for name in split_names(names, "dims"))


class Tensor(Symbolic):
    """A tensor of a spec: global shape, placement (default Replicate), dtype (default: the one given to `plan`).

    `Tensor(M, K, placement=Shard(0), dtype="bf16")` declares a parameter. Inside the function body the parameter is a
    Tensor as well, and `+`, `*`, `@` and the tilelink operations make new ones.
    Raises BadShape, UnknownPlacement, ShardOutOfRange.
    """

    __slots__ = ("dtype", "location", "name", "placement", "shape", "trace")

    def __init__(
        self,
        *shape: Size,
        placement: Placement = Replicate(),  # noqa: B008 (frozen)
        dtype: str = "",
        name: str = "",
        location: Location | None = None,
        trace: Recorder | None = None,
    ) -> None:
        self.location = location or here()
        self.shape = tuple(_size(size, shape, self.location) for size in shape)
        if not 1 <= len(shape) <= 2:
            raise BadShape(self.location, what="Tensor", rank=len(shape), shape=_list(shape), legal="1 or 2")
        if not isinstance(placement, Replicate | Shard | Partial):
            raise UnknownPlacement(self.location, placement=placement, tensor=name or f"Tensor({_list(shape)})")
        if isinstance(placement, Shard) and placement.dim not in range(len(shape)):
            legal = ", ".join(f"Shard({dim})" for dim in range(len(shape)))
            raise ShardOutOfRange(
                self.location, dim=placement.dim, tensor=name or f"Tensor({_list(shape)})", rank=len(shape), legal=legal
            )
        self.placement = placement
        self.dtype = dtype
        self.name = name
        self.trace = trace

    def __add__(self, other: Tensor) -> Tensor:
        return self._binary(Elementwise("add"), other, "+")

    def __mul__(self, other: Tensor) -> Tensor:
        return self._binary(Elementwise("mul"), other, "*")

    def __matmul__(self, other: Tensor | Transposed) -> Tensor:
        if isinstance(other, Transposed):
            return self._binary(Matmul(transposed=True), other.tensor, "@")
        return self._binary(Matmul(), other, "@")

    @property
    def T(self) -> Transposed:
        """The right operand of a matmul, of a tensor that lies as [N, K]. Raises BadShape unless it has two dimensions."""
        if len(self.shape) != 2:
            what = f"transposed tensor {self.name}"
            raise BadShape(here(), what=what, rank=len(self.shape), shape=_list(self.shape), legal="2")
        return Transposed(self)

    # Python tries these when the left operand is no Tensor, which is a mistake
    def __radd__(self, other: object) -> NoReturn:
        raise NotATensor(here(), what="+", value=other)

    def __rmul__(self, other: object) -> NoReturn:
        raise NotATensor(here(), what="*", value=other)

    def __rmatmul__(self, other: object) -> NoReturn:
        raise NotATensor(here(), what="@", value=other)

    def _binary(self, operation: Operation, other: Tensor, what: str) -> Tensor:
        if isinstance(other, Transposed):
            raise TransposedOperand(here(), what=what, tensor=other.tensor.name)
        if not isinstance(other, Tensor) or self.trace is None or other.trace is not self.trace:
            raise NotATensor(here(), what=what, value=other)
        return self.trace.record(operation, (self, other), here())

    def __repr__(self) -> str:
        return f"Tensor({_list(self.shape)}, placement={self.placement})"


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

    __add__ = __radd__ = _turned("+")
    __mul__ = __rmul__ = _turned("*")
    __matmul__ = __rmatmul__ = _turned("@")  # a Tensor on the left has taken it before


def _list(shape: Sequence[object]) -> str:
    return ", ".join(map(str, shape))


def _size(size: object, shape: Sequence[object], location: Location) -> sympy.Expr:
    if isinstance(size, sympy.Expr) and not size.is_number:
        return size
    if hasattr(size, "__index__") and not isinstance(size, bool | Symbolic) and operator.index(size) > 0:
        return sympy.Integer(operator.index(size))
    raise BadShape(location, what="Tensor", rank=len(shape), shape=_list(shape), legal="1 or 2")
