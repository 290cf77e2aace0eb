"""Kernels of the check, written in the dialect of Triton-distributed.

All data depends on a counter in device memory, so that a call can be replayed as a CUDA graph and is still told from the last.
"""

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
from triton_dist.language.extra.language_extra import __syncthreads, atomic_add, atomic_cas, ld, num_warps, st, tid


@triton.jit
def tick(clock):
    tl.store(clock, tl.load(clock) + 1)


@triton.jit
def fill(x, clock, rank, N: tl.constexpr):
    """x[i] = i + 7 * call + 1000 * rank."""
    offsets = tl.arange(0, N)
    tl.store(x + offsets, (offsets + 7 * tl.load(clock) + 1000 * rank).to(tl.int32))


@triton.jit
def copied(out, x, N: tl.constexpr):
    offsets = tl.arange(0, N)
    tl.store(out + offsets, tl.load(x + offsets))


@triton_dist.jit
def notify_ring(data, signal, out, clock, N: tl.constexpr, OP: tl.constexpr, SCOPE: tl.constexpr):
    offsets = tl.arange(0, N)
    call = tl.load(clock)
    peer = (dl.rank() + 1) % dl.num_ranks()
    values = (offsets + 7 * call + 1000 * dl.rank()).to(tl.int32)
    tl.store(dl.symm_at(data, peer) + offsets, values)
    __syncthreads()
    if OP == "set":
        dl.notify(signal, peer, signal=call, sig_op="set", comm_scope=SCOPE)
    else:
        dl.notify(signal, peer, signal=1, sig_op="add", comm_scope=SCOPE)
    token = dl.wait(signal, 1, "sys", "acquire", waitValue=call)
    tl.store(out + offsets, tl.load(dl.consume_token(data, token) + offsets))


@triton_dist.jit
def gather_push(shard, gathered, signals, out, clock, N: tl.constexpr):
    """A program a peer pushes, the last one waits for all."""
    offsets = tl.arange(0, N)
    call, rank, num_ranks, program = tl.load(clock), dl.rank(), dl.num_ranks(), tl.program_id(0)
    if program < num_ranks:
        peer = (rank + program) % num_ranks
        tl.store(dl.symm_at(gathered, peer) + rank * N + offsets, tl.load(shard + offsets))
        __syncthreads()
        dl.notify(signals + rank, peer, signal=call, sig_op="set", comm_scope="intra_node")
    else:
        token = dl.wait(signals, num_ranks, "sys", "acquire", waitValue=call)
        arrived = dl.consume_token(gathered, token)
        for source in range(num_ranks):
            tl.store(out + source * N + offsets, tl.load(arrived + source * N + offsets))


@triton_dist.jit
def puts_and_gets(x, landing, signals, out, clock, size, N: tl.constexpr):
    """A put with a set signal, one with an added signal, a signal alone, then a get; `size` in bytes."""
    offsets = tl.arange(0, N)
    call = tl.load(clock)
    peer = (libshmem_device.my_pe() + 1) % libshmem_device.n_pes()
    libshmem_device.putmem_signal_nbi_block(landing, x, size, signals, call, libshmem_device.NVSHMEM_SIGNAL_SET, peer)
    libshmem_device.putmem_signal_block(landing + N, x, size, signals + 1, 1, libshmem_device.NVSHMEM_SIGNAL_ADD, peer)
    libshmem_device.fence()
    libshmem_device.signal_op(signals + 2, 3, libshmem_device.NVSHMEM_SIGNAL_ADD, peer)
    libshmem_device.signal_wait_until(signals, libshmem_device.NVSHMEM_CMP_EQ, call)
    libshmem_device.signal_wait_until(signals + 1, libshmem_device.NVSHMEM_CMP_GE, call)
    libshmem_device.signal_wait_until(signals + 2, libshmem_device.NVSHMEM_CMP_GT, 3 * call - 1)
    tl.store(out + offsets, tl.load(landing + offsets))
    tl.store(out + N + offsets, tl.load(landing + N + offsets))
    libshmem_device.quiet()
    libshmem_device.barrier_all_block()
    libshmem_device.getmem_block(landing + 2 * N, x, size, peer)
    libshmem_device.int_p(landing + 3 * N, call.to(tl.int32), peer)
    libshmem_device.barrier_all_block()
    tl.store(out + 2 * N + offsets, tl.load(landing + 2 * N + offsets))
    tl.store(out + 3 * N, tl.load(landing + 3 * N))


@triton_dist.jit
def plain_puts_and_words(x, landing, flags, out, clock, size, N: tl.constexpr):
    """A put, a put and a get that return early, a store to a translated address, an elementwise broadcast; `size` in bytes.

    Then the word of a peer, polled by an acquiring load.
    """
    offsets = tl.arange(0, N)
    short = tl.load(clock).to(tl.int32)
    rank = libshmem_device.my_pe()
    peer = (rank + 1) % libshmem_device.n_pes()
    libshmem_device.putmem_block(landing, x, size, peer)
    libshmem_device.putmem_nbi_block(landing + N, x, size, peer)
    libshmem_device.getmem_nbi_block(landing + 2 * N, x, size, peer)
    libshmem_device.quiet()
    tl.store(libshmem_device.remote_ptr(landing + 3 * N, peer) + offsets, tl.load(x + offsets))
    libshmem_device.barrier_all_block()
    libshmem_device.broadcast_block(libshmem_device.NVSHMEM_TEAM_WORLD, landing + 4 * N, x, N, 0)
    libshmem_device.barrier_all_block()
    __syncthreads()
    if tid(0) == 0:
        st(libshmem_device.remote_ptr(flags, peer), short, scope="sys", semantic="release")
        while cuda.ld_acquire(flags, scope="sys") != short:
            pass
    __syncthreads()
    for row in range(5):
        tl.store(out + row * N + offsets, tl.load(landing + row * N + offsets))


@triton_dist.jit
def collectives(x, gathered, out, N: tl.constexpr):
    """fcollect, then the last rank's x to the first part; sync_all and team_sync between."""
    offsets = tl.arange(0, N)
    team = libshmem_device.NVSHMEM_TEAM_WORLD
    last = libshmem_device.n_pes() - 1
    libshmem_device.fcollect_block(team, gathered, x, N)
    libshmem_device.barrier_all_block()
    libshmem_device.broadcastmem_block(team, gathered, x, N * 4, last)
    libshmem_device.barrier_block(team)
    for source in range(last + 1):
        tl.store(out + source * N + offsets, tl.load(gathered + source * N + offsets))
    libshmem_device.sync_all_block()
    libshmem_device.team_sync_block(team)


@triton_dist.jit
def words_of_threads(data, flags, wide, out, clock, N: tl.constexpr):
    """Release to the peer, spin, additions here and at the peer, all by one thread."""
    offsets = tl.arange(0, N)
    call = tl.load(clock)
    short = call.to(tl.int32)
    peer = (dl.rank() + 1) % dl.num_ranks()
    tl.store(dl.symm_at(data, peer) + offsets, (offsets + 7 * call + 1000 * dl.rank()).to(tl.int32))
    __syncthreads()
    if tid(0) == 0:
        st(dl.symm_at(flags, peer), short, scope="sys", semantic="release")
        while ld(flags, scope="sys", semantic="acquire") != short:
            pass
        atomic_add(flags + 1, 2, scope="gpu", semantic="relaxed")
        atomic_cas(flags + 2, short - 1, short, scope="gpu", semantic="acq_rel")
        cuda.red_release(flags + 3, 3, scope="gpu")
        atomic_add(dl.symm_at(flags + 4, peer), 5, scope="sys", semantic="acq_rel")
        cuda.red_release(dl.symm_at(wide, peer), 1 << 33, scope="sys")
    __syncthreads()
    tl.store(out + offsets, tl.load(data + offsets))


@triton_dist.jit
def arrive_and_wait(data, count, out, clock, N: tl.constexpr):
    """Programs of one rank arrive, the last one waits for them."""
    offsets = tl.arange(0, N)
    call, program, last = tl.load(clock), tl.program_id(0), tl.num_programs(0) - 1
    if program < last:
        tl.store(data + program * N + offsets, (offsets + 7 * call + 1000 * program).to(tl.int32))
        cuda.arrive_inc(count, tid(0), 1, "gpu")
    else:
        cuda.wait_eq(count, tid(0), (last * call).to(tl.int32), "gpu")
        for one in range(last):
            tl.store(out + one * N + offsets, tl.load(data + one * N + offsets))


@triton_dist.jit
def grids_and_ranks_meet(data, words, flags, out, clock, rank, num_ranks, N: tl.constexpr):
    """All programs store, all programs of all ranks meet, each reads from the next rank; then all meet in the other way."""
    offsets = tl.arange(0, N)
    call, program = tl.load(clock), tl.program_id(0)
    peer = (rank + 1) % num_ranks
    tl.store(data + program * N + offsets, (offsets + 7 * call + 1000 * rank).to(tl.int32))
    barrier_on_this_grid(words, True)
    if program == 0:
        barrier_all_intra_node_atomic_cas_block(rank, rank, num_ranks, words + 8)
    barrier_on_this_grid(words, True)
    tl.store(out + program * N + offsets, tl.load(dl.symm_at(data, peer) + program * N + offsets))
    barrier_all_intra_node_non_atomic(rank, rank, num_ranks, flags, call.to(tl.int32), True)
    tl.store(data + program * N + offsets, tl.zeros((N,), tl.int32))


@triton_dist.jit
def by_thread(out, wide, N: tl.constexpr):
    """Row by row what each of the N threads knows of itself and of its lane's neighbours."""
    thread, lane = tid(0), cuda.laneid()
    st(out + thread, lane)
    st(out + N + thread, cuda.__shfl_sync_i32(0xFFFFFFFF, thread, 5))
    st(out + 2 * N + thread, cuda.__shfl_up_sync_i32(0xFFFFFFFF, lane, 1))
    st(out + 3 * N + thread, cuda.__shfl_down_sync_i32(0xFFFFFFFF, lane, 1))
    st(out + 4 * N + thread, cuda.__shfl_xor_sync_i32(0xFFFFFFFF, lane, 3))
    st(out + 5 * N + thread, cuda.__ballot_sync(0xFFFFFFFF, (lane < 4).to(tl.int32)).to(tl.int32))
    st(out + 6 * N + thread, cuda.ntid(0) + num_warps() * 1000)
    before = cuda.globaltimer()
    st(out + 7 * N + thread, ((cuda.globaltimer() >= before) & (cuda.smid() >= 0)).to(tl.int32))
    st(wide + thread, cuda.pack_b32_v2(lane, thread))
    __syncthreads()
    a, b, c, d = cuda.load_v4_s32(out + thread * 4)
    cuda.st_v4_b32(out + 8 * N + thread * 4, d, c, b, a)


@triton_dist.jit
def produce_slices(a, source, signals, clock, ROWS_: tl.constexpr, WIDTH: tl.constexpr, SLICES_: tl.constexpr):
    """Column slices of `source` into a, one after the other, each with its signal."""
    rows, columns = tl.arange(0, ROWS_), tl.arange(0, WIDTH)
    call = tl.load(clock)
    for part in range(SLICES_):
        at = rows[:, None] * (SLICES_ * WIDTH) + (part * WIDTH + columns)[None, :]
        tl.store(a + at, (tl.load(source + at) + (call % 4).to(tl.float32)).to(tl.bfloat16))
        __syncthreads()
        dl.notify(signals + part, dl.rank(), signal=call, sig_op="set", comm_scope="gpu")


@triton.jit
def gemm_per_slice(a, b, out, signals, clock, K, M: tl.constexpr, N: tl.constexpr, BLOCK_K: tl.constexpr):
    """out = a @ b; each slice of a is waited for, in a loop that is pipelined."""
    rows, columns, depth = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK_K)
    call = tl.load(clock)
    total = tl.zeros((M, N), tl.float32)
    for start in tl.range(0, K, BLOCK_K):
        token = dl.wait(signals + start // BLOCK_K, 1, "gpu", "acquire", waitValue=call)
        x = tl.load(dl.consume_token(a, token) + rows[:, None] * K + (start + depth)[None, :])
        y = tl.load(b + (start + depth)[:, None] * N + columns[None, :])
        total += tl.dot(x, y)
    tl.store(out + rows[:, None] * N + columns[None, :], total)


@triton.jit
def gemm_by_descriptor(a, b, out, signals, clock, K, M: tl.constexpr, N: tl.constexpr, BLOCK_K: tl.constexpr):
    """The same with a descriptor of a."""
    rows, columns, depth = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK_K)
    call = tl.load(clock)
    total = tl.zeros((M, N), tl.float32)
    for start in tl.range(0, K, BLOCK_K):
        token = dl.wait(signals + start // BLOCK_K, 1, "gpu", "acquire", waitValue=call)
        arrived = dl.consume_token(a, token)
        y = tl.load(b + (start + depth)[:, None] * N + columns[None, :])
        total += tl.dot(arrived.load([0, start]), y)
    tl.store(out + rows[:, None] * N + columns[None, :], total)
