"""`triton_dist.language.extra.libshmem_device` over peer addresses of one node, with NVSHMEM's names and constants.

Sizes are bytes; the rank that is addressed comes last; a symmetric object is named by this rank's own address of it. What
differs from the library: a call is one call by all threads of the program, whatever its variant; a signal is raised, and
added to, once; a team is the world; collectives make all ranks meet.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton.language as tl

from tilelink.compat.dialects import openshmem
from tilelink.compat.triton_dist.device import assembly, peers, transfers, words
from tilelink.compat.triton_dist.kernels import device

NVSHMEM_CMP_EQ = openshmem.NVSHMEM_CMP_EQ
NVSHMEM_CMP_NE = openshmem.NVSHMEM_CMP_NE
NVSHMEM_CMP_GT = openshmem.NVSHMEM_CMP_GT
NVSHMEM_CMP_LE = openshmem.NVSHMEM_CMP_LE
NVSHMEM_CMP_LT = openshmem.NVSHMEM_CMP_LT
NVSHMEM_CMP_GE = openshmem.NVSHMEM_CMP_GE
NVSHMEM_SIGNAL_SET = openshmem.NVSHMEM_SIGNAL_SET
NVSHMEM_SIGNAL_ADD = openshmem.NVSHMEM_SIGNAL_ADD
NVSHMEM_TEAM_WORLD = openshmem.NVSHMEM_TEAM_WORLD
NVSHMEMX_TEAM_NODE = openshmem.NVSHMEMX_TEAM_NODE


@device(openshmem.my_pe)
def my_pe():
    """This rank, int32."""
    return peers.this_rank()


@device(openshmem.n_pes)
def n_pes():
    """The number of ranks, int32."""
    return peers.count_ranks()


@device(openshmem.team_my_pe)
def team_my_pe(team):
    """`my_pe` in a team."""
    return peers.this_rank()


@device(openshmem.team_n_pes)
def team_n_pes(team):
    """`n_pes` of a team."""
    return peers.count_ranks()


@device(openshmem.remote_ptr)
def remote_ptr(local_ptr, pe):
    """Where `pe` has what the scalar `local_ptr` points to here; 0 outside of the symmetric heap."""
    if local_ptr.dtype.is_ptr():
        return peers.pointer_at(local_ptr, pe)
    else:
        return peers.address_at(local_ptr.to(tl.int64), pe)


@device(openshmem.remote_mc_ptr)
def remote_mc_ptr(team, ptr):
    """The multicast address of what `ptr` points to; 0 where there is no multicast."""
    return peers.multicast_address(ptr.to(tl.int64)).to(ptr.dtype)


@device(openshmem.int_p)
def int_p(dest, value, pe):
    """One int32 to `dest` at `pe`."""
    word = peers.address_at(transfers.address_of(dest), pe).to(tl.pointer_type(tl.int32))
    words.store(word, value, "sys", "relaxed")


@device(openshmem.putmem)
def putmem(dest, source, bytes, pe):
    """`bytes` bytes of `source` to `dest` at `pe`."""
    transfers.put(dest, source, bytes, pe)


@device(openshmem.putmem_nbi)
def putmem_nbi(dest, source, bytes, pe):
    """`putmem`; in the library it returns before `source` is read."""
    transfers.put(dest, source, bytes, pe)


@device(openshmem.getmem)
def getmem(dest, source, bytes, pe):
    """`bytes` bytes of `source` at `pe` to `dest`."""
    transfers.get(dest, source, bytes, pe)


@device(openshmem.getmem_nbi)
def getmem_nbi(dest, source, bytes, pe):
    """`getmem`; in the library it returns before `dest` is written."""
    transfers.get(dest, source, bytes, pe)


@device(openshmem.putmem_signal)
def putmem_signal(dest, source, bytes, sig_addr, signal, sig_op, pe):
    """`putmem`, then `signal_op` in this order at `pe`."""
    transfers.put_with_signal(dest, source, bytes, sig_addr, signal, sig_op, pe)


@device(openshmem.putmem_signal_nbi)
def putmem_signal_nbi(dest, source, bytes, sig_addr, signal, sig_op, pe):
    """`putmem_nbi`, then `signal_op` in this order at `pe`."""
    transfers.put_with_signal(dest, source, bytes, sig_addr, signal, sig_op, pe)


@device(openshmem.signal_op)
def signal_op(sig_addr, signal, sig_op, pe):
    """Set the 64-bit word at `pe`, or add to it: once, by thread 0."""
    transfers.raise_signal(sig_addr, signal, sig_op, pe)


@device(openshmem.signal_wait_until)
def signal_wait_until(sig_addr, cmp_: tl.constexpr, cmp_val):
    """Spin until this rank's 64-bit word compares so, as an unsigned number; acquires and returns it, uint64."""
    word = transfers.address_of(sig_addr).to(tl.pointer_type(tl.uint64))
    return words.until(word, cmp_val, "sys", cmp_)


@device(openshmem.fence)
def fence():
    """Stores and puts so far come before later ones, at every rank."""
    text: tl.constexpr = assembly.membar_text("sys")
    words.execute(text)


@device(openshmem.quiet)
def quiet():
    """All puts so far are done, and their bytes there."""
    text: tl.constexpr = assembly.membar_text("sys")
    words.execute(text)


@device(openshmem.barrier_all)
def barrier_all():
    """`quiet`, then all ranks meet: one program of each."""
    transfers.meet_ranks(transfers.DEVICE_SLOT)


@device(openshmem.barrier)
def barrier(team):
    """`barrier_all` of a team."""
    transfers.meet_ranks(transfers.DEVICE_SLOT)


@device(openshmem.sync_all)
def sync_all():
    """All ranks meet."""
    transfers.meet_ranks(transfers.DEVICE_SLOT)


@device(openshmem.team_sync)
def team_sync(team):
    """`sync_all` of a team."""
    transfers.meet_ranks(transfers.DEVICE_SLOT)


@device(openshmem.broadcastmem)
def broadcastmem(team, dest, source, nelems, pe_root):
    """`nelems` bytes of the root's `source` to `dest` on every rank."""
    transfers.broadcast(dest, source, nelems, pe_root)


@device(openshmem.broadcast)
def broadcast(team, dest, source, nelems, pe_root):
    """`nelems` elements of the type that `dest` points to."""
    transfers.broadcast(dest, source, nelems * (dest.dtype.element_ty.primitive_bitwidth // 8), pe_root)


def _fcollectmem(team, dest, source, nelems):
    _emulated_fcollect(team, dest, source, nelems)


def _fcollect(team, dest, source, nelems):
    _emulated_fcollect(team, dest, source, nelems * (dest.dtype.element_ty.primitive_bitwidth // 8))


def _emulated_fcollect(team, dest, source, num_bytes):
    """A broadcast from each rank in turn."""
    start = dest.to(tl.int64)
    for root in range(openshmem.n_pes().handle.data.item()):
        openshmem.broadcastmem(team, start + root * num_bytes, source, num_bytes, root)


@device(_fcollectmem)
def fcollectmem(team, dest, source, nelems):
    """`nelems` bytes of each rank's `source`, one behind the other, to `dest` on every rank."""
    transfers.collect(dest, source, nelems)


@device(_fcollect)
def fcollect(team, dest, source, nelems):
    """`nelems` elements of the type that `dest` points to."""
    transfers.collect(dest, source, nelems * (dest.dtype.element_ty.primitive_bitwidth // 8))


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
fcollect_block = fcollect_warp = fcollect
fcollectmem_block = fcollectmem_warp = fcollectmem
