"""`triton_dist.language.extra.language_extra` in an emulated kernel: what single threads of a program do.

The emulator runs a program as one, not thread by thread. Two forms of per-thread code have a meaning here: code that
every thread runs with equal arguments, and the body of `if tid(0) == k:` without an `else`, which one thread runs. Every
other use of a thread's number is `PerThreadCode`; so are additions outside such a body, which every thread would do once.

Loads acquire in the threads that run them: in all of them outside of a body, in the one thread inside of it, behind which
the others need `__syncthreads()`. Stores and additions are released by one thread: what other threads stored before is
covered only behind a `__syncthreads()`. An atomic that acquires is no CTA barrier, as `tl.atomic_*` are.
"""

from __future__ import annotations

import ast
import linecache
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import triton.language as tl

from tilelink.compat.dialects import multimem
from tilelink.compat.dialects.arguments import Call, call
from tilelink.compat.dialects.triton_dist import (
    SCOPES,
    finish_waits,
    read_word,
    text_of,
    until_equal,
    word_at,
    write_word,
)
from tilelink.emulator.errors import Unsupported
from tilelink.emulator.events import Semantic
from tilelink.emulator.numerics import Handle

if TYPE_CHECKING:
    from types import FrameType

_DEVICE_SCOPES = ("gpu", "sys")
_THREADS_PER_WARP = 32

_of_one_thread: set[tuple[str, int, int]] = set()  # lines that one thread runs; what a program says, in every world


class PerThreadCode(Unsupported):
    """Facts: `operation`, `reason`, `rank`, `task`, `place`."""

    template = (
        "{task} on rank {rank} at {place}: {operation} {reason}; programs are emulated as one, not thread by thread.\n"
        "Legal: code that all threads run with equal arguments, or one thread in the body of `if tid(0) == 0:`."
    )


def _refuse(operation: str, reason: str) -> PerThreadCode:
    return PerThreadCode(operation=operation, reason=reason, **call(operation).where())


class ThreadIndex:
    """The number of the running thread. Only `tid == k` as the test of an `if` without `else` has a value."""

    __slots__ = ("_name",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, name: str) -> None:
        self._name = name

    def __eq__(self, other: object) -> bool:
        """True: the body is run, for the one thread that would. Raises `PerThreadCode` outside of an `if`."""
        frame = sys._getframe(1)
        body = _body(frame.f_code.co_filename, frame.f_lineno)
        if body is None:
            raise _refuse(self._name, "is compared where no `if` without `else` follows")
        _of_one_thread.add(body)
        return True

    def __bool__(self) -> bool:
        raise _refuse(self._name, "is used as a condition")

    @property
    def type(self) -> Any:
        """What operators of tensors ask for first."""
        return self._unknown()

    def _unknown(self, other: object = None) -> Any:
        raise _refuse(self._name, "is used for more than `== k`")

    __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __add__ = __radd__ = __sub__ = __rsub__ = _unknown
    __mul__ = __rmul__ = __mod__ = __floordiv__ = __and__ = __lshift__ = __rshift__ = __index__ = _unknown


@cache
def _ifs(file: str) -> tuple[ast.If, ...]:
    return tuple(node for node in ast.walk(ast.parse("".join(linecache.getlines(file)))) if isinstance(node, ast.If))


def _body(file: str, line: int) -> tuple[str, int, int] | None:
    """File and lines of the body of the `if` whose test is at `line`; None without one, or with an `else`."""
    found = [node for node in _ifs(file) if node.lineno <= line <= (node.test.end_lineno or 0)]
    if not found or found[-1].orelse:
        return None
    return file, found[-1].body[0].lineno, found[-1].body[-1].end_lineno or 0


def one_thread() -> bool:
    """Whether the kernel's code that called runs inside of `if tid(0) == k:`."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file, line = frame.f_code.co_filename, frame.f_lineno
        if any(file == where and first <= line <= last for where, first, last in _of_one_thread):
            return True
        frame = frame.f_back
    return False


def tid(axis: Any) -> Any:
    """The thread's number along `axis`; blocks have one axis, so it is 0 along 1 and 2."""
    now = call("tid")
    if now.integer("axis", axis, 0):
        return now.dialects.semantic.scalar_constant(0, tl.int32)
    return ThreadIndex("tid(0)")


def syncthreads() -> None:
    """All threads of the program meet. Raises `PerThreadCode` where one thread would meet alone."""
    now = call("__syncthreads")
    if one_thread():
        raise _refuse("__syncthreads", "is called by one thread only, and would hang")
    finish_waits(now.dialects.machine)
    now.dialects.machine.barrier()


def ld(ptr: Any, scope: Any = "gpu", semantic: Any = "relaxed") -> Any:
    """The word at `ptr`, of its type. Raises `IllegalShmemArgument`, `OutOfBounds`."""
    now = call("ld")
    reach = text_of(now, "scope", scope, _DEVICE_SCOPES)
    acquires = text_of(now, "semantic", semantic, ("relaxed", "acquire")) == "acquire"
    return _load(now, ptr, reach, acquires)


def ld_acquire(ptr: Any, scope: Any = "gpu") -> Any:
    """`ld` that acquires."""
    now = call("ld_acquire")
    return _load(now, ptr, text_of(now, "scope", scope, _DEVICE_SCOPES), True)


def st(ptr: Any, val: Any, scope: Any = "gpu", semantic: Any = "relaxed") -> None:
    """Store one word. Raises `IllegalShmemArgument`, `OutOfBounds`."""
    now = call("st")
    reach = text_of(now, "scope", scope, _DEVICE_SCOPES)
    order = text_of(now, "semantic", semantic, ("relaxed", "release"))
    address, size = word_at(now, "ptr", ptr)
    bits = int.from_bytes(_bytes(now, val, ptr), "little")
    write_word(now, address, size, bits, False, Semantic(order), SCOPES[reach])


def red_release(ptr: Any, value: Any, scope: Any = "gpu") -> None:
    """Add `value` with release order; returns nothing. Raises `PerThreadCode`, `IllegalShmemArgument`."""
    now = call("red_release")
    _by_one(now)
    _release_add(now, ptr, value, text_of(now, "scope", scope, _DEVICE_SCOPES))


def atomic_add(ptr: Any, val: Any, scope: Any = "gpu", semantic: Any = "relaxed") -> Any:
    """Add `val`; returns what was there before. Raises `PerThreadCode`, `IllegalShmemArgument`."""
    now = call("atomic_add")
    _by_one(now)
    reach, order = _strength(now, ptr, scope, semantic)
    found = tl.atomic_add(ptr, val, sem=_without_acquire(order), scope=reach)
    _acquire(now, order, reach)
    return found


def atomic_cas(ptr: Any, cmp_val: Any, target_val: Any, scope: Any = "gpu", semantic: Any = "relaxed") -> Any:
    """Put `target_val` in the place of `cmp_val`; returns what was there before. Raises `IllegalShmemArgument`."""
    now = call("atomic_cas")
    _by_one(now)
    reach, order = _strength(now, ptr, scope, semantic)
    element = ptr.dtype.element_ty
    expected, wanted = (now.dialects.semantic.to_tensor(x).to(element) for x in (cmp_val, target_val))
    found = tl.atomic_cas(ptr, expected, wanted, sem=_without_acquire(order), scope=reach)
    _acquire(now, order, reach)
    return found


def wait_eq(ptr: Any, thread_idx: Any, value: Any, scope: Any = "gpu") -> None:
    """Thread 0 waits until the word was seen equal to `value`, acquires, and all threads meet."""
    now = call("wait_eq")
    reach = text_of(now, "scope", scope, _DEVICE_SCOPES)
    until_equal(now, ptr, value, SCOPES[reach])
    now.dialects.machine.fence(f"fence.acquire.{reach}")
    syncthreads()


def arrive_inc(ptr: Any, thread_idx: Any, value: Any, scope: Any = "gpu") -> None:
    """All threads meet, then thread 0 adds `value` with release order."""
    syncthreads()
    now = call("arrive_inc")
    _release_add(now, ptr, value, text_of(now, "scope", scope, _DEVICE_SCOPES))


def fence(semantic: Any = "acq_rel", scope: Any = "gpu") -> None:
    """An ordering fence of every thread."""
    now = call("fence")
    order, reach = text_of(now, "semantic", semantic, ("acq_rel", "sc")), text_of(now, "scope", scope, tuple(SCOPES))
    now.dialects.machine.fence(f"fence.{order}.{reach}")


def membar(scope: Any = "cta") -> None:
    """The fence of `membar.cta`, `membar.gl` or `membar.sys`."""
    now = call("membar")
    reach = text_of(now, "scope", scope, ("cta", "gl", "gpu", "sys"))
    now.dialects.machine.fence(f"membar.{'gl' if reach == 'gpu' else reach}")


def tma_sync(N: Any = 0) -> None:
    """All descriptor stores but the last `N` are complete."""
    now = call("tma_sync")
    now.dialects.machine.fence(f"cp.async.bulk.wait_group {now.integer('N', N, 0)}")


def threads_per_warp() -> Any:
    """32, int32."""
    return call("threads_per_warp").dialects.semantic.scalar_constant(_THREADS_PER_WARP, tl.int32)


def globaltimer() -> Any:
    """Clocks of the emulation, int64: see `scheduler`."""
    now = call("globaltimer")
    return now.dialects.semantic.scalar_constant(now.dialects.machine.spins.clock(), tl.int64)


def smid() -> Any:
    """A number of an SM for this program, int32: its own number modulo the SMs, not where it was put."""
    now = call("smid")
    task, machine = now.dialects.machine.scheduler.task, now.dialects.machine
    x, y, z = task.program
    number = x + task.grid[0] * (y + task.grid[1] * z)
    return now.dialects.semantic.scalar_constant(number % machine.num_sms, tl.int32)


def pack_b32_v2(v0: Any, v1: Any) -> Any:
    """int64 with the 32 bits of `v0` low and those of `v1` high."""
    to_tensor = call("pack_b32_v2").dialects.semantic.to_tensor
    low, high = (to_tensor(v).to(tl.int32, bitcast=True) for v in (v0, v1))
    return low.to(tl.int64) & 0xFFFFFFFF | high.to(tl.int64) << 32


def load_words(name: str, ptr: Any, count: int, dtype: Any) -> tuple[Any, ...]:
    """`count` words of type `dtype` from `ptr` on, loaded by every thread."""
    now = call(name)
    address, step = now.address("ptr", ptr), dtype.primitive_bitwidth // 8
    typed = [_pointer(address + step * lane, dtype) for lane in range(count)]
    return tuple(_load(now, one, "sys", False) for one in typed)


def store_words(name: str, ptr: Any, values: tuple[Any, ...], dtype: Any) -> None:
    """Words of type `dtype` from `ptr` on, stored by every thread."""
    now = call(name)
    address, step = now.address("ptr", ptr), dtype.primitive_bitwidth // 8
    for lane, value in enumerate(values):
        typed = _pointer(address + step * lane, dtype)
        bits = int.from_bytes(_bytes(now, value, typed), "little")
        write_word(now, address + step * lane, step, bits, False, Semantic.RELAXED, SCOPES["sys"])


def multimem_st(name: str, ptr: Any, values: tuple[Any, ...], mask: Any = None) -> None:
    """Words of 32 bits to the same place on all ranks; `mask` is one condition. Raises `NoMulticast`."""
    now = call(name)
    if mask is not None and not now.integer("mask", mask):
        return
    address = now.address("ptr", ptr)
    for lane, value in enumerate(values):
        content = _bytes(now, value, None)
        for part in range(0, len(content), 4):
            word = tl.tensor(Handle(np.frombuffer(content[part : part + 4], np.int32).copy(), tl.int32), tl.int32)
            multimem.multimem_st(_pointer(address + lane * len(content) + part, tl.int32), word)


def multimem_ld_reduce_v4(ptr: Any, acc_dtype: Any = None) -> tuple[Any, ...]:
    """The sum over all ranks of 16 bytes of fp32, bf16 or fp16 as four int32. Raises `NoMulticast`."""
    now = call("multimem_ld_reduce_v4")
    element = ptr.dtype.element_ty if isinstance(ptr, tl.tensor) and ptr.dtype.is_ptr() else None
    if element not in (tl.float32, tl.bfloat16, tl.float16):
        now.refuse("ptr", getattr(ptr, "type", ptr), "one pointer to fp32, bf16 or fp16")
    total = multimem.multimem_ld_reduce(ptr + tl.arange(0, 128 // element.primitive_bitwidth))
    words = np.ascontiguousarray(total.handle.data).view(np.int32)
    return tuple(tl.tensor(Handle(words[lane : lane + 1].copy(), tl.int32), tl.int32) for lane in range(4))


def not_emulated(name: str) -> Any:
    """A function that tells threads apart, and so has no meaning for a program that is run as one."""

    def function(*_: object, **__: object) -> Any:
        raise _refuse(name, "is called")

    return function


def _by_one(now: Call) -> None:
    if not one_thread():
        raise _refuse(now.operation, "is called by all threads, each of which does it once")


def _strength(now: Call, ptr: Any, scope: Any, semantic: Any) -> tuple[str, str]:
    word_at(now, "ptr", ptr)
    orders = ("relaxed", "acquire", "release", "acq_rel")
    return text_of(now, "scope", scope, _DEVICE_SCOPES), text_of(now, "semantic", semantic, orders)


def _without_acquire(order: str) -> str:
    """What of an atomic is left when the acquire is done by a fence: `tl.atomic_*` would add a CTA barrier."""
    return "release" if order in ("release", "acq_rel") else "relaxed"


def _acquire(now: Call, order: str, reach: str) -> None:
    if order in ("acquire", "acq_rel"):
        now.dialects.machine.fence(f"fence.acquire.{reach}")


def _release_add(now: Call, ptr: Any, value: Any, reach: str) -> None:
    address, size = word_at(now, "ptr", ptr)
    write_word(now, address, size, now.integer("value", value), True, Semantic.RELEASE, SCOPES[reach])


def _load(now: Call, ptr: Any, reach: str, acquires: bool) -> Any:
    address, size = word_at(now, "ptr", ptr)
    now.dialects.machine.scheduler.switch()
    bits = read_word(now, address, size, SCOPES[reach], every=not one_thread())
    _acquire(now, "acquire" if acquires else "relaxed", reach)
    word = np.array([bits], np.int64 if size == 8 else np.int32)
    kind = tl.int64 if size == 8 else tl.int32
    return tl.tensor(Handle(word, kind), kind).to(ptr.dtype.element_ty, bitcast=True)


def _pointer(address: int, element: Any) -> Any:
    kind = tl.pointer_type(element)
    return tl.tensor(Handle(np.array([address], np.uint64), kind), kind)


def _bytes(now: Call, value: Any, ptr: Any) -> bytes:
    """A scalar as it lies in memory at `ptr`; of its own type where there is no pointer."""
    tensor = now.dialects.semantic.to_tensor(value)
    if ptr is not None:
        tensor = tensor.to(ptr.dtype.element_ty)
    content: bytes = np.ascontiguousarray(tensor.handle.data).tobytes()
    return content
