"""Shortcuts past the front end of Triton where it would build the same small objects over and over.

A run of the emulator makes the same few block types and broadcasts thousands of times; each costs the stock
code tens of microseconds. Nothing here changes a result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter as stock

from tilelink.emulator.numerics import Handle

if TYPE_CHECKING:
    from collections.abc import Iterable

_stock_block_type = tl.block_type.__init__
_stock_numpy_type = stock._get_np_dtype
_block_types: dict[tuple[object, ...], dict[str, object]] = {}
_numpy_types: dict[str, np.dtype[Any]] = {}
_shapes: dict[tuple[int, ...], tuple[tuple[Any, ...], Any]] = {}


class Semantic(TritonSemantic):  # type: ignore[misc]
    """The stock type rules, with the common cases of broadcasting decided at once."""

    def binary_op_type_checking_impl(
        self,
        lhs: Any,
        rhs: Any,
        allow_lhs_ptr: bool = False,
        allow_rhs_ptr: bool = False,
        arithmetic_check: bool = True,
        div_or_mod: bool = False,
    ) -> tuple[Any, Any]:
        """int32 with int32 or a small Python integer, and fp32 with fp32, need no promotion."""
        if type(lhs) is tl.tensor and type(rhs) is tl.tensor:
            if lhs.dtype is rhs.dtype and (lhs.dtype is tl.int32 or lhs.dtype is tl.float32):
                return self.broadcast_impl_value(lhs, rhs)
        elif type(lhs) is tl.tensor and lhs.dtype is tl.int32 and _small(rhs):
            return self.broadcast_impl_value(lhs, self.scalar_constant(rhs, tl.int32))
        elif type(rhs) is tl.tensor and rhs.dtype is tl.int32 and _small(lhs):
            return self.broadcast_impl_value(self.scalar_constant(lhs, tl.int32), rhs)
        return super().binary_op_type_checking_impl(  # type: ignore[no-any-return]
            lhs, rhs, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod
        )

    def broadcast_impl_value(self, lhs: Any, rhs: Any) -> tuple[Any, Any]:
        left_type, right_type = lhs.type, rhs.type
        if not (left_type.is_block() and right_type.is_block()):
            if not left_type.is_block() and not right_type.is_block():
                return lhs, rhs
            return super().broadcast_impl_value(lhs, rhs)  # type: ignore[no-any-return]
        left, right = left_type.shape.values, right_type.shape.values
        if left == right:
            return lhs, rhs
        if len(left) != len(right) or any(a != b and a != 1 and b != 1 for a, b in zip(left, right, strict=True)):
            return super().broadcast_impl_value(lhs, rhs)  # type: ignore[no-any-return]
        shape = [b if a == 1 else a for a, b in zip(left, right, strict=True)]
        return _spread(lhs, left, shape), _spread(rhs, right, shape)


def _small(x: Any) -> bool:
    return type(x) is int and -(2**31) <= x < 2**31


def _spread(x: Any, own: list[int], shape: list[int]) -> Any:
    if own == shape:
        return x
    handle = Handle(np.broadcast_to(x.handle.data, shape), x.handle.dtype)
    return tl.tensor(handle, tl.block_type(x.type.scalar, shape))


def make_block_type(block: Any, element: Any, shape: Iterable[Any]) -> None:
    """`tl.block_type.__init__`, once per element type and shape."""
    sizes = tuple([size.value if type(size) is tl.constexpr else size for size in shape])
    pointer = (element.address_space, element.const) if element.is_ptr() else None
    key = (element.name, pointer, sizes)
    known = _block_types.get(key)
    if known is None:
        _stock_block_type(block, element, list(sizes))
        _block_types[key] = dict(vars(block))
    else:
        vars(block).update(known)


def make_tensor(tensor: Any, handle: object, type: Any) -> None:
    """`tl.tensor.__init__` with the constants of a shape made once."""
    sizes = tuple(type.shape.values) if type.is_block() else ()
    known = _shapes.get(sizes)
    if known is None:
        numel = 1
        for size in sizes:
            numel *= size
        known = _shapes[sizes] = (tuple(map(tl.constexpr, sizes)), tl.constexpr(numel))
    tensor.handle = handle
    tensor.type = type
    tensor.dtype = type.scalar
    tensor.shape, tensor.numel = known


def numpy_type(dtype: Any) -> np.dtype[Any]:
    """`_get_np_dtype` of the stock interpreter, which builds its table at each call."""
    name = dtype.scalar.name
    known = _numpy_types.get(name)
    if known is None:
        known = _numpy_types[name] = _stock_numpy_type(dtype.scalar)
    return known
