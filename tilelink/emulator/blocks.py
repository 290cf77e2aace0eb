"""Loads and stores of whole tiles as one strided copy.

The stock interpreter walks the addresses of a tile one by one. Most tiles are rows of evenly spaced columns, cut off at
the last rows or columns by a mask; such a tile is a view of memory, which numpy copies 5 to 20 times faster. What
is not such a tile goes the stock way. The caller has checked that the addresses that are not masked off are legal.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from triton._C.libtriton import interpreter as native

from tilelink.emulator.numerics import Handle

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

_LEAST_ELEMENTS = 512  # below, the stock way is faster
stock_load, stock_store = native.load, native.store


def load(addresses: Array, mask: Array, other: Array, dtype: np.dtype[Any]) -> Array:
    """The values at `addresses`, and `other` where masked off; like `native.load`."""
    if addresses.size >= _LEAST_ELEMENTS and addresses.ndim <= 2:
        kept = _prefix(mask)
        if kept is not None:
            view = _view(addresses[kept], dtype)
            if view is not None:
                if view.shape == addresses.shape:
                    return view.copy()
                values = np.array(np.broadcast_to(other, addresses.shape), dtype=dtype)
                values[kept] = view
                return values
    return stock_load(addresses, mask, other, dtype)  # type: ignore[no-any-return]


def store(addresses: Array, values: Array, mask: Array) -> None:
    """Like `native.store`. Where addresses coincide, the stock way decides which value stays."""
    if addresses.size >= _LEAST_ELEMENTS and addresses.ndim <= 2:
        kept = _prefix(mask)
        if kept is not None:
            view = _view(addresses[kept], values.dtype)
            if view is not None and _apart(view):
                view[...] = values[kept]
                return
    stock_store(addresses, values, mask)


def tile_pointers(descriptor: Any, indices: list[Handle]) -> tuple[Handle, Array]:
    """The addresses of a descriptor's tile and the mask of what lies inside; like `TensorDescHandle.materialize_pointers`.

    A tile is its first element and a table of offsets, which is made once for each shape and strides.
    """
    width = descriptor.base.dtype.element_ty.primitive_bitwidth // 8
    shape = tuple(descriptor.block_shape)
    assert len(indices) == len(shape)
    starts = [int(index.data.item()) for index in indices]
    assert starts[-1] * width % 16 == 0, "block offset start must be 16-byte aligned"
    steps = tuple(int(stride.data.item()) * width for stride in descriptor.strides)
    bounds = [int(bound.data.item()) for bound in descriptor.shape]
    first = descriptor.base.data.item() + sum(start * step for start, step in zip(starts, steps, strict=True))
    addresses = Handle(_offsets(shape, steps) + np.uint64(first % 2**64), descriptor.base.dtype.scalar)
    if all(0 <= start <= bound - size for start, bound, size in zip(starts, bounds, shape, strict=True)):
        return addresses, everything(shape)
    mask: Array = np.ones((1,) * len(shape), bool)
    for dim, (start, bound, size) in enumerate(zip(starts, bounds, shape, strict=True)):
        index = np.arange(start, start + size).reshape((size,) + (1,) * (len(shape) - 1 - dim))
        mask = mask & (index >= 0) & (index < bound)
    return addresses, mask


@lru_cache(maxsize=64)
def _offsets(shape: tuple[int, ...], steps: tuple[int, ...]) -> NDArray[np.uint64]:
    """In bytes from the first element, for each element of a tile."""
    table: NDArray[np.int64] = np.zeros((1,) * len(shape), np.int64)
    for dim, (size, step) in enumerate(zip(shape, steps, strict=True)):
        table = table + (np.arange(size) * step).reshape((size,) + (1,) * (len(shape) - 1 - dim))
    offsets = table.astype(np.uint64)
    offsets.flags.writeable = False
    return offsets


@lru_cache(maxsize=64)
def everything(shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """The mask that leaves nothing out; one array for all its uses."""
    mask = np.ones(shape, bool)
    mask.flags.writeable = False
    return mask


def _prefix(mask: Array) -> tuple[slice, ...] | None:
    """The first rows and columns, if they are what the mask leaves; None if it is another set, or empty."""
    count = int(np.count_nonzero(mask))
    if count == mask.size:
        return (slice(None),) * mask.ndim
    if mask.ndim == 1:
        kept: tuple[slice, ...] = (slice(count),)
    else:
        rows, columns = int(np.count_nonzero(mask[:, 0])), int(np.count_nonzero(mask[0]))
        if rows * columns != count:
            return None
        kept = slice(rows), slice(columns)
    return kept if count and mask[kept].all() else None


def _view(addresses: Array, dtype: np.dtype[Any]) -> Array | None:
    """Memory at evenly spaced addresses as an array; None if they are not."""
    shape = addresses.shape
    base = int(addresses.item(0))
    seconds = ((0,) * axis + (1,) + (0,) * (len(shape) - 1 - axis) for axis in range(len(shape)))
    steps = tuple(
        int(addresses.item(second)) - base if size > 1 else dtype.itemsize
        for second, size in zip(seconds, shape, strict=True)
    )
    if np.count_nonzero(_offsets(shape, steps) + np.uint64(base) != addresses):
        return None
    return np.asarray(_Memory(base, shape, steps, dtype))


def _apart(view: Array) -> bool:
    """No two elements of a view overlap, seen from its strides alone."""
    reach = view.itemsize
    for step, size in sorted((abs(step), size) for step, size in zip(view.strides, view.shape, strict=True)):
        if size > 1:
            if step < reach:
                return False
            reach = step * (size - 1) + reach
    return True


class _Memory:
    """Addresses of this process as numpy wants to be told of them."""

    def __init__(self, start: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "strides": strides,
            "typestr": dtype.str,
            "data": (start, False),
        }
