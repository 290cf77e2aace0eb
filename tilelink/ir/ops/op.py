"""What each operation says of itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import ClassVar, Self, TypeAlias

import sympy

from tilelink.errors import IntegerOperand, MixedDtypes
from tilelink.ir.dtype import DTYPES
from tilelink.ir.location import Location
from tilelink.ir.placement import Placement
from tilelink.ir.value import BoundValue, Value

Shape: TypeAlias = tuple[sympy.Expr, ...]
Inferred: TypeAlias = tuple[Shape, Placement]
Index: TypeAlias = tuple[str, ...]  # the axis along each dimension of a tensor; empty where its one element is repeated
Indices: TypeAlias = tuple[tuple[Index, ...], Index]  # of each operand, and of the result

_GIVEN = "dtype of plan"


class Op(ABC):
    """An operation of a spec, a frozen dataclass. One that is computed tile by tile also has `indices`, from the shapes of its
    operands on a rank: an axis that the result lacks is one that a tile runs over."""

    __slots__ = ()
    suffix: ClassVar[str] = ""  # of the name of its result, behind that of its first operand
    most_dims: ClassVar[int] = 2  # of its operands

    @property
    @abstractmethod
    def word(self) -> str:
        """Its name in messages."""

    @property
    def in_library(self) -> bool:
        """Whether one call of a library may compute it."""
        return False

    def result(self, operand: Value) -> str:
        """The name of its result, for which the user may have no variable; `operand` is the first one."""
        return f"{operand.name}{self.suffix}" if self.suffix else f"{self.word}_out"

    @abstractmethod
    def infer(self, operands: Sequence[Value], location: Location) -> Inferred:
        """Shape and placement of its result; raises the error of the first rule that is broken."""

    def dtype(self, operands: Sequence[Value], location: Location) -> str:
        """The dtype of its result; raises MixedDtypes and IntegerOperand."""
        return self.floats(operands, location)

    def floats(self, operands: Sequence[Value], location: Location) -> str:
        """The one floating-point dtype of `operands`. Raises MixedDtypes, IntegerOperand."""
        for value in operands:
            if value.dtype in DTYPES and DTYPES[value.dtype].integer:
                raise IntegerOperand(location, op=self.word, operand=value.name, dtype=value.dtype)
            if value.dtype != operands[0].dtype:
                dtypes = {"left_dtype": operands[0].dtype or _GIVEN, "right_dtype": value.dtype or _GIVEN}
                raise MixedDtypes(location, op=self.word, left=operands[0].name, right=value.name, **dtypes)
        return operands[0].dtype

    def expressions(self) -> tuple[sympy.Expr, ...]:
        """What `bind` puts sizes into, apart from shapes: those of its fields that are expressions."""
        given = (getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]  # a dataclass
        return tuple(one for one in given if isinstance(one, sympy.Expr))

    def bound(self, operands: Sequence[BoundValue], sizes: Mapping[str, int], location: Location) -> Self:
        """The operation with numbers for its expressions. Raises BadScalar, SliceOutOfRange, BadRouting, BadAttention."""
        return self


def with_sizes(expression: sympy.Expr, sizes: Mapping[str, int]) -> sympy.Expr:
    return expression.subs({symbol: sizes[str(symbol)] for symbol in expression.free_symbols})


def text(shape: Sequence[object]) -> str:
    return ", ".join(map(str, shape))
