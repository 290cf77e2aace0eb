"""Kernels and operators written by hand in the dialect of Triton-distributed; a test loads this file under the shim."""

# mypy: ignore-errors
from __future__ import annotations

import torch
import triton
import triton.language as tl
import triton_dist
import triton_dist.language as dl
from triton_dist.kernels.nvidia.common_ops import (
    _wait_eq_cuda,
    barrier_all_intra_node_atomic_cas_block,
    barrier_all_intra_node_non_atomic,
    barrier_on_this_grid,
)
from triton_dist.language.extra import libshmem_device
from triton_dist.language.extra.cuda.language_extra import arrive_inc, membar, red_release, wait_eq
from triton_dist.language.extra.language_extra import __syncthreads, atomic_add, atomic_cas, ld, st, tid
from triton_dist.utils import (
    nvshmem_barrier_all_on_stream,
    nvshmem_create_tensor,
    nvshmem_create_tensors,
)

COUNT = 64


@triton_dist.jit(do_not_specialize=["rank"])
def push_and_notify(data, signal, out, rank, N: tl.constexpr, OP: tl.constexpr, SCOPE: tl.constexpr):
    """Each rank writes its number to its right neighbour, notifies it, and doubles what came from the left."""
    offsets = tl.arange(0, N)
    peer = (dl.rank() + 1) % dl.num_ranks()
    tl.store(dl.symm_at(data, peer) + offsets, tl.zeros((N,), tl.float32) + rank)
    __syncthreads()
    dl.notify(signal, peer, signal=1, sig_op=OP, comm_scope=SCOPE)
    token = dl.wait(signal, 1, "sys", "acquire", waitValue=1)
    arrived = dl.consume_token(data, token)
    tl.store(out + offsets, 2 * tl.load(arrived + offsets))


@triton_dist.jit
def push_without_barrier(data, signal, out, N: tl.constexpr):
    """No CTA barrier before notify: other threads' stores are not covered."""
    offsets = tl.arange(0, N)
    peer = (dl.rank() + 1) % dl.num_ranks()
    tl.store(dl.symm_at(data, peer) + offsets, tl.zeros((N,), tl.float32) + 1)
    dl.notify(signal, peer, signal=1, sig_op="set", comm_scope="intra_node")
    token = dl.wait(signal, 1, "sys", "acquire")
    tl.store(out + offsets, tl.load(dl.consume_token(data, token) + offsets))


@triton_dist.jit
def push_with(data, signal, out, N: tl.constexpr, SCOPE: tl.constexpr, SEMANTIC: tl.constexpr, CONSUME: tl.constexpr):
    """A right push, whose wait is as strong as the arguments say."""
    offsets = tl.arange(0, N)
    peer = (dl.rank() + 1) % dl.num_ranks()
    tl.store(dl.symm_at(data, peer) + offsets, tl.zeros((N,), tl.float32) + 1)
    __syncthreads()
    dl.notify(signal, peer, comm_scope="intra_node")
    token = dl.wait(signal, 1, SCOPE, SEMANTIC)
    arrived = data
    if CONSUME == 1:
        arrived = dl.consume_token(data, token)
    if CONSUME == 2:
        __syncthreads()
    tl.store(out + offsets, tl.load(arrived + offsets))


@triton_dist.jit
def all_gather_push(shard, gathered, signals, out, N: tl.constexpr, NUM_RANKS: tl.constexpr):
    """One program a peer pushes; the last program waits for all ranks' signals at once."""
    rank = dl.rank()
    program = tl.program_id(0)
    offsets = tl.arange(0, N)
    if program < NUM_RANKS:
        peer = (rank + program) % NUM_RANKS
        tl.store(dl.symm_at(gathered, peer) + rank * N + offsets, tl.load(shard + offsets))
        __syncthreads()
        dl.notify(signals + rank, peer, signal=1, sig_op="set", comm_scope="intra_node")
    else:
        token = dl.wait(signals, NUM_RANKS, "sys", "acquire", waitValue=1)
        gathered = dl.consume_token(gathered, token)
        for source in range(NUM_RANKS):
            tl.store(out + source * N + offsets, tl.load(gathered + source * N + offsets))


@triton_dist.jit
def wait_for_passed(signal, VALUE: tl.constexpr):
    """Two notifies to every waiter: a word that counts to two is one for a moment only."""
    peer = (dl.rank() + 1) % dl.num_ranks()
    if tl.program_id(0) == 0:
        dl.notify(signal, peer, signal=1, sig_op="add", comm_scope="intra_node")
        dl.notify(signal, peer, signal=1, sig_op="add", comm_scope="intra_node")
    else:
        dl.wait(signal, 1, "sys", "acquire", waitValue=VALUE)


@triton_dist.jit
def ring_put(x, landing, signal, out, call, N: tl.constexpr):
    """A put with signal around the ring, and a get back."""
    offsets = tl.arange(0, N)
    me = libshmem_device.my_pe()
    peer = (me + 1) % libshmem_device.n_pes()
    libshmem_device.putmem_signal_nbi_block(landing, x, N * 4, signal, call, libshmem_device.NVSHMEM_SIGNAL_SET, peer)
    libshmem_device.signal_wait_until(signal, libshmem_device.NVSHMEM_CMP_EQ, call)
    tl.store(out + offsets, tl.load(landing + offsets))
    libshmem_device.quiet()
    libshmem_device.barrier_all_block()
    libshmem_device.getmem_block(landing, x, N * 4, peer)
    __syncthreads()
    tl.store(out + N + offsets, tl.load(landing + offsets))
    libshmem_device.barrier_all_block()


@triton_dist.jit
def collectives(x, gathered, out, N: tl.constexpr, NUM_RANKS: tl.constexpr):
    """fcollect, then a broadcast of the last rank's x to the first part."""
    libshmem_device.fcollect_block(libshmem_device.NVSHMEM_TEAM_WORLD, gathered, x, N)
    libshmem_device.barrier_all_block()
    libshmem_device.broadcastmem_block(libshmem_device.NVSHMEM_TEAM_WORLD, gathered, x, N * 4, NUM_RANKS - 1)
    libshmem_device.barrier_all_block()
    offsets = tl.arange(0, N)
    for source in range(NUM_RANKS):
        tl.store(out + source * N + offsets, tl.load(gathered + source * N + offsets))
    libshmem_device.barrier_all_block()


@triton_dist.jit
def words_by_one_thread(data, flags, out, N: tl.constexpr):
    """st with release to the peer, a spin of ld, additions by one thread, in the scopes of `sys`."""
    offsets = tl.arange(0, N)
    peer = (dl.rank() + 1) % dl.num_ranks()
    tl.store(dl.symm_at(data, peer) + offsets, tl.zeros((N,), tl.float32) + 7)
    __syncthreads()
    thread = tid(0)
    if thread == 0:
        st(dl.symm_at(flags, peer), 1, scope="sys", semantic="release")
        while ld(flags, scope="sys", semantic="acquire") != 1:
            pass
        atomic_add(flags + 1, 2, scope="sys", semantic="relaxed")
        atomic_cas(flags + 2, 0, 5, scope="gpu", semantic="relaxed")
        red_release(flags + 3, 4, scope="gpu")
    __syncthreads()
    tl.store(out + offsets, tl.load(data + offsets))


@triton_dist.jit
def spin_of_one_thread_without_barrier(data, flags, out, N: tl.constexpr):
    """Thread 0 acquires; the others load without having met it."""
    offsets = tl.arange(0, N)
    peer = (dl.rank() + 1) % dl.num_ranks()
    tl.store(dl.symm_at(data, peer) + offsets, tl.zeros((N,), tl.float32) + 7)
    __syncthreads()
    if tid(0) == 0:
        st(dl.symm_at(flags, peer), 1, scope="sys", semantic="release")
        while ld(flags, scope="sys", semantic="acquire") != 1:
            pass
    tl.store(out + offsets, tl.load(data + offsets))


@triton_dist.jit
def add_by_all_threads(flags):
    """Each thread adds once, which is hardly meant."""
    atomic_add(flags, 1, scope="gpu", semantic="relaxed")


@triton_dist.jit
def thread_arithmetic(flags):
    """A thread a peer: code that needs real threads."""
    st(flags + tid(0), 1, scope="gpu", semantic="relaxed")


@triton_dist.jit
def arrive_and_wait(data, count, out, N: tl.constexpr):
    """Programs of one rank: all but the last store and arrive, the last waits for them."""
    offsets = tl.arange(0, N)
    program = tl.program_id(0)
    last = tl.num_programs(0) - 1
    if program < last:
        tl.store(data + program * N + offsets, tl.zeros((N,), tl.float32) + program)
        arrive_inc(count, tid(0), 1, "gpu")
    else:
        wait_eq(count, tid(0), last, "gpu")
        for one in range(last):
            tl.store(out + one * N + offsets, tl.load(data + one * N + offsets))


@triton_dist.jit
def grid_and_rank_barriers(data, words, flags, out, rank, num_ranks, target, N: tl.constexpr):
    """Every program of every rank stores, all meet, and each reads what its neighbour on the next rank stored."""
    offsets = tl.arange(0, N)
    program = tl.program_id(0)
    peer = (rank + 1) % num_ranks
    tl.store(data + program * N + offsets, tl.zeros((N,), tl.float32) + rank)
    barrier_on_this_grid(words, False)
    if program == 0:
        barrier_all_intra_node_atomic_cas_block(rank, rank, num_ranks, words + 8)
    barrier_on_this_grid(words, False)
    tl.store(out + program * N + offsets, tl.load(dl.symm_at(data, peer) + program * N + offsets))
    barrier_all_intra_node_non_atomic(rank, rank, num_ranks, flags, target, True)
    tl.store(data + program * N + offsets, tl.zeros((N,), tl.float32) - 1)


class StreamHandshake:
    """A stream waits for a word of 64 bits to be exactly what the kernel of the neighbour has set."""

    def __init__(self, group, value):
        self.rank, self.num_ranks = group.rank(), group.size()
        self.value = value
        self.data = nvshmem_create_tensors((COUNT,), torch.float32, self.rank, self.num_ranks)
        self.signal = nvshmem_create_tensor((1,), torch.int64)
        self.signal.zero_()

    def __call__(self):
        out = torch.empty(COUNT, device="cuda")
        landed = torch.empty(COUNT, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        notify_only[(1,)](self.data[self.rank], self.signal, N=COUNT)
        with torch.cuda.stream(side):
            _wait_eq_cuda(self.signal, self.value, side)
            landed.copy_(self.data[self.rank])
        done = side.record_event()
        torch.cuda.current_stream().wait_event(done)
        out.copy_(landed)
        nvshmem_barrier_all_on_stream()
        return out


@triton_dist.jit
def notify_only(data, signal, N: tl.constexpr):
    """The neighbour's data, then 2 into its word."""
    offsets = tl.arange(0, N)
    peer = (dl.rank() + 1) % dl.num_ranks()
    tl.store(dl.symm_at(data, peer) + offsets, tl.zeros((N,), tl.float32) + 3)
    __syncthreads()
    membar("sys")
    dl.notify(signal, peer, signal=2, sig_op="add", comm_scope="intra_node")


@triton.jit
def consume_only(x, signal, out, N: tl.constexpr):
    """Wait and consume_token need no rank, so stock triton.jit does."""
    token = dl.wait(signal, 1, "gpu", "acquire", waitValue=1)
    offsets = tl.arange(0, N)
    tl.store(out + offsets, tl.load(dl.consume_token(x, token) + offsets))
