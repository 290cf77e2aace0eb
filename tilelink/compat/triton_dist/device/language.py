"""`triton_dist.language`: rank, num_ranks, symm_at, wait, consume_token, notify on stock Triton.

Orders are those of the fork's lowering for NVIDIA, or stronger:

- `wait`: every warp polls, a lane for each word, until it is equal; with the order and scope it is given. No CTA barrier.
- `consume_token` makes what it returns depend on the token, so that neither Triton's pipeliner nor LLVM moves the loads
  before the wait: by a zero that the compiler cannot know, which is added to pointers and integers, and to the first
  coordinate of a descriptor, whose loads also come behind a proxy fence.
- `notify`: one thread, a fence of the scope, then a relaxed store or addition. "inter_node" is done as "intra_node".
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl
from triton.language import core

from tilelink.compat.dialects import triton_dist as emulated
from tilelink.compat.triton_dist.device import assembly, peers, words
from tilelink.compat.triton_dist.kernels import device

_PROXY_FENCE = tl.constexpr("fence.proxy.async.global; and.b32 $0, $1, 0;")


@device(emulated.rank)
def rank(axis=-1):
    """The rank that runs the kernel, int32; `axis` is ignored."""
    return peers.this_rank()


@device(emulated.num_ranks)
def num_ranks(axis=-1):
    """The number of ranks, int32; `axis` is ignored."""
    return peers.count_ranks()


@device(emulated.symm_at)
def symm_at(ptr, rank):
    """Where `rank` has what the scalar `ptr` points to here; the null pointer outside of the symmetric heap."""
    tl.static_assert(ptr.type.is_ptr(), "symm_at takes one scalar pointer; add offsets to what it returns")
    return peers.pointer_at(ptr, rank)


@device(emulated.wait)
def wait(barrierPtrs, numBarriers, scope: tl.constexpr, semantic: tl.constexpr, waitValue=1):
    """Spin until each of `numBarriers` words (at most 32, int32 or int64) was seen equal to `waitValue`: the token."""
    tl.static_assert(barrierPtrs.type.is_ptr(), "wait takes one scalar pointer to the first word")
    if isinstance(numBarriers, int):
        tl.static_assert(numBarriers <= 32, "wait takes at most 32 words, one for each lane; use several waits")
    bits: tl.constexpr = barrierPtrs.dtype.element_ty.primitive_bitwidth
    text: tl.constexpr = assembly.wait_text(bits, scope, semantic)
    constraints: tl.constexpr = "=r,l,r,r" if bits == 32 else "=r,l,r,l"
    operands = [barrierPtrs, tl.full((), numBarriers, tl.int32), words.bits_for(barrierPtrs, waitValue)]
    # the pipeliner can put a condition on an `if`, but not on assembly
    token = tl.inline_asm_elementwise("mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=True, pack=1)
    if token == 0:
        token = tl.inline_asm_elementwise(text, constraints, operands, dtype=tl.int32, is_pure=False, pack=1)
    return token


class _AfterToken(core.tensor_descriptor):
    """A descriptor whose accesses depend on a token. Where it is handed on through a loop or a call, it is the old one."""

    def __init__(self, descriptor, zero):
        vars(self).update(vars(descriptor))
        self._zero = zero

    @core.builtin
    def load(self, offsets, _semantic=None):
        first = _semantic.add(_semantic.to_tensor(offsets[0]), self._zero, True)
        return _semantic.descriptor_load(self, [first, *list(offsets)[1:]], "", "")


@triton.jit
def _zero(token):
    """0, which the compiler cannot know before the token."""
    return tl.multiple_of(tl.inline_asm_elementwise("and.b32 $0, $1, 0;", "=r,r", [token], tl.int32, True, 1), 16)


@triton.jit
def _zero_behind_fence(token):
    """The same, behind a proxy fence; in an `if`, on which the pipeliner can put a condition."""
    zero = tl.inline_asm_elementwise("and.b32 $0, $1, 0;", "=r,r", [token], tl.int32, True, 1)
    if zero == 0:
        zero = tl.inline_asm_elementwise(_PROXY_FENCE, "=r,r", [token], tl.int32, False, 1)
    return zero


def consume_token(value, token, _semantic=None, _generator=None):
    """`value`, from which loads are ordered after the wait that made `token`."""
    if _semantic is None:
        return emulated.consume_token(value, token)
    if isinstance(value, core.tensor_descriptor_base):
        return _AfterToken(value, _generator.call_JitFunction(_zero_behind_fence, [token], {}))
    if value.dtype.is_ptr() or value.dtype.is_int():
        return _semantic.add(value, _generator.call_JitFunction(_zero, [token], {}), True)
    return value  # a loaded number: nothing is loaded through it


consume_token.__triton_builtin__ = True  # the compiler passes `_semantic`, interpreted kernels do not


@device(emulated.notify)
def notify(ptr, rank, signal=1, sig_op: tl.constexpr = "set", comm_scope: tl.constexpr = "inter_node"):
    """Thread 0 sets the 64-bit word at `rank` to `signal`, or adds it; "gpu": this rank's own word."""
    tl.static_assert(ptr.type.is_ptr(), "notify takes one scalar pointer")
    tl.static_assert(ptr.dtype.element_ty.primitive_bitwidth == 64, "notify takes a pointer to int64 or uint64")
    if comm_scope == "gpu":
        words.notify(ptr, signal, sig_op, comm_scope)
    else:
        words.notify(peers.pointer_at(ptr, rank), signal, sig_op, comm_scope)
