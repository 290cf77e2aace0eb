"""`triton_dist.language` (`dl`) in an emulated kernel: rank, num_ranks, symm_at, wait, consume_token, notify.

Meaning, as the fork's lowering for NVIDIA has it:

- `wait` ends when each of its words was seen *equal* to `waitValue`. A word that passes the value before it is looked at
  is waited for in vain, and the run is a deadlock. Every warp polls, so no CTA barrier is needed after it, and it is none.
- The acquire belongs to the token. Nothing that follows a `wait` is ordered after it until `consume_token` takes its
  token, or the threads meet in `__syncthreads`: for the compiler may move a load that does not depend on the token. So a
  load without a token is reported by the race detector as one that acquired nothing. Which loads take the token is not
  followed any further: once a program has consumed it, all that it does later counts as ordered.
- A relaxed wait acquires nothing, and scope "gpu" nothing of another rank.
- A descriptor that takes a token is behind a proxy fence, too. The shim on stock Triton compiles it so.
- `notify` is done by one thread, without a CTA barrier before it. Stores that other threads of the program made are
  therefore released only if `__syncthreads` stands between. It is the same release as `tl.atomic_xchg(sem="release")`.
- `notify` of `comm_scope="gpu"` raises this rank's own word whatever `rank` says, with GPU scope; "inter_node" is a
  `signal_op` of NVSHMEM, which reaches the peer later and is ordered by `libshmem_device.fence` only.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import triton.language as tl

from tilelink.compat.dialects import openshmem
from tilelink.compat.dialects.arguments import Call, call
from tilelink.emulator.events import Kind, Scope, Semantic, Via
from tilelink.emulator.numerics import Handle
from tilelink.emulator.operations import Signal, Transfer
from tilelink.emulator.task import Wait

if TYPE_CHECKING:
    from tilelink.emulator.machine import Machine

MOST_BARRIERS = 32  # of one wait: one for each lane of a warp

SCOPES = {"cta": Scope.CTA, "gpu": Scope.GPU, "sys": Scope.SYSTEM}
_SIGNAL_OPS = ("set", "add")
_COMM_SCOPES = ("gpu", "intra_node", "inter_node")
_SIGNAL_TYPES = (tl.int64, tl.uint64)
_UNSIGNED = (1 << 64) - 1

_acquiring: WeakKeyDictionary[Machine, dict[int, set[str]]] = (
    WeakKeyDictionary()
)  # by task: scopes of waits, not consumed


def rank(axis: Any = -1) -> Any:
    """This rank, int32; `axis` is ignored."""
    return openshmem.my_pe()


def num_ranks(axis: Any = -1) -> Any:
    """The number of ranks, int32; `axis` is ignored."""
    return openshmem.n_pes()


def symm_at(ptr: Any, rank: Any) -> Any:
    """Where `rank` has what the scalar `ptr` points to here. Raises `NotSymmetric`, `IllegalShmemArgument`."""
    now = call("symm_at")
    if not (isinstance(ptr, tl.tensor) and ptr.dtype.is_ptr() and not ptr.type.is_block()):
        found = f"a value of type {ptr.type}" if isinstance(ptr, tl.tensor) else repr(ptr)
        now.refuse("ptr", found, "one scalar pointer; add offsets to what symm_at returns")
    address = now.copies("ptr", now.address("ptr", ptr))[now.pe("rank", rank)]
    return tl.tensor(Handle(np.array([address], np.uint64), ptr.handle.dtype), ptr.type)


def wait(barrierPtrs: Any, numBarriers: Any, scope: Any, semantic: Any, waitValue: Any = 1) -> Any:
    """Block until each of `numBarriers` words (int32 or int64) was seen equal to `waitValue`; returns the token, int32.

    Raises `IllegalShmemArgument`, `OutOfBounds`.
    """
    now = call("wait")
    count = now.integer("numBarriers", numBarriers, 1)
    if count > MOST_BARRIERS:
        now.refuse("numBarriers", count, f"at most {MOST_BARRIERS}: one warp polls them; use several waits")
    reach = text_of(now, "scope", scope, tuple(SCOPES))
    acquires = text_of(now, "semantic", semantic, ("acquire", "relaxed")) == "acquire"
    first, size = word_at(now, "barrierPtrs", barrierPtrs)
    wanted = now.integer("waitValue", waitValue)
    _until_equal(now, [first + size * lane for lane in range(count)], size, wanted, SCOPES[reach])
    token = tl.tensor(Handle(np.zeros(1, np.int32), tl.int32), tl.int32)
    if acquires:
        machine = now.dialects.machine
        pending = _acquiring.setdefault(machine, {})
        pending.setdefault(machine.scheduler.task.identity.number, set()).add(reach)
        token.acquires = reach
    return token


def consume_token(value: Any, token: Any) -> Any:
    """`value`, for loads after the wait that made `token`. Raises `IllegalShmemArgument`."""
    now = call("consume_token")
    if not isinstance(token, tl.tensor) or token.type.is_block() or token.dtype is not tl.int32:
        found = f"a value of type {token.type}" if isinstance(token, tl.tensor) else repr(token)
        now.refuse("token", found, "what dl.wait returned; the value comes first")
    machine = now.dialects.machine
    reach = getattr(token, "acquires", "")
    if reach:
        machine.fence(f"fence.acquire.{reach}")
        _acquiring.get(machine, {}).get(machine.scheduler.task.identity.number, set()).discard(reach)
        if isinstance(value, tl.core.tensor_descriptor_base):
            machine.fence("fence.proxy.async.global")
    return value


def finish_waits(machine: Machine) -> None:
    """The running program's waits whose token nobody took acquire now: its threads are about to meet."""
    pending = _acquiring.get(machine, {}).pop(machine.scheduler.task.identity.number, set())
    for reach in sorted(pending):
        machine.fence(f"fence.acquire.{reach}")


def notify(ptr: Any, rank: Any, signal: Any = 1, sig_op: Any = "set", comm_scope: Any = "inter_node") -> None:
    """Set the 64-bit word at `rank` to `signal`, or add it. Raises `IllegalShmemArgument`, `NotSymmetric`, `OutOfBounds`."""
    now = call("notify")
    address, _ = word_at(now, "ptr", ptr)
    if ptr.dtype.element_ty not in _SIGNAL_TYPES:
        now.refuse("ptr", f"a pointer to {ptr.dtype.element_ty}", "one pointer to int64 or uint64")
    value = now.integer("signal", signal)
    adds = text_of(now, "sig_op", sig_op, _SIGNAL_OPS) == "add"
    reach = text_of(now, "comm_scope", comm_scope, _COMM_SCOPES)
    peer = now.pe("rank", rank)
    target = address if reach == "gpu" else now.copies("ptr", address)[peer]
    if reach == "inter_node":
        now.check_bytes(address, 8)
        signal_word = Signal(target, value, adds)
        now.dialects.deliveries.issue(Transfer(now.operation, peer, 0, b"", 0, signal_word))
    else:
        write_word(now, target, 8, value, adds, Semantic.RELEASE, Scope.GPU if reach == "gpu" else Scope.SYSTEM)


def text_of(now: Call, parameter: str, x: Any, legal: tuple[str, ...]) -> str:
    """One of the words `legal`. Raises `IllegalShmemArgument`."""
    value = x.value if isinstance(x, tl.constexpr) else x
    if not isinstance(value, str) or value not in legal:
        now.refuse(parameter, repr(value), ", ".join(map(repr, legal)))
    return value


def word_at(now: Call, parameter: str, x: Any) -> tuple[int, int]:
    """Address and bytes of a word of 4 or 8 bytes that one pointer points to. Raises `IllegalShmemArgument`."""
    if not isinstance(x, tl.tensor) or x.type.is_block() or not x.dtype.is_ptr():
        found = f"a value of type {x.type}" if isinstance(x, tl.tensor) else repr(x)
        now.refuse(parameter, found, "one pointer, the same in all threads")
    size = x.dtype.element_ty.primitive_bitwidth // 8
    address = int(x.handle.data.item())
    if size not in (4, 8):
        now.refuse(parameter, f"a pointer to {x.dtype.element_ty}", "pointers to words of 32 or 64 bits")
    if address % size:
        now.refuse(parameter, f"address {address:#x}", f"multiples of {size} bytes")
    return address, size


def read_word(now: Call, address: int, size: int, reach: Scope, *, every: bool = True) -> int:
    """A relaxed load by every thread, or by one. Raises `OutOfBounds`."""
    machine = now.dialects.machine
    one = np.array([address], np.uint64)
    machine.before(now.operation, one, size)
    value = int.from_bytes(ctypes.string_at(address, size), "little", signed=True)
    # for the detector a scalar load is that of each thread, an atomic that of one; lanes are told apart from both
    accesses = ((Kind.LOAD, True), (Kind.LOAD, False)) if every else ((Kind.ATOMIC, True),)
    for kind, scalar in accesses:
        order, via = Semantic.RELAXED, Via.VOLATILE
        machine.after(kind, via, one, size, changed=False, semantic=order, scope=reach, scalar=scalar)
    return value


def write_word(now: Call, address: int, size: int, value: int, adds: bool, order: Semantic, reach: Scope) -> None:
    """A store by one thread, or its addition that returns nothing. Raises `OutOfBounds`, `NoPeerAtomics`."""
    machine = now.dialects.machine
    machine.scheduler.switch()
    one = np.array([address], np.uint64)
    machine.before(f"atomic {now.operation}" if adds else now.operation, one, size)
    before = ctypes.string_at(address, size)
    total = value + (int.from_bytes(before, "little") if adds else 0)
    after = (total & (_UNSIGNED >> (64 - 8 * size))).to_bytes(size, "little")
    ctypes.memmove(address, after, size)
    kind = Kind.ATOMIC if adds else Kind.STORE
    machine.after(kind, Via.ATOMIC, one, size, changed=not adds or before != after, semantic=order, scope=reach)


def until_equal(now: Call, ptr: Any, value: Any, reach: Scope) -> None:
    """Block until the word at `ptr` was seen equal to `value`, by every thread. Raises as `wait` does."""
    address, size = word_at(now, "ptr", ptr)
    _until_equal(now, [address], size, now.integer("value", value), reach)


def _until_equal(now: Call, addresses: list[int], size: int, wanted: int, reach: Scope) -> None:
    """Each word is left alone as soon as it was seen equal, as the lane that polls it does."""
    machine = now.dialects.machine
    machine.scheduler.switch()
    mask = _UNSIGNED >> (64 - 8 * size)
    missing = addresses
    while True:
        differs = [(read_word(now, address, size, reach) ^ wanted) & mask for address in missing]
        missing = [a for a, bits in zip(missing, differs, strict=True) if bits]
        if not missing:
            return
        ranges = tuple((address, address + size) for address in missing)

        def text(shown: tuple[tuple[int, int], ...] = ranges) -> str:
            return ", ".join(f"{machine.word(*bounds)} == {wanted}" for bounds in shown[:4])

        machine.scheduler.block(Wait(text, ranges=ranges))
        if machine.scheduler.is_excused():
            return
