"""Bits in registers and what PTX computes with them. A register is a uint64 for each lane; its type is the instruction's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.uint64]
Array = NDArray[Any]
Operation = Callable[..., Array]

_UNSIGNED: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
    8: np.dtype(np.uint64),
}
_SIGNED: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.int8),
    2: np.dtype(np.int16),
    4: np.dtype(np.int32),
    8: np.dtype(np.int64),
}
TYPES: dict[str, np.dtype[Any]] = {
    **{f"{kind}{8 * size}": dtype for kind in "ub" for size, dtype in _UNSIGNED.items()},
    **{f"s{8 * size}": dtype for size, dtype in _SIGNED.items()},
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "pred": np.dtype(np.uint8),
}
MOVED: dict[str, np.dtype[Any]] = {  # also types of what is not computed with
    **TYPES,
    "bf16": _UNSIGNED[2],
    "bf16x2": _UNSIGNED[4],
    "f16x2": _UNSIGNED[4],
}


def numbers(bits: Bits, dtype: np.dtype[Any]) -> Array:
    """The low bits of each lane as a number."""
    low: Array = bits.astype(_UNSIGNED[dtype.itemsize]).view(dtype)
    return low


def bits_of(values: Array) -> Bits:
    """What a register holds; integers with a sign are extended."""
    values = np.ascontiguousarray(values)
    if values.dtype.kind == "b":
        return values.astype(np.uint64)
    if values.dtype.kind == "i":
        return values.astype(np.int64).view(np.uint64)
    return values.view(_UNSIGNED[values.dtype.itemsize]).astype(np.uint64)


def _shifted(operation: Operation) -> Operation:
    """Shifts by the width or more leave nothing, or signs."""

    def shift(value: Array, amount: Array) -> Array:
        width = 8 * value.dtype.itemsize
        amount = amount.astype(np.int64) & 0xFFFF_FFFF
        near = operation(value, np.minimum(amount, width - 1).astype(value.dtype))
        far = near if operation is np.right_shift and value.dtype.kind == "i" else np.zeros_like(value)
        return np.where(amount < width, near, far).astype(value.dtype)

    return shift


def _divided(value: Array, by: Array) -> Array:
    """Truncated towards zero; by 0: all ones, as GPUs do."""
    if value.dtype.kind == "f":
        return value / by
    safe = np.where(by == 0, by.dtype.type(1), by)
    rest = np.fmod(value, safe)
    return np.where(
        by == 0, value.dtype.type(-1) if value.dtype.kind == "i" else ~value.dtype.type(0), (value - rest) // safe
    )


ARITHMETIC: dict[str, tuple[int, Operation]] = {
    "add": (2, np.add),
    "sub": (2, np.subtract),
    "mul": (2, np.multiply),
    "mad": (3, lambda a, b, c: a * b + c),
    "fma": (3, lambda a, b, c: a * b + c),
    "div": (2, _divided),
    "rem": (2, np.fmod),
    "min": (2, np.minimum),
    "max": (2, np.maximum),
    "and": (2, np.bitwise_and),
    "or": (2, np.bitwise_or),
    "xor": (2, np.bitwise_xor),
    "not": (1, np.bitwise_not),
    "neg": (1, np.negative),
    "abs": (1, np.abs),
    "shl": (2, _shifted(np.left_shift)),
    "shr": (2, _shifted(np.right_shift)),
}

COMPARISONS: dict[str, Operation] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}
COMBINED: dict[str, Operation] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
