"""Kernels in the words of other libraries, each for one property of a dialect."""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from tilelink.compat.dialects import openshmem as shmem
from tilelink.compat.dialects.multimem import multimem_ld_reduce, multimem_red, multimem_st


@triton.jit
def fill(x, value, N: tl.constexpr):
    tl.store(x + tl.arange(0, N), tl.zeros((N,), tl.int32) + value)


@triton.jit
def copy(out, x, N: tl.constexpr):
    lane = tl.arange(0, N)
    tl.store(out + lane, tl.load(x + lane))


@triton.jit
def ring(x, signal, out, N: tl.constexpr, NBI: tl.constexpr):
    """Row 0 of x [2, N] goes to row 1 of the next rank, with a signal."""
    me = shmem.my_pe()
    peer = (me + 1) % shmem.n_pes()
    fill(x, me + 1, N)
    if NBI:
        shmem.putmem_signal_nbi_block(x + N, x, N * 4, signal, 7, shmem.NVSHMEM_SIGNAL_SET, peer)
    else:
        shmem.putmem_signal_block(x + N, x, N * 4, signal, 7, shmem.NVSHMEM_SIGNAL_SET, peer)
    seen = shmem.signal_wait_until(signal, shmem.NVSHMEM_CMP_GE, 7)
    copy(out, x + N, N)
    tl.store(out + N, seen.to(tl.int32))


@triton.jit
def put_then_signal(x, signal, out, N: tl.constexpr, ORDER: tl.constexpr):
    """Rank 0 puts and then signals; rank 1 reads what has come."""
    if shmem.my_pe() == 0:
        fill(x, 5, N)
        shmem.putmem_nbi_block(x + N, x, N * 4, 1)
        if ORDER == "fence":
            shmem.fence()
        if ORDER == "quiet":
            shmem.quiet()
        shmem.signal_op(signal, 1, shmem.NVSHMEM_SIGNAL_SET, 1)
    else:
        shmem.signal_wait_until(signal, shmem.NVSHMEM_CMP_EQ, 1)
        copy(out, x + N, N)


@triton.jit
def put_and_reuse(x, signal, out, N: tl.constexpr, HOW: tl.constexpr):
    """Rank 0 puts 5s and overwrites its source with 6s; rank 1 reads."""
    if shmem.my_pe() == 0:
        fill(x, 5, N)
        if HOW == "blocking":
            shmem.putmem_signal_block(x + N, x, N * 4, signal, 1, shmem.NVSHMEM_SIGNAL_SET, 1)
        else:
            shmem.putmem_signal_nbi_block(x + N, x, N * 4, signal, 1, shmem.NVSHMEM_SIGNAL_SET, 1)
        if HOW == "quiet":
            shmem.quiet()
        fill(x, 6, N)
    else:
        shmem.signal_wait_until(signal, shmem.NVSHMEM_CMP_NE, 0)
        copy(out, x + N, N)


@triton.jit
def put_twice(x, QUIET: tl.constexpr, N: tl.constexpr):
    """Rank 0 puts the same data twice to one place."""
    if shmem.my_pe() == 0:
        fill(x, 5, N)
        shmem.putmem_nbi_block(x + N, x, N * 4, 1)
        if QUIET:
            shmem.quiet()
        shmem.putmem_nbi_block(x + N, x, N * 4, 1)


@triton.jit
def get(x, out, N: tl.constexpr, HOW: tl.constexpr):
    """Every rank fetches row 0 of the next rank to its row 1, all ranks having filled theirs."""
    me = shmem.my_pe()
    fill(x, me + 1, N)
    shmem.barrier_all_block()
    peer = (me + 1) % shmem.n_pes()
    if HOW == "blocking":
        shmem.getmem_block(x + N, x, N * 4, peer)
    else:
        shmem.getmem_nbi_block(x + N, x, N * 4, peer)
    if HOW == "quiet":
        shmem.quiet()
    copy(out, x + N, N)
    shmem.barrier_all_block()


@triton.jit
def get_to_a_local_tensor(x, out, N: tl.constexpr):
    shmem.getmem(out, x, N * 4, shmem.my_pe())


@triton.jit
def put_then_meet(x, out, N: tl.constexpr, BARRIER: tl.constexpr):
    me = shmem.my_pe()
    fill(x, me + 1, N)
    shmem.putmem_nbi_block(x + N, x, N * 4, (me + 1) % shmem.n_pes())
    if BARRIER:
        shmem.barrier_all_block()
    else:
        shmem.sync_all_block()
    copy(out, x + N, N)


@triton.jit
def count(signal, out):
    """All ranks add 1 at rank 0, which waits for all."""
    shmem.signal_op(signal, 1, shmem.NVSHMEM_SIGNAL_ADD, 0)
    if shmem.my_pe() == 0:
        tl.store(out, shmem.signal_wait_until(signal, shmem.NVSHMEM_CMP_EQ, shmem.n_pes()).to(tl.int32))


@triton.jit
def wait_until(signal, out, COMPARISON: tl.constexpr, value):
    tl.store(out, shmem.signal_wait_until(signal, COMPARISON, value).to(tl.int32))


@triton.jit
def flag_by_int_p(x, flag, out, N: tl.constexpr, FENCE: tl.constexpr):
    if shmem.my_pe() == 0:
        fill(x, 5, N)
        shmem.putmem_nbi_block(x + N, x, N * 4, 1)
        if FENCE:
            shmem.fence()
        shmem.int_p(flag, 1, 1)
    else:
        while tl.atomic_add(flag, 0, sem="acquire", scope="sys") == 0:
            pass
        copy(out, x + N, N)


@triton.jit
def store_through_remote_ptr(x, N: tl.constexpr):
    me = shmem.my_pe()
    fill(shmem.remote_ptr(x, (me + 1) % shmem.n_pes()), me + 1, N)


@triton.jit
def broadcast(x, signal, out, N: tl.constexpr):
    """From rank 1, which then releases the others: they call only afterwards."""
    me = shmem.my_pe()
    if me == 1:
        fill(x, 9, N)
        shmem.broadcast_block(shmem.NVSHMEM_TEAM_WORLD, x + N, x, N, 1)
        fill(x, 8, N)
        for pe in range(shmem.n_pes()):
            shmem.signal_op(signal, 1, shmem.NVSHMEM_SIGNAL_SET, pe)
    else:
        shmem.signal_wait_until(signal, shmem.NVSHMEM_CMP_EQ, 1)
        shmem.broadcastmem_block(shmem.NVSHMEM_TEAM_WORLD, x + N, x, N * 4, 1)
    copy(out, x + N, N)


@triton.jit
def broadcast_alike(x, out, N: tl.constexpr):
    me = shmem.my_pe()
    fill(x, me + 9, N)
    shmem.broadcast_block(shmem.NVSHMEM_TEAM_WORLD, x + N, x, N, 1)
    fill(x, 8, N)
    copy(out, x + N, N)


@triton.jit
def lonely_root(x, signal, N: tl.constexpr):
    """The root does not wait for the others' call."""
    if shmem.my_pe() == 0:
        shmem.broadcast_block(shmem.NVSHMEM_TEAM_WORLD, x + N, x, N, 0)
        shmem.signal_op(signal, 1, shmem.NVSHMEM_SIGNAL_SET, 1)
    else:
        shmem.signal_wait_until(signal, shmem.NVSHMEM_CMP_EQ, 1)
        shmem.broadcast_block(shmem.NVSHMEM_TEAM_WORLD, x + N, x, N, 0)


@triton.jit
def meet_differently(x):
    if shmem.my_pe() == 0:
        shmem.barrier_all()
    else:
        shmem.sync_all()


@triton.jit
def everyone_meets(x):
    shmem.barrier_all()


@triton.jit
def put(dest, source, num_bytes, pe):
    shmem.putmem(dest, source, num_bytes, pe)


@triton.jit
def put_nbi(dest, source, num_bytes, pe):
    shmem.putmem_nbi(dest, source, num_bytes, pe)


@triton.jit
def put_to_translated(x):
    shmem.putmem(shmem.remote_ptr(x, 1), x, 4, 1)


@triton.jit
def signal(word, op, pe):
    shmem.signal_op(word, 1, op, pe)


@triton.jit
def put_a_block(x, N: tl.constexpr):
    shmem.putmem(x + tl.arange(0, N), x, 4, 0)


@triton.jit
def all_reduce_by_multimem(
    multicast, local, arrived, arrived_multicast, rank, NUM_RANKS: tl.constexpr, N: tl.constexpr, WAIT: tl.constexpr
):
    """Two-shot: each rank sums its part of N elements and stores the sum on all ranks."""
    part: tl.constexpr = N // NUM_RANKS
    lane = tl.arange(0, N)
    own = (lane // part) == rank
    tl.debug_barrier()
    multimem_red(arrived_multicast.to(tl.pointer_type(tl.int32)), 1, sem="release")
    if WAIT:
        while tl.atomic_add(arrived, 0, sem="acquire", scope="sys") < NUM_RANKS:
            pass
    address = multicast.to(tl.pointer_type(local.dtype.element_ty)) + lane
    multimem_st(address, multimem_ld_reduce(address, own), own)
    tl.debug_barrier()
    multimem_red(arrived_multicast.to(tl.pointer_type(tl.int32)), 1, sem="release")
    while tl.atomic_add(arrived, 0, sem="acquire", scope="sys") < 2 * NUM_RANKS:
        pass


@triton.jit
def sum_at(address, out, N: tl.constexpr):
    lane = tl.arange(0, N)
    # a small integer argument, such as the 0 of no multicast, is an int32
    total = multimem_ld_reduce(address.to(tl.int64).to(tl.pointer_type(tl.float32)) + lane)
    tl.store(out + lane, total)


@triton.jit
def red_block(address, ELEMENT: tl.constexpr, N: tl.constexpr):
    lane = tl.arange(0, N)
    multimem_red(address.to(tl.pointer_type(ELEMENT)) + lane, (lane + 1).to(ELEMENT), lane < N - 1)


@triton.jit
def plain_load(address, out):
    tl.store(out, tl.load(address.to(tl.pointer_type(tl.float32))))


@triton.jit
def sum_bytes(address, out):
    tl.store(out, multimem_ld_reduce(address.to(tl.pointer_type(tl.int8))))


@triton.jit
def through_remote_mc_ptr(x, out):
    address = shmem.remote_mc_ptr(shmem.NVSHMEMX_TEAM_NODE, x + 1)
    if address.to(tl.int64) != 0:
        tl.store(out, multimem_ld_reduce(address))


@triton.jit
def add_one(x, out, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < count) + 1, mask=offsets < count)


@triton.jit
def read_peer(buffer_ptrs, out, peer, N: tl.constexpr):
    table = buffer_ptrs.to(tl.pointer_type(tl.uint64))
    copy(out, tl.load(table + peer).to(tl.pointer_type(tl.int32)), N)


@triton.jit
def wait_for_word(word):
    while tl.atomic_add(word, 0, sem="acquire", scope="sys") == 0:
        pass


tuned = triton.autotune(
    configs=[triton.Config({"BLOCK": 8}, num_warps=2), triton.Config({"BLOCK": 16})], key=["count"]
)(triton.jit(add_one.fn))
guessed = triton.heuristics({"BLOCK": lambda args: 4 * (args["count"] // 4)})(triton.jit(add_one.fn))
