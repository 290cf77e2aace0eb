"""More kernels written by hand in the dialect: the functions that `dialect_kernels.py` has no use for."""

# mypy: ignore-errors
from __future__ import annotations

import torch
import triton
import triton.language as tl
import triton_dist
import triton_dist.language as dl
from pyrocshmem import rocshmem_create_tensor_list_intra_node
from triton_dist.kernels.amd.common_ops import _set_signal_hip, _wait_eq_hip
from triton_dist.language.extra import libshmem_device
from triton_dist.language.extra.cuda import language_extra as cuda
from triton_dist.language.extra.hip import language_extra as hip
from triton_dist.language.extra.language_extra import __syncthreads, ld, st, threads_per_warp, tid


@triton_dist.jit
def reduce_by_multicast(x, out, COUNT: tl.constexpr):
    """out = the sum of all ranks' x, 16 bytes at a time; the first rank then stores 1 everywhere."""
    everywhere = libshmem_device.remote_mc_ptr(libshmem_device.NVSHMEMX_TEAM_NODE, x)
    words = out.to(tl.pointer_type(tl.int32))
    for place in range(COUNT // 4):
        a, b, c, d = cuda.multimem_ld_reduce_v4(everywhere + 4 * place)
        cuda.st_v4_b32(words + 4 * place, a, b, c, d)
    libshmem_device.barrier_all_block()
    if dl.rank() == 0:
        one = tl.full((), 1.0, tl.float32).to(tl.int32, bitcast=True)
        cuda.multimem_st_v4(everywhere, one, one, one, one)
        cuda.multimem_st_v2(everywhere + 4, one, one)
        cuda.multimem_st_b32(everywhere + 6, one)
        cuda.multimem_st_p_b32(everywhere + 7, one, 1)
        cuda.multimem_st_p_b32(everywhere + 8, one, 0)
        cuda.multimem_st_b64(everywhere + 10, cuda.pack_b32_v2(one, one))
    libshmem_device.barrier_all_block()


@triton.jit
def vectors(narrow, wide, out):
    """Vector loads and stores, packed words, numbers of the machine."""
    a, b, c, d = cuda.load_v4_s32(narrow)
    cuda.st_v4_b32(out, d, c, b, a)
    a, b, c, d = cuda.load_v4_u32(narrow)
    cuda.st_v4_u32(out + 4, a, a, d, d)
    cuda.st_v2_u32(out + 8, b, c)
    low, high = cuda.load_v2_b64(wide)
    st(wide + 2, low + high)
    st(wide + 3, cuda.pack_b32_v2(a, d))
    before = cuda.globaltimer()
    cuda.fence("acq_rel", "gpu")
    cuda.membar("sys")
    st(out + 10, (cuda.globaltimer() >= before).to(tl.int32) + cuda.smid() + threads_per_warp())
    cuda.tma_sync(0)


@triton_dist.jit
def publish_by_fence(data, flag, out, N: tl.constexpr):
    """A fence of every thread, a barrier, then a relaxed store: it releases what came before the fence."""
    offsets = tl.arange(0, N)
    peer = (dl.rank() + 1) % dl.num_ranks()
    tl.store(dl.symm_at(data, peer) + offsets, tl.zeros((N,), tl.float32) + 4)
    __syncthreads()
    if tid(0) == 0:
        cuda.fence("acq_rel", "sys")
        st(dl.symm_at(flag, peer), 1, scope="sys", semantic="relaxed")
    token = dl.wait(flag, 1, "sys", "acquire")
    tl.store(out + offsets, tl.load(dl.consume_token(data, token) + offsets))


@triton_dist.jit
def publish_without_fence(data, flag, out, N: tl.constexpr):
    """A relaxed store alone."""
    offsets = tl.arange(0, N)
    peer = (dl.rank() + 1) % dl.num_ranks()
    tl.store(dl.symm_at(data, peer) + offsets, tl.zeros((N,), tl.float32) + 4)
    __syncthreads()
    if tid(0) == 0:
        st(dl.symm_at(flag, peer), 1, scope="sys", semantic="relaxed")
    token = dl.wait(flag, 1, "sys", "acquire")
    tl.store(out + offsets, tl.load(dl.consume_token(data, token) + offsets))


@triton_dist.jit
def look_at_a_word(data, flag, out, N: tl.constexpr, STORED: tl.constexpr, LOADED: tl.constexpr):
    """A word that the peer writes meanwhile; what is seen of it orders nothing."""
    peer = (dl.rank() + 1) % dl.num_ranks()
    if tid(0) == 0:
        st(dl.symm_at(flag, peer), 1, scope=STORED, semantic="relaxed")
    tl.store(out, ld(flag, scope=LOADED, semantic="relaxed").to(tl.float32))


@triton.jit
def wait_is_no_barrier(data, flag, out, N: tl.constexpr):
    """Program 1 waits between its store and its release, which still needs a barrier of its own."""
    offsets = tl.arange(0, N)
    if tl.program_id(0) == 0:
        dl.notify(flag, 0, signal=1, sig_op="set", comm_scope="gpu")
        token = dl.wait(flag + 1, 1, "gpu", "acquire")
        tl.store(out + offsets, tl.load(dl.consume_token(data, token) + offsets))
    else:
        tl.store(data + offsets, tl.zeros((N,), tl.float32) + 9)
        token = dl.wait(flag, 1, "gpu", "acquire")
        dl.notify(dl.consume_token(flag, token) + 1, 0, signal=1, sig_op="set", comm_scope="gpu")


@triton.jit
def too_many(flags, COUNT: tl.constexpr):
    dl.wait(flags, COUNT, "sys", "acquire")


@triton.jit
def wait_with(flags, SCOPE: tl.constexpr, SEMANTIC: tl.constexpr):
    dl.wait(flags, 1, SCOPE, SEMANTIC)


@triton.jit
def swapped(x, flags):
    token = dl.wait(flags, 1, "sys", "acquire", waitValue=0)
    dl.consume_token(token, x)


@triton_dist.jit
def symm_at_of_many(x, N: tl.constexpr):
    dl.symm_at(x + tl.arange(0, N), 0)


@triton.jit
def barrier_of_one_thread(flags):
    if tid(0) == 0:
        __syncthreads()


@triton.jit
def either_thread(flags):
    if tid(0) == 0:
        st(flags, 1)
    else:
        st(flags, 2)


@triton_dist.jit
def raise_at(signal, peer, call):
    """The notify of a file for AMD GPUs."""
    hip.__syncthreads()
    if hip.tid(0) == 0:
        hip.st(dl.symm_at(signal, peer), call, scope="sys", semantic="release")
        hip.atomic_add(dl.symm_at(signal + 1, peer), 1, scope="sys", semantic="release")


@triton_dist.jit
def push_for_amd(data, signal, out, N: tl.constexpr):
    offsets = tl.arange(0, N)
    peer = (dl.rank() + 1) % dl.num_ranks()
    tl.store(dl.symm_at(data, peer) + offsets, tl.zeros((N,), tl.float32) + dl.rank())
    raise_at(signal, peer, 7)
    token = dl.wait(signal, 1, "sys", "acquire", waitValue=7)
    tl.store(out + offsets, tl.load(dl.consume_token(data, token) + offsets))


class AmdPush:
    """A push, then a word that the neighbour's stream has set."""

    def __init__(self, group, count):
        self.rank, self.right = group.rank(), (group.rank() + 1) % group.size()
        self.data = rocshmem_create_tensor_list_intra_node((count,), torch.float32)
        self.signal = rocshmem_create_tensor_list_intra_node((3,), torch.int64)
        self.signal[self.rank].zero_()
        self.count = count

    def __call__(self):
        out = torch.zeros(self.count, device="cuda")
        push_for_amd[(1,)](self.data[self.rank], self.signal[self.rank], out, N=self.count)
        _set_signal_hip(self.signal[self.right][2:3], 5)
        _wait_eq_hip(self.signal[self.rank][2:3], 5)
        return out
