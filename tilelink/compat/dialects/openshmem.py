"""OpenSHMEM operations of a kernel (`libshmem_device`, NVSHMEM), emulated.

    from tilelink.compat.dialects import openshmem as shmem

    @triton.jit
    def ring_put(x, signal, num_bytes, call):
        peer = (shmem.my_pe() + 1) % shmem.n_pes()
        shmem.putmem_signal_nbi_block(x, x, num_bytes, signal, call, shmem.NVSHMEM_SIGNAL_SET, peer)
        shmem.signal_wait_until(signal, shmem.NVSHMEM_CMP_GE, call)

Names and arguments are those of the library: the rank that is addressed comes last, sizes are bytes, and a
symmetric object is named by this rank's own address of it. A pointer may be a scalar pointer or an int64.

Meaning, by the specification and not by what a peer mapping over NVLink happens to do:

- A put returns when its source may be overwritten, a `_nbi` put at once; both reach the peer later. A get
  returns with its data, a `_nbi` get at once. What is under way is ordered by `fence` (puts and signals to one
  peer) and ended by `quiet` (all of this program) or a barrier. The end of the kernel ends nothing.
- The signal of a put is written after its own data, as a release at system scope; nothing else is ordered by it.
- `signal_wait_until` acquires. It sleeps until the word changes.
- `fence` and `quiet` concern what this program has issued; that of another program of the rank is its own matter.
- Source and destination of a `_nbi` call are used later, so both are symmetric; the local side of the others
  may be any tensor given to the kernel.

A call is one call by all threads of the program, and they meet in it: that a block store needs a
`tl.debug_barrier()` before a put by one thread is not checked here. A `signal_op` with NVSHMEM_SIGNAL_ADD adds
once; on a GPU every thread that executes it adds.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np
import triton.language as tl

from tilelink.compat.dialects.arguments import Call, call
from tilelink.compat.dialects.delivery import word_at
from tilelink.emulator.numerics import Handle
from tilelink.emulator.operations import Signal, Transfer
from tilelink.emulator.task import Wait

if TYPE_CHECKING:
    from collections.abc import Callable

NVSHMEM_CMP_EQ = tl.constexpr(0)
NVSHMEM_CMP_NE = tl.constexpr(1)
NVSHMEM_CMP_GT = tl.constexpr(2)
NVSHMEM_CMP_LE = tl.constexpr(3)
NVSHMEM_CMP_LT = tl.constexpr(4)
NVSHMEM_CMP_GE = tl.constexpr(5)
NVSHMEM_SIGNAL_SET = tl.constexpr(9)
NVSHMEM_SIGNAL_ADD = tl.constexpr(10)
NVSHMEM_TEAM_WORLD = tl.constexpr(0)
NVSHMEMX_TEAM_NODE = tl.constexpr(2)

_COMPARISONS: dict[int, tuple[str, Callable[[int, int], bool]]] = {
    0: ("==", operator.eq),
    1: ("!=", operator.ne),
    2: (">", operator.gt),
    3: ("<=", operator.le),
    4: ("<", operator.lt),
    5: (">=", operator.ge),
}
_COMPARISON_NAMES = {
    value.value: name
    for name, value in (
        ("NVSHMEM_CMP_EQ", NVSHMEM_CMP_EQ),
        ("NVSHMEM_CMP_NE", NVSHMEM_CMP_NE),
        ("NVSHMEM_CMP_GT", NVSHMEM_CMP_GT),
        ("NVSHMEM_CMP_LE", NVSHMEM_CMP_LE),
        ("NVSHMEM_CMP_LT", NVSHMEM_CMP_LT),
        ("NVSHMEM_CMP_GE", NVSHMEM_CMP_GE),
    )
}
_SIGNAL_OPS = {9: "NVSHMEM_SIGNAL_SET", 10: "NVSHMEM_SIGNAL_ADD"}
_TEAMS = {0: "NVSHMEM_TEAM_WORLD", 2: "NVSHMEMX_TEAM_NODE"}  # which are one, unless nodes are told of
_UNSIGNED = (1 << 64) - 1


def my_pe() -> Any:
    """This rank, int32."""
    now = call("my_pe")
    return now.dialects.semantic.scalar_constant(now.rank, tl.int32)


def n_pes() -> Any:
    """The number of ranks, int32."""
    now = call("n_pes")
    return now.dialects.semantic.scalar_constant(now.dialects.machine.num_ranks, tl.int32)


def team_my_pe(team: Any) -> Any:
    """`my_pe` in a team."""
    call("team_my_pe").choice("team", team, _TEAMS)
    return my_pe()


def team_n_pes(team: Any) -> Any:
    """`n_pes` of a team."""
    call("team_n_pes").choice("team", team, _TEAMS)
    return n_pes()


def remote_ptr(local_ptr: Any, pe: Any) -> Any:
    """The address at `pe` of what `local_ptr` addresses here, of the same type. Raises `NotSymmetric`."""
    now = call("remote_ptr")
    copies = now.copies("local_ptr", now.address("local_ptr", local_ptr))
    return _like(local_ptr, copies[now.pe("pe", pe)])


def remote_mc_ptr(team: Any, ptr: Any) -> Any:
    """The multicast address of a symmetric pointer, 0 where the links of the team have no multicast. Raises `NotSymmetric`."""
    now = call("remote_mc_ptr")
    of_team = now.choice("team", team, _TEAMS)
    address = now.address("ptr", ptr)
    symmetric = now.copies("ptr", address)
    owner = now.dialects.machine.memory.owner(address)
    assert owner is not None
    offset = address - owner.start
    symmetry = now.dialects.machine.symmetry
    if of_team == NVSHMEM_TEAM_WORLD.value and symmetry.ranks_per_node < len(symmetric):
        return _like(ptr, 0)
    multicast = symmetry.multicast(tuple(copy - offset for copy in symmetric), owner.rank)
    return _like(ptr, 0 if multicast is None else multicast.start + offset)


def putmem(dest: Any, source: Any, bytes: Any, pe: Any) -> None:
    """`bytes` bytes of `source` to `dest` at `pe`. On return `source` may be overwritten; `dest` is written later."""
    _put(call("putmem"), dest, source, bytes, pe, stages=True)


def putmem_nbi(dest: Any, source: Any, bytes: Any, pe: Any) -> None:
    """`putmem`, but `source` is read later as well: it must not change before `quiet`."""
    _put(call("putmem_nbi"), dest, source, bytes, pe)


def putmem_signal(dest: Any, source: Any, bytes: Any, sig_addr: Any, signal: Any, sig_op: Any, pe: Any) -> None:
    """`putmem`, then `signal_op`, in this order at `pe`."""
    now = call("putmem_signal")
    _put(now, dest, source, bytes, pe, stages=True, signal=_signal(now, sig_addr, signal, sig_op, pe))


def putmem_signal_nbi(dest: Any, source: Any, bytes: Any, sig_addr: Any, signal: Any, sig_op: Any, pe: Any) -> None:
    """`putmem_nbi`, then `signal_op`, in this order at `pe`."""
    now = call("putmem_signal_nbi")
    _put(now, dest, source, bytes, pe, signal=_signal(now, sig_addr, signal, sig_op, pe))


def int_p(dest: Any, value: Any, pe: Any) -> None:
    """One int32 to `dest` at `pe`, later; a plain store there, not a signal."""
    now = call("int_p")
    number = now.integer("value", value)
    if not -(2**31) <= number < 2**31:
        now.refuse("value", number, "integers of 32 bits")
    address = now.address("dest", dest)
    copies = now.copies("dest", address)
    now.check_bytes(address, 4)
    target = now.pe("pe", pe)
    content = np.int32(number).tobytes()
    now.dialects.deliveries.issue(Transfer(now.operation, target, copies[target], content, len(content)))


def getmem(dest: Any, source: Any, bytes: Any, pe: Any) -> None:
    """`bytes` bytes of `source` at `pe` to `dest`, which holds them on return."""
    now = call("getmem")
    number = _get(now, dest, source, bytes, pe)
    now.dialects.deliveries.await_("delivered", number)


def getmem_nbi(dest: Any, source: Any, bytes: Any, pe: Any) -> None:
    """`getmem`, but `source` is read and `dest` written later, before `quiet` returns."""
    now = call("getmem_nbi")
    now.copies("dest", now.address("dest", dest))
    _get(now, dest, source, bytes, pe)


def signal_op(sig_addr: Any, signal: Any, sig_op: Any, pe: Any) -> None:
    """Set the signal word at `pe`, or add to it, later; ordered after earlier puts by `fence` or `quiet` only."""
    now = call("signal_op")
    transfer = Transfer(now.operation, now.pe("pe", pe), 0, b"", 0, _signal(now, sig_addr, signal, sig_op, pe))
    now.dialects.deliveries.issue(transfer)


def signal_wait_until(sig_addr: Any, cmp_: Any, cmp_val: Any) -> Any:
    """Block until this rank's signal word compares so (as unsigned 64-bit); acquires and returns it, uint64."""
    now = call("signal_wait_until")
    address = now.signal_word(sig_addr)[now.rank]
    sign, compare = _COMPARISONS[now.choice("cmp_", cmp_, _COMPARISON_NAMES)]
    wanted = now.integer("cmp_val", cmp_val) & _UNSIGNED
    machine = now.dialects.machine
    ends = (address, address + 8)
    while True:
        found = tl.atomic_add(word_at(address), 0, sem="acquire", scope="sys")
        if compare(int(found.handle.data.item()) & _UNSIGNED, wanted):
            return found.to(tl.uint64)
        machine.scheduler.block(Wait(lambda: f"{machine.word(*ends)} {sign} {wanted}", ranges=(ends,)))
        if machine.scheduler.is_excused():
            return found.to(tl.uint64)


def fence() -> None:
    """Deliver the puts and signals issued so far before those issued later, at each peer."""
    call("fence").dialects.deliveries.fence()


def quiet() -> None:
    """Block until all that this program has issued is delivered."""
    call("quiet").dialects.deliveries.quiet()


def barrier_all() -> None:
    """`quiet`, then all ranks meet: one program of each. Raises `CollectiveMismatch`, `OverlappingCollectives`."""
    _barrier("barrier_all")


def barrier(team: Any) -> None:
    """`barrier_all` of a team."""
    call("barrier").choice("team", team, _TEAMS)
    _barrier("barrier")


def sync_all() -> None:
    """All ranks meet; what is under way stays so."""
    now = call("sync_all")
    now.dialects.team.meet(now.operation)


def team_sync(team: Any) -> None:
    """`sync_all` of a team."""
    now = call("team_sync")
    now.choice("team", team, _TEAMS)
    now.dialects.team.meet(now.operation)


def broadcastmem(team: Any, dest: Any, source: Any, nelems: Any, pe_root: Any) -> None:
    """`nelems` bytes of the root's `source` to `dest` on every rank: no barrier, `dest` may be written early."""
    now = call("broadcastmem")
    _broadcast(now, team, dest, source, now.integer("nelems", nelems, 0), pe_root)


def broadcast(team: Any, dest: Any, source: Any, nelems: Any, pe_root: Any) -> None:
    """`broadcastmem` of `nelems` elements of the type that `dest` points to."""
    now = call("broadcast")
    if not (isinstance(dest, tl.tensor) and dest.dtype.is_ptr()):
        now.refuse("dest", dest, "a pointer, whose type says how large an element is; or broadcastmem")
    size = dest.dtype.element_ty.primitive_bitwidth // 8
    _broadcast(now, team, dest, source, now.integer("nelems", nelems, 0) * size, pe_root)


def _put(
    now: Call, dest: Any, source: Any, size: Any, pe: Any, *, stages: bool = False, signal: Signal | None = None
) -> None:
    target, num_bytes = now.pe("pe", pe), now.integer("bytes", size, 0)
    here, origin = now.address("dest", dest), now.address("source", source)
    copies = now.copies("dest", here)
    if not stages:
        now.copies("source", origin)
    now.check_bytes(origin, num_bytes)
    now.check_bytes(here, num_bytes)
    now.dialects.deliveries.issue(
        Transfer(now.operation, target, copies[target], origin, num_bytes, signal, stages=stages)
    )


def _get(now: Call, dest: Any, source: Any, size: Any, pe: Any) -> int:
    target, num_bytes = now.pe("pe", pe), now.integer("bytes", size, 0)
    here, origin = now.address("dest", dest), now.address("source", source)
    copies = now.copies("source", origin)
    now.check_bytes(origin, num_bytes)
    now.check_bytes(here, num_bytes)
    return now.dialects.deliveries.issue(Transfer(now.operation, target, here, copies[target], num_bytes, fenced=False))


def _signal(now: Call, sig_addr: Any, signal: Any, sig_op: Any, pe: Any) -> Signal:
    adds = now.choice("sig_op", sig_op, _SIGNAL_OPS) == NVSHMEM_SIGNAL_ADD.value
    return Signal(now.signal_word(sig_addr)[now.pe("pe", pe)], now.integer("signal", signal), adds)


def _barrier(operation: str) -> None:
    now = call(operation)
    now.dialects.deliveries.quiet()
    now.dialects.team.meet(operation)


def _broadcast(now: Call, team: Any, dest: Any, source: Any, num_bytes: int, pe_root: Any) -> None:
    now.choice("team", team, _TEAMS)
    here, origin = now.address("dest", dest), now.address("source", source)
    destinations = now.copies("dest", here)
    now.copies("source", origin)
    for address in (here, origin):
        now.check_bytes(address, num_bytes)
    now.dialects.team.broadcast(now.operation, destinations, origin, num_bytes, now.pe("pe_root", pe_root))


def _like(pointer: Any, address: int) -> Any:
    """`address` as a value of the type of `pointer`."""
    data = np.array([address], dtype=pointer.handle.data.dtype)
    return tl.tensor(Handle(data, pointer.handle.dtype), pointer.type)


# On a GPU these differ in which threads share the work; here all threads of a program are one.
putmem_block = putmem_warp = putmem
putmem_nbi_block = putmem_nbi_warp = putmem_nbi
putmem_signal_block = putmem_signal_warp = putmem_signal
putmem_signal_nbi_block = putmem_signal_nbi_warp = putmem_signal_nbi
getmem_block = getmem_warp = getmem
getmem_nbi_block = getmem_nbi_warp = getmem_nbi
barrier_all_block = barrier_all_warp = barrier_all
barrier_block = barrier_warp = barrier
sync_all_block = sync_all_warp = sync_all
team_sync_block = team_sync_warp = team_sync
broadcast_block = broadcast_warp = broadcast
broadcastmem_block = broadcastmem_warp = broadcastmem
