"""Multimem accesses of a kernel: one instruction that the switch carries out on all ranks' copies.

    from tilelink.compat.dialects.multimem import multimem_ld_reduce, multimem_st

    total = multimem_ld_reduce(multicast + offsets, mask)   # multicast: handle.multicast_ptr as a typed pointer
    multimem_st(multicast + offsets, total, mask)

An address of the multicast range stands for the same element on every rank; it may be used in these three
functions only, a plain load there is `OutOfBounds`. There is no order in them. A multimem load is a weak load
of each copy, a multimem store a weak store to each copy, one after the other and element by element: other ranks
must have been waited for as if they were accessed by plain loads and stores. A reduction is an atomic on
each copy, one after the other: it is indivisible on each copy, not across them. Observers are told one access
for each rank's copy, in the order of ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import triton.language as tl

from tilelink.compat.dialects.arguments import Call, call
from tilelink.emulator.multicast import shifts
from tilelink.emulator.numerics import Handle

if TYPE_CHECKING:
    from collections.abc import Iterator

_SUMS = {tl.float32: tl.float32, tl.bfloat16: tl.float32, tl.float16: tl.float32, tl.int32: tl.int32}
_FLOATS = (tl.float32, tl.bfloat16, tl.float16)


def multimem_ld_reduce(ptr: Any, mask: Any = None) -> Any:
    """The sum over all ranks of the element at `ptr` (a pointer or a block of them), of its type.

    fp32, bf16, fp16 (summed in fp32, in the order of ranks, rounded once) and int32. Masked lanes are 0.
    Raises `NoMulticast`, `IllegalShmemArgument`.
    """
    now = call("multimem_ld_reduce")
    element = _element(now, ptr, tuple(_SUMS))
    total: Any = None
    for copy in _copies(now, ptr, mask):
        part = tl.load(copy, mask) if mask is None else tl.load(copy, mask, other=0.0 if element in _FLOATS else 0)
        part = part.to(_SUMS[element])
        total = part if total is None else total + part
    return total.to(element)


def multimem_st(ptr: Any, value: Any, mask: Any = None) -> None:
    """Store `value` at `ptr` on all ranks: fp32, bf16, fp16, int32. Raises `NoMulticast`, `IllegalShmemArgument`."""
    now = call("multimem_st")
    _element(now, ptr, tuple(_SUMS))
    for copy in _copies(now, ptr, mask):
        tl.store(copy, value, mask)


def multimem_red(ptr: Any, value: Any, mask: Any = None, sem: str = "relaxed") -> None:
    """Add `value` at `ptr` on all ranks, atomically on each: fp32, bf16, fp16, int32.

    `sem`: "relaxed" or "release", at system scope. Raises `NoMulticast`, `IllegalShmemArgument`.
    """
    now = call("multimem_red")
    _element(now, ptr, tuple(_SUMS))
    order = sem.value if isinstance(sem, tl.constexpr) else sem
    if order not in ("relaxed", "release"):
        now.refuse("sem", repr(order), "'relaxed', 'release'")
    for copy in _copies(now, ptr, mask):
        tl.atomic_add(copy, value, mask, sem=order, scope="sys")


def _element(now: Call, ptr: Any, legal: tuple[Any, ...]) -> Any:
    """The type that `ptr` points to."""
    names = ", ".join(str(dtype) for dtype in legal)
    if not isinstance(ptr, tl.tensor) or not ptr.dtype.is_ptr() or ptr.dtype.element_ty not in legal:
        found = f"a value of type {ptr.type}" if isinstance(ptr, tl.tensor) else repr(ptr)
        now.refuse("ptr", found, f"pointers to {names}, such as multicast_ptr.to(tl.pointer_type(tl.float32))")
    return ptr.dtype.element_ty


def _copies(now: Call, ptr: Any, mask: Any) -> Iterator[Any]:
    """The same pointers into the copy of each rank. All lanes lie in one allocation. Raises `NoMulticast`."""
    addresses = ptr.handle.data
    lanes = np.broadcast_to(np.True_ if mask is None else _data(mask), addresses.shape)
    size = ptr.dtype.element_ty.primitive_bitwidth // 8
    for shift in shifts(now.dialects.machine, now.operation, addresses[lanes], size):
        moved = (addresses.astype(np.int64) + shift).astype(np.uint64)
        yield tl.tensor(Handle(moved, ptr.handle.dtype), ptr.type)


def _data(mask: Any) -> Any:
    return mask.handle.data if isinstance(mask, tl.tensor) else np.asarray(getattr(mask, "value", mask), dtype=bool)
