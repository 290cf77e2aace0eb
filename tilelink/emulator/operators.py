"""Operators of `tl.tensor` in the cases that kernels spend their time on, straight to numpy.

Integer index arithmetic, pointer offsets and fp32 arithmetic need no promotion: both sides have one type already, or
one is a small Python number. The front end of Triton takes 20 to 40 us to find that out, at each operator; here it
takes one or two. Every other case, and every error, goes to the operator of the language.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import triton.language as tl

from tilelink.emulator.numerics import Handle
from tilelink.emulator.shortcuts import block_of, shape_of, small

Operator = Callable[..., Any]

_ARITHMETIC: dict[str, np.ufunc] = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
_COMPARISONS: dict[str, np.ufunc] = {
    "__lt__": np.less,
    "__le__": np.less_equal,
    "__gt__": np.greater,
    "__ge__": np.greater_equal,
    "__eq__": np.equal,
    "__ne__": np.not_equal,
}
_LOGIC: dict[str, np.ufunc] = {"__and__": np.bitwise_and, "__or__": np.bitwise_or, "__xor__": np.bitwise_xor}
_WHOLE = slice(None)


def operators(stock: Callable[[str], Operator]) -> Iterator[tuple[str, Operator]]:
    """Name and replacement of each operator; `stock(name)` is the one of the language, bound to this run."""
    for name, ufunc in _ARITHMETIC.items():
        forward = partial(_arithmetic, ufunc, stock(f"__{name}__"))
        if name == "add":
            forward = partial(_offset, stock("__add__"), forward)
        yield f"__{name}__", _method(forward)
        yield f"__r{name}__", _method(partial(_reflected, ufunc, stock(f"__r{name}__")))
    for name, ufunc in _COMPARISONS.items():
        yield name, _method(partial(_comparison, ufunc, stock(name)))
    for name, ufunc in _LOGIC.items():
        yield name, _method(partial(_logic, ufunc, stock(name)))
    for name, quotient in (("__floordiv__", True), ("__mod__", False)):
        yield name, _method(partial(_division, quotient, stock(name)))
    yield "__getitem__", _method(partial(_expand, stock("__getitem__")))


def _method(function: Operator) -> Operator:
    """A partial is no descriptor; an attribute of a class has to be a function."""
    return lambda x, y: function(x, y)


def _result(data: Any, dtype: Any, like: Any) -> Any:
    """A tensor of `data`; its shape is that of `like`, or that of `data` where two blocks were broadcast."""
    result = object.__new__(tl.tensor)
    result.handle = Handle(data, dtype)
    result.dtype = dtype
    if not like.shape:
        result.type, result.shape, result.numel = dtype, like.shape, like.numel
        return result
    sizes = data.shape
    result.type = like.type if like.dtype is dtype and like.handle.data.shape == sizes else block_of(dtype, sizes)
    result.shape, result.numel = shape_of(sizes)
    return result


def _apply(ufunc: np.ufunc, x: Any, y: Any, dtype: Any) -> Any:
    """Of two tensors whose values numpy may combine as they are; None where the language has to broadcast or refuse."""
    left, right = x.handle.data, y.handle.data
    if x.shape is y.shape or not y.shape:
        return _result(ufunc(left, right), dtype, x)
    if not x.shape:
        return _result(ufunc(left, right), dtype, y)
    if left.ndim != right.ndim:
        return None
    try:
        return _result(ufunc(left, right), dtype, x)
    except ValueError:
        return None


def _as_is(dtype: Any) -> bool:
    """Values of this type are kept and computed by numpy as the language does."""
    return dtype is tl.int32 or dtype is tl.float32 or dtype is tl.int64


def _number(y: Any, dtype: Any) -> bool:
    """A Python number that has the type `dtype` beside a tensor of it."""
    if type(y) is int:
        return dtype is tl.int32 and small(y)
    return type(y) is float and dtype is tl.float32 and (y == 0 or 1e-30 < abs(y) < 1e30)


def _arithmetic(ufunc: np.ufunc, stock: Operator, x: Any, y: Any) -> Any:
    if type(y) is tl.constexpr:
        y = y.value
    dtype = x.dtype
    if type(y) is tl.tensor:
        found = _apply(ufunc, x, y, dtype) if y.dtype is dtype and _as_is(dtype) else None
    else:
        found = _result(ufunc(x.handle.data, y), dtype, x) if _number(y, dtype) else None
    return stock(x, y) if found is None else found


def _reflected(ufunc: np.ufunc, stock: Operator, y: Any, x: Any) -> Any:
    """`x` on the left is a number, `y` a tensor."""
    if type(x) is tl.constexpr:
        x = x.value
    return _result(ufunc(x, y.handle.data), y.dtype, y) if _number(x, y.dtype) else stock(y, x)


def _offset(stock: Operator, arithmetic: Operator, x: Any, y: Any) -> Any:
    """`+`, where `x` may be a pointer."""
    pointer = x.dtype
    if type(pointer) is not tl.pointer_type:
        return arithmetic(x, y)
    if type(y) is tl.constexpr:
        y = y.value
    width = max(1, pointer.element_ty.primitive_bitwidth // 8)
    if type(y) is int and small(y):
        return _result(x.handle.data + np.uint64(y * width % 2**64), pointer, x)
    if type(y) is tl.tensor and (y.dtype is tl.int32 or y.dtype is tl.int64):
        found = _apply(lambda base, index: base + index.astype(np.uint64) * np.uint64(width), x, y, pointer)  # type: ignore[arg-type]
        if found is not None:
            return found
    return stock(x, y)


def _comparison(ufunc: np.ufunc, stock: Operator, x: Any, y: Any) -> Any:
    if type(y) is tl.constexpr:
        y = y.value
    found = None
    if type(y) is tl.tensor:
        if y.dtype is x.dtype and _as_is(x.dtype):
            found = _apply(ufunc, x, y, tl.int1)
    elif _number(y, x.dtype):
        found = _result(ufunc(x.handle.data, y), tl.int1, x)
    return stock(x, y) if found is None else found


def _logic(ufunc: np.ufunc, stock: Operator, x: Any, y: Any) -> Any:
    """Of masks."""
    if type(y) is tl.tensor and x.dtype is tl.int1 and y.dtype is tl.int1:
        left, right = x.handle.data, y.handle.data
        if left.dtype == np.bool_ and right.dtype == np.bool_:
            found = _apply(ufunc, x, y, tl.int1)
            if found is not None:
                return found
    return stock(x, y)


def _division(quotient: bool, stock: Operator, x: Any, y: Any) -> Any:
    """Of scalars that are not negative, where rounding down is rounding to zero."""
    if type(y) is tl.constexpr:
        y = y.value
    if x.dtype is tl.int32 and not x.shape:
        if type(y) is tl.tensor and y.dtype is tl.int32 and not y.shape:
            divisor = y.handle.data.item()
        else:
            divisor = y if type(y) is int and small(y) else 0
        value = x.handle.data.item()
        if value >= 0 and divisor > 0:
            found = value // divisor if quotient else value % divisor
            return _result(np.array([found], np.int32), tl.int32, x)
    return stock(x, y)


def _expand(stock: Operator, x: Any, index: Any) -> Any:
    """`x[:, None]` and `x[None, :]`."""
    if type(index) is tuple and len(index) == 2 and x.shape:
        if index[1] is None and index[0] == _WHOLE:
            data = x.handle.data[:, None]
        elif index[0] is None and index[1] == _WHOLE:
            data = x.handle.data[None]
        else:
            return stock(x, index)
        if data.ndim == 2:
            return _result(data, x.dtype, x)
    return stock(x, index)
