"""Kernels that call every device function of the dialect once, for the compiler; a test loads this file under the shim."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl
import triton_dist
import triton_dist.language as dl
from triton_dist.kernels.nvidia.common_ops import (
    barrier_all_intra_node_atomic_cas_block,
    barrier_all_intra_node_non_atomic,
    barrier_on_this_grid,
)
from triton_dist.language.extra import libshmem_device
from triton_dist.language.extra.cuda import language_extra as cuda
from triton_dist.language.extra.language_extra import (
    __syncthreads,
    atomic_add,
    atomic_cas,
    ld,
    num_threads,
    num_warps,
    st,
    threads_per_warp,
    tid,
)


@triton.jit
def waits(x, signals, narrow, out, count, N: tl.constexpr):
    offsets = tl.arange(0, N)
    token = dl.wait(signals, count, "sys", "acquire", waitValue=3)
    tl.store(out + offsets, tl.load(dl.consume_token(x, token) + offsets))
    dl.wait(narrow, 2, "gpu", "relaxed")


@triton.jit
def gemm_that_waits_for_each_slice(a, b, out, signals, K, M: tl.constexpr, N: tl.constexpr, BLOCK_K: tl.constexpr):
    rows, columns, depth = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK_K)
    total = tl.zeros((M, N), tl.float32)
    for start in tl.range(0, K, BLOCK_K):
        token = dl.wait(signals + start // BLOCK_K, 1, "sys", "acquire", waitValue=1)
        arrived = dl.consume_token(a, token)
        x = tl.load(arrived + rows[:, None] * K + (start + depth)[None, :])
        y = tl.load(b + (start + depth)[:, None] * N + columns[None, :])
        total += tl.dot(x, y)
    tl.store(out + rows[:, None] * N + columns[None, :], total)


@triton.jit
def gemm_by_descriptor(a, b, out, signals, K, M: tl.constexpr, N: tl.constexpr, BLOCK_K: tl.constexpr):
    rows, columns, depth = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK_K)
    total = tl.zeros((M, N), tl.float32)
    for start in tl.range(0, K, BLOCK_K):
        token = dl.wait(signals + start // BLOCK_K, 1, "sys", "acquire", waitValue=1)
        arrived = dl.consume_token(a, token)
        y = tl.load(b + (start + depth)[:, None] * N + columns[None, :])
        total += tl.dot(arrived.load([0, start]), y)
    tl.store(out + rows[:, None] * N + columns[None, :], total)


@triton_dist.jit
def notifies(data, signal, N: tl.constexpr, OP: tl.constexpr, SCOPE: tl.constexpr):
    offsets = tl.arange(0, N)
    peer = (dl.rank() + 1) % dl.num_ranks()
    tl.store(dl.symm_at(data, peer) + offsets, tl.load(data + offsets))
    __syncthreads()
    dl.notify(signal, peer, signal=2, sig_op=OP, comm_scope=SCOPE)


@triton.jit
def words(narrow, wide):
    if tid(0) == 0:
        st(narrow, 1, scope="sys", semantic="release")
        st(wide, 1)
        old = atomic_add(narrow, 1, scope="sys", semantic="acq_rel")
        atomic_cas(wide, old.to(tl.int64), 1, "gpu", "acquire")
        cuda.red_release(narrow, 1, "sys")
        cuda.red_release(wide, 1)
    cuda.wait_eq(narrow, tid(0), 4, "sys")
    cuda.arrive_inc(narrow, tid(0), 1, "gpu")
    while ld(narrow, scope="sys", semantic="acquire") != cuda.ld_acquire(narrow):
        pass
    cuda.st_b32(narrow, cuda.ld_b32(narrow, "gpu", "relaxed"))
    cuda.fence("acq_rel", "sys")
    cuda.membar("gl")
    cuda.tma_sync(0)


@triton.jit
def vectors(narrow, wide):
    a, b, c, d = cuda.load_v4_u32(narrow)
    cuda.st_v4_u32(narrow + 4, a, b, c, d)
    cuda.st_v2_u32(narrow + 8, a, b)
    a, b, c, d = cuda.load_v4_s32(narrow)
    cuda.st_v4_b32(narrow + 4, a, b, c, d, scope="sys", semantic="release")
    a, b, c, d = cuda.load_v4_b32(narrow, scope="gpu", semantic="acquire")
    cuda.st_v4_b32(narrow + 4, a, b, c, d)
    low, high = cuda.load_v2_b64(wide)
    st(wide + 2, low + high + cuda.pack_b32_v2(a, b))


@triton.jit
def threads(narrow, wide):
    lane = cuda.laneid()
    total = cuda.__shfl_sync_i32(0xFFFFFFFF, lane, 0) + cuda.__shfl_up_sync_i32(0xFFFFFFFF, lane, 1)
    total += cuda.__shfl_down_sync_i32(0xFFFFFFFF, lane, 1) + cuda.__shfl_xor_sync_i32(0xFFFFFFFF, lane, 1)
    total += cuda.__ballot_sync(0xFFFFFFFF, lane == 3).to(tl.int32) + num_warps() + num_threads() + threads_per_warp()
    total += cuda.ntid(0) + cuda.smid() + cuda.globaltimer_lo() + cuda.globaltimer_hi()
    st(narrow, total + cuda.atomic_add_per_warp(narrow + 1, 1, "gpu", "relaxed"))
    st(wide, cuda.globaltimer())


@triton_dist.jit
def puts(data, signal, word, size):
    me, count = libshmem_device.my_pe(), libshmem_device.n_pes()
    peer = (me + 1) % count
    libshmem_device.putmem_nbi_block(data, data, size, peer)
    libshmem_device.putmem(data, data, 4096, peer)
    libshmem_device.putmem_signal_nbi_block(data, data, 4096, signal, 1, libshmem_device.NVSHMEM_SIGNAL_SET, peer)
    libshmem_device.putmem_signal(data, data, 4096, signal, 1, libshmem_device.NVSHMEM_SIGNAL_ADD, peer)
    libshmem_device.signal_op(signal, 1, libshmem_device.NVSHMEM_SIGNAL_ADD, peer)
    libshmem_device.signal_wait_until(signal, libshmem_device.NVSHMEM_CMP_GE, 1)
    libshmem_device.int_p(word, me, peer)
    libshmem_device.fence()
    libshmem_device.quiet()


@triton_dist.jit
def gets(data, size):
    libshmem_device.getmem_block(data, data, size, 0)
    libshmem_device.getmem_nbi(data, data, 4096, 0)
    team = libshmem_device.NVSHMEM_TEAM_WORLD
    peer = libshmem_device.team_my_pe(team) + libshmem_device.team_n_pes(team)
    tl.store(libshmem_device.remote_ptr(data, peer), 1.0)


@triton_dist.jit
def ranks_meet():
    libshmem_device.barrier_all_block()
    libshmem_device.sync_all()


@triton_dist.jit
def teams_meet():
    libshmem_device.barrier(libshmem_device.NVSHMEM_TEAM_WORLD)
    libshmem_device.team_sync_block(libshmem_device.NVSHMEM_TEAM_WORLD)


@triton_dist.jit
def collectives(data, size):
    team = libshmem_device.NVSHMEM_TEAM_WORLD
    libshmem_device.broadcast_block(team, data, data, size, 0)
    libshmem_device.broadcastmem(team, data, data, size, 0)


@triton_dist.jit
def gathers(data, size):
    team = libshmem_device.NVSHMEM_TEAM_WORLD
    libshmem_device.fcollect(team, data, data, size)
    libshmem_device.fcollectmem_block(team, data, data, size)


@triton_dist.jit
def grid_and_ranks_meet(words, flags, rank, num_ranks, target):
    barrier_on_this_grid(words, True)
    barrier_all_intra_node_atomic_cas_block(rank, rank, num_ranks, words + 8)
    barrier_all_intra_node_non_atomic(rank, rank, num_ranks, flags, target, True)


@triton_dist.jit
def multicasts(data, wide):
    everywhere = libshmem_device.remote_mc_ptr(libshmem_device.NVSHMEMX_TEAM_NODE, data)
    a, b, c, d = cuda.multimem_ld_reduce_v4(everywhere)
    cuda.multimem_st_v4(everywhere, a, b, c, d)
    cuda.multimem_st_v2(everywhere, a, b)
    cuda.multimem_st_b32(everywhere, a)
    cuda.multimem_st_b64(everywhere, cuda.pack_b32_v2(a, b))
    cuda.multimem_st_p_b32(everywhere, a, 1)
    a, b, c, d = cuda.multimem_ld_reduce_v4(everywhere, tl.bfloat16)
    cuda.multimem_st_v4(everywhere, a, b, c, d)


@triton.jit
def bad_scope(narrow):
    st(narrow, 1, scope="cluster")


@triton.jit
def bad_width(short):
    dl.wait(short, 1, "sys", "acquire")


@triton.jit
def too_many_words(wide):
    dl.wait(wide, 33, "sys", "acquire")
