"""Shortcuts past the front end of Triton where it would build the same small objects over and over.

A run of the emulator makes the same few block types and broadcasts thousands of times; each costs the stock
code tens of microseconds. Nothing here changes a result.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter as stock
from triton.runtime.jit import mangle_type

from tilelink.emulator.numerics import Handle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_stock_block_type = tl.block_type.__init__
_stock_same_type: Callable[[Any, object], bool] = tl.dtype.__eq__
_stock_numpy_type = stock._get_np_dtype
_block_types: dict[tuple[object, ...], dict[str, object]] = {}
_numpy_types: dict[str, np.dtype[Any]] = {}
_blocks: dict[tuple[object, ...], Any] = {}
_pointers: dict[torch.dtype, Any] = {}
_shapes: dict[tuple[int, ...], tuple[tuple[Any, ...], Any]] = {}
_CONSTANTS = range(-64, 4096)  # integers of which a run makes its tensors once


class Semantic(TritonSemantic):  # type: ignore[misc]
    """The stock type rules, with the common cases of broadcasting decided at once."""

    def __init__(self, builder: Any) -> None:
        super().__init__(builder)
        self._constants: dict[int, Any] = {}
        self._ranges: dict[tuple[int, int], Any] = {}
        self._always = tl.tensor(Handle(_frozen(np.ones(1, bool)), tl.int1), tl.int1)

    def to_tensor(self, x: Any, check_type: bool = True) -> Any:
        return self.scalar_constant(x, tl.int32) if small(x) else super().to_tensor(x, check_type)

    def scalar_constant(self, value: Any, dtype: Any) -> Any:
        if dtype is not tl.int32 or type(value) is not int or value not in _CONSTANTS:
            return super().scalar_constant(value, dtype)
        known = self._constants.get(value)
        if known is None:
            known = self._constants[value] = tl.tensor(Handle(_frozen(np.array([value], np.int32)), tl.int32), tl.int32)
        return known

    def arange(self, start: int, end: int, *, ret_ty: Any = None) -> Any:
        if ret_ty is not None:
            return super().arange(start, end, ret_ty=ret_ty)
        known = self._ranges.get((start, end))
        if known is None:
            known = self._ranges[start, end] = super().arange(start, end)
            _frozen(known.handle.data)
        return known

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
        elif type(lhs) is tl.tensor and lhs.dtype is tl.int32 and small(rhs):
            return self.broadcast_impl_value(lhs, self.scalar_constant(rhs, tl.int32))
        elif type(rhs) is tl.tensor and rhs.dtype is tl.int32 and small(lhs):
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

    # What follows is the stock code's answer where pointers, values and masks have one shape and the right types.

    def cast(self, input: Any, dst_ty: Any, fp_downcast_rounding: str | None = None) -> Any:
        return input if dst_ty is input.dtype else super().cast(input, dst_ty, fp_downcast_rounding)

    def atom_red_typechecking_impl(self, ptr: Any, val: Any, mask: Any, op: str) -> tuple[Any, Any, Any]:
        plain = mask is None and not ptr.shape and not val.shape and val.dtype is tl.int32
        if not plain or _element(ptr) is not tl.int32:
            return super().atom_red_typechecking_impl(ptr, val, mask, op)  # type: ignore[no-any-return]
        return ptr, val, self._always

    def _load_legacy(self, ptr: Any, mask: Any, other: Any, boundary: Any, padding: Any, *hints: Any) -> Any:
        element = _element(ptr)
        fits = mask is None or (type(mask) is tl.tensor and mask.shape is ptr.shape)
        if element is None or not fits or other is not None or boundary or padding:
            return super()._load_legacy(ptr, mask, other, boundary, padding, *hints)
        if mask is None:
            handle = self.builder.create_load(ptr.handle, *hints)
        else:
            handle = self.builder.create_masked_load(ptr.handle, mask.handle, None, *hints)
        return tl.tensor(handle, block_of(element, handle.data.shape) if ptr.shape else element)

    def _store_legacy(self, ptr: Any, val: Any, mask: Any, boundary: Any, *hints: Any) -> Any:
        element = _element(ptr)
        masked = mask is None or (type(mask) is tl.tensor and mask.shape is ptr.shape and mask.dtype is tl.int1)
        if element is None or not masked or val.dtype is not element or val.shape is not ptr.shape or boundary:
            return super()._store_legacy(ptr, val, mask, boundary, *hints)
        if mask is None:
            handle = self.builder.create_store(ptr.handle, val.handle, *hints)
        else:
            handle = self.builder.create_masked_store(ptr.handle, val.handle, mask.handle, *hints)
        return tl.tensor(handle, tl.void)


def _element(ptr: Any) -> Any:
    """What `ptr` points to; None for all that the stock code treats in a way of its own."""
    pointer = ptr.dtype
    if type(pointer) is not tl.pointer_type or pointer.const or pointer.element_ty is tl.int1:
        return None
    return None if pointer.element_ty.is_block() else pointer.element_ty


def small(x: Any) -> bool:
    """An integer that is an int32 in a kernel."""
    return type(x) is int and -(2**31) <= x < 2**31


def _frozen(data: Any) -> Any:
    """Shared by all that use it, so that a change in place has to fail."""
    data.flags.writeable = False
    return data


def _spread(x: Any, own: list[int], shape: list[int]) -> Any:
    if own == shape:
        return x
    handle = Handle(np.broadcast_to(x.handle.data, shape), x.handle.dtype)
    return tl.tensor(handle, block_of(x.type.scalar, tuple(shape)))


def _key(element: Any, sizes: tuple[int, ...]) -> tuple[object, ...]:
    pointer = (element.address_space, element.const) if element.is_ptr() else None
    return element.name, pointer, sizes


def block_of(element: Any, sizes: tuple[int, ...]) -> Any:
    """The block type of these sizes; one object for all its uses."""
    key = _key(element, sizes)
    known = _blocks.get(key)
    if known is None:
        known = _blocks[key] = tl.block_type(element, list(sizes))
    return known


def shape_of(sizes: tuple[int, ...]) -> tuple[tuple[Any, ...], Any]:
    """`shape` and `numel` of a tensor of these sizes; one object for all its uses."""
    known = _shapes.get(sizes)
    if known is None:
        known = _shapes[sizes] = (tl.tuple(list(map(tl.constexpr, sizes))), tl.constexpr(math.prod(sizes)))
    return known


def make_block_type(block: Any, element: Any, shape: Iterable[Any]) -> None:
    """`tl.block_type.__init__`, once per element type and shape."""
    sizes = tuple([size.value if type(size) is tl.constexpr else size for size in shape])
    key = _key(element, sizes)
    known = _block_types.get(key)
    if known is None:
        _stock_block_type(block, element, list(sizes))
        _block_types[key] = dict(vars(block))
    else:
        vars(block).update(known)


def make_tensor(tensor: Any, handle: object, type: Any) -> None:
    """`tl.tensor.__init__` with the constants of a shape made once."""
    tensor.handle = handle
    tensor.type = type
    tensor.dtype = type.scalar
    tensor.shape, tensor.numel = shape_of(tuple(type.shape.values) if type.is_block() else ())


def same_type(dtype: Any, other: object) -> bool:
    """`tl.dtype.__eq__`; most comparisons are of an object with itself."""
    return dtype is other or _stock_same_type(dtype, other)


def pointer_to(dtype: Any) -> Any:
    """The type of a torch tensor as an argument: a pointer to elements of its dtype."""
    known = _pointers.get(dtype)
    if known is None:
        known = _pointers[dtype] = tl.str_to_ty(mangle_type(torch.empty(0, dtype=dtype)), None)
    return known


def numpy_type(dtype: Any) -> np.dtype[Any]:
    """`_get_np_dtype` of the stock interpreter, which builds its table at each call."""
    name = dtype.scalar.name
    known = _numpy_types.get(name)
    if known is None:
        known = _numpy_types[name] = _stock_numpy_type(dtype.scalar)
    return known
