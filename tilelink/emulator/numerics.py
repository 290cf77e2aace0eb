"""Arithmetic of the emulated GPU: what the stock interpreter of Triton 3.6.0 computes wrongly or slowly.

bf16 values are kept as their bits in uint16 arrays. The stock interpreter adds and multiplies those bits,
truncates when it rounds, and multiplies matrices of bits; here every bf16 operation is done in fp32 and
rounded to nearest even.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime import interpreter as stock

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Array = NDArray[Any]


def bf16_to_float(bits: Array) -> NDArray[np.float32]:
    """Exact."""
    wide = np.asarray(bits).astype(np.uint32)
    return np.left_shift(wide, 16, out=wide).view(np.float32)


def float_to_bf16(values: Array) -> NDArray[np.uint16]:
    """Round to nearest, ties to even; any NaN becomes the quiet 0x7FC0."""
    floats = np.ascontiguousarray(values, dtype=np.float32).reshape(np.shape(values))
    bits = floats.view(np.uint32)
    rounded = ((bits + (((bits >> 16) & 1) + 0x7FFF)) >> 16).astype(np.uint16)
    nans = np.isnan(floats)
    return np.where(nans, np.uint16(0x7FC0), rounded) if nans.any() else rounded


class Handle(stock.TensorHandle):  # type: ignore[misc]
    """A tensor handle that trusts its maker: the stock one checks the width of its data at each operation."""

    def __init__(self, data: Array, dtype: tl.dtype, attr: dict[str, object] | None = None) -> None:
        self.data = data
        self.dtype = dtype
        self.attr = {} if attr is None else attr


def _writable(array: Array) -> Array:
    """torch warns of arrays that may not be written."""
    return array if array.flags.writeable else array.copy()


def is_bf16(handle: Handle) -> bool:
    return bool(handle.dtype.scalar == tl.bfloat16) and handle.data.dtype == np.uint16


def numbers(handle: Handle) -> Array:
    """The values as something numpy computes with."""
    data: Array = handle.data
    return bf16_to_float(data) if is_bf16(handle) else data


def typed(values: Array, dtype: tl.dtype) -> Handle:
    """Results of a computation, rounded to the scalar type `dtype`."""
    if dtype == tl.bfloat16:
        return Handle(float_to_bf16(values), dtype)
    return Handle(values.astype(stock._get_np_dtype(dtype), copy=False), dtype)


class NumericBuilder(stock.InterpreterBuilder):  # type: ignore[misc]
    """The stock builder with its arithmetic put right; its other operations are inherited."""

    def get_bf16(self, value: float) -> Handle:
        return Handle(float_to_bf16(np.array([value])), tl.bfloat16)

    def binary_op(self, lhs: Handle, rhs: Handle, op: Callable[..., Array]) -> Handle:
        dtype = lhs.dtype.scalar
        if dtype == tl.bfloat16 or rhs.dtype.scalar == tl.bfloat16:
            values = op(numbers(lhs), numbers(rhs))
        else:
            values = op(lhs.data, rhs.data)
        if values.dtype == np.bool_:
            # the stock handle of a comparison keeps the type of its operands, which misleads a later cast
            return Handle(values, tl.int1)
        return typed(values, dtype)

    def unary_op(self, arg: Handle, op: Callable[..., Array]) -> Handle:
        return typed(op(numbers(arg)), arg.dtype.scalar)

    def ternary_op(self, lhs: Handle, rhs: Handle, other: Handle, op: Callable[..., Array]) -> Handle:
        dtype = other.dtype.scalar
        if op is np.where:
            return Handle(np.where(lhs.data, rhs.data, other.data), dtype)
        return typed(op(numbers(lhs), numbers(rhs), numbers(other)), dtype)

    def cast_impl(self, src: Handle, dst_type: tl.dtype) -> Handle:
        return typed(numbers(src), dst_type.scalar)

    # The stock lambdas call cast_impl of the instance; only the rounding modes need care.
    def create_fp_to_fp(self, src: Handle, dst_type: tl.dtype, rounding_mode: object) -> Handle:
        pair = (src.dtype.scalar, dst_type.scalar)
        if rounding_mode == ir.ROUNDING_MODE.RTZ or any(t.primitive_bitwidth == 8 for t in pair):
            return super().create_fp_to_fp(src, dst_type, rounding_mode)  # type: ignore[no-any-return]
        return self.cast_impl(src, dst_type)

    def create_dot(self, a: Handle, b: Handle, d: Handle, input_precision: object, imprecise: object) -> Handle:
        """fp16 and bf16 through fp32, as the tensor cores do; fp32 stays fp32 (a GPU may use tf32)."""
        if a.dtype.is_floating() and a.dtype.primitive_bitwidth in (16, 32):
            # torch rather than numpy: its threads can be told to stay out of the way, see `one_thread`
            left, right = (torch.from_numpy(_writable(numbers(x).astype(np.float32, copy=False))) for x in (a, b))
            return typed(torch.matmul(left, right).numpy() + numbers(d), d.dtype.scalar)
        return super().create_dot(a, b, d, input_precision, imprecise)  # type: ignore[no-any-return]

    def create_fma(self, x: Handle, y: Handle, z: Handle) -> Handle:
        """One rounding: the product of two fp32 values is exact in fp64."""
        wide = [numbers(handle).astype(np.float64, copy=False) for handle in (x, y, z)]
        return typed(wide[0] * wide[1] + wide[2], z.dtype.scalar)

    def create_erf(self, arg: Handle) -> Handle:
        return self.unary_op(arg, lambda x: torch.erf(torch.from_numpy(np.ascontiguousarray(x))).numpy())

    def create_rsqrt(self, arg: Handle) -> Handle:
        return self.unary_op(arg, lambda x: 1 / np.sqrt(x))

    # minnum and maxnum drop a NaN; the stock interpreter lets it through
    def create_minnumf(self, lhs: Handle, rhs: Handle) -> Handle:
        return self.binary_op(lhs, rhs, np.fmin)

    def create_maxnumf(self, lhs: Handle, rhs: Handle) -> Handle:
        return self.binary_op(lhs, rhs, np.fmax)

    def create_idiv(self, lhs: Handle, rhs: Handle) -> Handle:
        """Integers, truncated towards zero."""
        left, right = lhs.data, rhs.data
        if left.size == 1 and right.size == 1 and right.flat[0] > 0 and left.flat[0] >= 0:
            return Handle(left // right, lhs.dtype.scalar)
        return Handle((left - np.fmod(left, right)) // right, lhs.dtype.scalar)

    def create_ashr(self, lhs: Handle, rhs: Handle) -> Handle:
        """Without changing the operands' types in place."""
        signed = stock._get_signed_np_dtype(lhs.data.dtype)
        return typed(np.right_shift(lhs.data.astype(signed), rhs.data.astype(signed)), lhs.dtype.scalar)
