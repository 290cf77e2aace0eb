"""`tl.reduce` and `tl.associative_scan` on arrays: exact for bf16, and vectorised for any combine function.

The stock interpreter sums the bits of bf16 values and walks other combine functions element by element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import triton.language as tl

from tilelink.emulator.numerics import Handle, numbers, typed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Array = NDArray[Any]

_UFUNCS: tuple[tuple[str, np.ufunc], ...] = (
    ("_sum_combine", np.add),
    ("_prod_combine", np.multiply),
    ("_elementwise_max", np.fmax),
    ("_elementwise_min", np.fmin),
    ("_xor_combine", np.bitwise_xor),
    ("_or_combine", np.bitwise_or),
)


def _ufunc(combine: object) -> np.ufunc | None:
    return next((ufunc for name, ufunc in _UFUNCS if combine is getattr(tl.standard, name)), None)


class Reductions:
    """`call` runs a combine function (a JITFunction) on tensors."""

    def __init__(self, call: Callable[..., object]) -> None:
        self._call = call

    def reduce(self, input: Any, axis: Any, combine_fn: Any, keep_dims: Any = False, **_: object) -> Any:
        """`tl.reduce`; `axis` None reduces all dimensions to a scalar."""
        tensors = tuple(input) if isinstance(input, (tuple, tl.tuple)) else (input,)
        dims = len(tensors[0].shape)
        axis = _plain(axis)
        arrays = [tensor.handle.data for tensor in tensors]
        if axis is None:
            arrays, axis = [array.reshape(-1) for array in arrays], 0
            kept: tuple[int, ...] = tuple(range(dims))
        else:
            axis %= dims
            kept = (axis,)
        results = self._reduced(tensors, arrays, axis, combine_fn)
        if _plain(keep_dims):
            results = [np.expand_dims(array, kept) for array in results]
        outputs = tuple(_retyped(array, t.dtype) for array, t in zip(results, tensors, strict=True))
        return outputs if isinstance(input, (tuple, tl.tuple)) else outputs[0]

    def scan(self, input: Any, axis: Any, combine_fn: Any, reverse: Any = False, **_: object) -> Any:
        """`tl.associative_scan` along one dimension."""
        tensors = tuple(input) if isinstance(input, (tuple, tl.tuple)) else (input,)
        axis = _plain(axis) % len(tensors[0].shape)
        arrays = [tensor.handle.data for tensor in tensors]
        if _plain(reverse):
            arrays = [np.flip(array, axis) for array in arrays]
        results = self._scanned(tensors, arrays, axis, combine_fn)
        if _plain(reverse):
            results = [np.flip(array, axis) for array in results]
        outputs = tuple(_retyped(array, t.dtype) for array, t in zip(results, tensors, strict=True))
        return outputs if isinstance(input, (tuple, tl.tuple)) else outputs[0]

    def _reduced(self, tensors: tuple[Any, ...], arrays: list[Array], axis: int, combine: object) -> list[Array]:
        ufunc = _ufunc(combine)
        if ufunc is not None:
            dtype = tensors[0].dtype
            values = numbers(Handle(arrays[0], dtype))
            return [typed(np.asarray(ufunc.reduce(values, axis=axis)), dtype).data]
        return self._fold(tensors, arrays, axis, combine)[-1]

    def _scanned(self, tensors: tuple[Any, ...], arrays: list[Array], axis: int, combine: object) -> list[Array]:
        ufunc = _ufunc(combine)
        if ufunc is not None:
            dtype = tensors[0].dtype
            return [typed(ufunc.accumulate(numbers(Handle(arrays[0], dtype)), axis=axis), dtype).data]
        steps = self._fold(tensors, arrays, axis, combine)
        return [np.stack([step[k] for step in steps], axis=axis) for k in range(len(arrays))]

    def _fold(self, tensors: tuple[Any, ...], arrays: list[Array], axis: int, combine: object) -> list[list[Array]]:
        """The running combination along `axis`, slice by slice."""
        slices = _slices(arrays, axis)
        steps = [next(slices)]
        for piece in slices:
            left = [_retyped(array, t.dtype) for array, t in zip(steps[-1], tensors, strict=True)]
            right = [_retyped(array, t.dtype) for array, t in zip(piece, tensors, strict=True)]
            combined = self._call(combine, *left, *right)
            parts = combined if isinstance(combined, (tuple, tl.tuple)) else (combined,)
            shape = piece[0].shape
            steps.append([np.broadcast_to(part.handle.data, shape or (1,)).reshape(shape) for part in parts])
        return steps


def _slices(arrays: list[Array], axis: int) -> Iterator[list[Array]]:
    for index in range(arrays[0].shape[axis]):
        yield [np.asarray(np.take(array, index, axis=axis)) for array in arrays]


def _retyped(bits: Array, dtype: tl.dtype) -> tl.tensor:
    """A tensor of stored values: bf16 bits stay as they are."""
    bits = np.asarray(bits)
    if bits.ndim == 0:
        return tl.tensor(Handle(bits.reshape(1), dtype), dtype)
    return tl.tensor(Handle(bits, dtype), tl.block_type(dtype, list(bits.shape)))


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, tl.constexpr) else value
