"""`triton_dist.language.extra.language_extra`: threads, words with scope and order, fences, multimem on stock Triton.

Each thread that comes to a call carries it out, as in the fork: additions belong in the body of `if tid(0) == 0:`.
Vector loads and stores of words are relaxed at system scope unless they are told otherwise. The multimem functions
compile; they have been run on no machine.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton.language as tl

from tilelink.compat.dialects import simt
from tilelink.compat.triton_dist.device import assembly, words
from tilelink.compat.triton_dist.kernels import as_tensor, device


@device(simt.tid)
def tid(axis):
    """The thread's number along `axis`, int32."""
    text: tl.constexpr = assembly.axis_text("tid", axis)
    return tl.inline_asm_elementwise(text, "=r", [], dtype=tl.int32, is_pure=True, pack=1)


@device(simt.not_emulated("ntid"))
def ntid(axis):
    """Threads along `axis`, int32."""
    text: tl.constexpr = assembly.axis_text("ntid", axis)
    return tl.inline_asm_elementwise(text, "=r", [], dtype=tl.int32, is_pure=True, pack=1)


@device(simt.not_emulated("laneid"))
def laneid():
    """The thread's number in its warp, int32."""
    text: tl.constexpr = assembly.register_text(32, "laneid")
    return tl.inline_asm_elementwise(text, "=r", [], dtype=tl.int32, is_pure=True, pack=1)


@device(simt.threads_per_warp)
def threads_per_warp():
    """32."""
    return tl.full((), 32, tl.int32)


@device(simt.not_emulated("num_threads"))
def num_threads():
    """Threads of the program, int32."""
    return ntid(0)


@device(simt.not_emulated("num_warps"))
def num_warps():
    """Warps of the program, int32."""
    return ntid(0) // 32


@device(simt.syncthreads)
def __syncthreads():
    """All threads of the program meet."""
    words.meet()


@device(simt.ld)
def ld(ptr, scope: tl.constexpr = "gpu", semantic: tl.constexpr = "relaxed"):
    """The word of 32 or 64 bits at `ptr`."""
    return words.load(ptr, scope, semantic)


@device(simt.ld_acquire)
def ld_acquire(ptr, scope: tl.constexpr = "gpu"):
    """`ld` that acquires."""
    return words.load(ptr, scope, "acquire")


@device(simt.st)
def st(ptr, val, scope: tl.constexpr = "gpu", semantic: tl.constexpr = "relaxed"):
    """Store a word of 32 or 64 bits."""
    words.store(ptr, val, scope, semantic)


ld_b32 = ld
st_b32 = st


@device(simt.atomic_add)
def atomic_add(ptr, val, scope: tl.constexpr = "gpu", semantic: tl.constexpr = "relaxed"):
    """Add to a word; returns what was there before."""
    return words.add(ptr, val, scope, semantic)


@device(simt.not_emulated("atomic_add_per_warp"))
def atomic_add_per_warp(ptr, value, scope: tl.constexpr, semantic: tl.constexpr):
    """Lane 0 of each warp adds; all of its lanes get what was there before."""
    found = tl.full((), 0, ptr.dtype.element_ty)
    if laneid() == 0:
        found = words.add(ptr, value, scope, semantic)
    return __shfl_sync_i32(0xFFFFFFFF, found.to(tl.int32), 0).to(ptr.dtype.element_ty)


@device(simt.atomic_cas)
def atomic_cas(ptr, cmp_val, target_val, scope: tl.constexpr, semantic: tl.constexpr):
    """Put `target_val` in the place of `cmp_val`; returns what was there before."""
    return words.compare_and_swap(ptr, cmp_val, target_val, scope, semantic)


@device(simt.red_release)
def red_release(ptr, value, scope: tl.constexpr = "gpu"):
    """Add to a word with release order; returns nothing."""
    words.reduce(ptr, value, scope)


@device(simt.wait_eq)
def wait_eq(ptr, thread_idx, value, scope: tl.constexpr):
    """Thread 0 spins until the word is equal to `value` and acquires, then all threads meet."""
    words.first_thread_until(ptr, thread_idx, value, scope)
    words.meet()


@device(simt.arrive_inc)
def arrive_inc(ptr, thread_idx, value, scope: tl.constexpr):
    """All threads meet, then thread 0 adds `value` with release order."""
    words.meet()
    words.first_thread_reduce(ptr, thread_idx, value, scope)


@device(simt.fence)
def fence(semantic: tl.constexpr, scope: tl.constexpr):
    """An ordering fence of every thread."""
    text: tl.constexpr = assembly.fence_text(semantic, scope)
    words.execute(text)


@device(simt.membar)
def membar(scope: tl.constexpr = "cta"):
    """A fence of "cta", "gl" (or "gpu") or "sys"."""
    text: tl.constexpr = assembly.membar_text(scope)
    words.execute(text)


@device(simt.tma_sync)
def tma_sync(N: tl.constexpr = 0):
    """All descriptor stores but the last `N` of this thread are complete."""
    text: tl.constexpr = assembly.stores_awaited_text(N)
    words.execute(text)


@device(simt.globaltimer)
def globaltimer():
    """Nanoseconds of the GPU's clock, int64."""
    text: tl.constexpr = assembly.register_text(64, "globaltimer")
    return tl.inline_asm_elementwise(text, "=l", [], dtype=tl.int64, is_pure=False, pack=1)


@device(simt.not_emulated("globaltimer_lo"))
def globaltimer_lo():
    """The low 32 bits of `globaltimer`, int32."""
    text: tl.constexpr = assembly.register_text(32, "globaltimer_lo")
    return tl.inline_asm_elementwise(text, "=r", [], dtype=tl.int32, is_pure=False, pack=1)


@device(simt.not_emulated("globaltimer_hi"))
def globaltimer_hi():
    """The high 32 bits of `globaltimer`, int32."""
    text: tl.constexpr = assembly.register_text(32, "globaltimer_hi")
    return tl.inline_asm_elementwise(text, "=r", [], dtype=tl.int32, is_pure=False, pack=1)


@device(simt.smid)
def smid():
    """The SM that runs the program, int32."""
    text: tl.constexpr = assembly.register_text(32, "smid")
    return tl.inline_asm_elementwise(text, "=r", [], dtype=tl.int32, is_pure=False, pack=1)


@device(simt.pack_b32_v2)
def pack_b32_v2(v0, v1):
    """int64 with the 32 bits of `v0` low and those of `v1` high."""
    low = as_tensor(v0).to(tl.int32, bitcast=True)
    high = as_tensor(v1).to(tl.int32, bitcast=True)
    return tl.inline_asm_elementwise("mov.b64 $0, {$1, $2};", "=l,r,r", [low, high], tl.int64, is_pure=True, pack=1)


@device(simt.not_emulated("__shfl_sync_i32"))
def __shfl_sync_i32(mask, val, lane):
    """`val` of `lane`."""
    return _shuffle("idx", "0x1f", mask, val, lane)


@device(simt.not_emulated("__shfl_up_sync_i32"))
def __shfl_up_sync_i32(mask, val, delta):
    """`val` of the lane `delta` below."""
    return _shuffle("up", "0", mask, val, delta)


@device(simt.not_emulated("__shfl_down_sync_i32"))
def __shfl_down_sync_i32(mask, val, delta):
    """`val` of the lane `delta` above."""
    return _shuffle("down", "0x1f", mask, val, delta)


@device(simt.not_emulated("__shfl_xor_sync_i32"))
def __shfl_xor_sync_i32(mask, val, lane_mask):
    """`val` of the lane whose number differs in `lane_mask`."""
    return _shuffle("bfly", "0x1f", mask, val, lane_mask)


@device(simt.not_emulated("_shuffle"))
def _shuffle(mode: tl.constexpr, clamp: tl.constexpr, mask, val, lane):
    text: tl.constexpr = "shfl.sync." + mode + ".b32 $0, $1, $2, " + clamp + ", $3;"
    operands = [tl.full((), val, tl.int32), tl.full((), lane, tl.int32), tl.full((), mask, tl.uint32)]
    return tl.inline_asm_elementwise(text, "=r,r,r,r", operands, dtype=tl.int32, is_pure=False, pack=1)


@device(simt.not_emulated("__ballot_sync"))
def __ballot_sync(mask, pred):
    """A bit for each lane of `mask` whose `pred` is not 0, uint32."""
    text: tl.constexpr = "{ .reg .pred %p; setp.ne.b32 %p, $1, 0; vote.sync.ballot.b32 $0, %p, $2; }"
    operands = [tl.full((), pred, tl.int32), tl.full((), mask, tl.uint32)]
    return tl.inline_asm_elementwise(text, "=r,r,r", operands, dtype=tl.uint32, is_pure=False, pack=1)


@device(lambda ptr: simt.load_words("load_v4_u32", ptr, 4, tl.uint32))
def load_v4_u32(ptr):
    """Four uint32 from `ptr` on, a multiple of 16 bytes."""
    text: tl.constexpr = assembly.vector_load_text(32, 4, "", "")
    return tl.inline_asm_elementwise(text, "=r,=r,=r,=r,l", [ptr], dtype=(tl.uint32,) * 4, is_pure=False, pack=1)


@device(lambda ptr: simt.load_words("load_v4_s32", ptr, 4, tl.int32))
def load_v4_s32(ptr):
    """Four int32 from `ptr` on."""
    text: tl.constexpr = assembly.vector_load_text(32, 4, "", "")
    return tl.inline_asm_elementwise(text, "=r,=r,=r,=r,l", [ptr], dtype=(tl.int32,) * 4, is_pure=False, pack=1)


@device(lambda ptr, scope="", semantic="": simt.load_words("load_v4_b32", ptr, 4, tl.int32))
def load_v4_b32(ptr, scope: tl.constexpr = "", semantic: tl.constexpr = ""):
    """Four words of 32 bits from `ptr` on."""
    text: tl.constexpr = assembly.vector_load_text(32, 4, scope, semantic)
    return tl.inline_asm_elementwise(text, "=r,=r,=r,=r,l", [ptr], dtype=(tl.int32,) * 4, is_pure=False, pack=1)


@device(lambda ptr: simt.load_words("load_v2_b64", ptr, 2, tl.int64))
def load_v2_b64(ptr):
    """Two words of 64 bits from `ptr` on."""
    text: tl.constexpr = assembly.vector_load_text(64, 2, "", "")
    return tl.inline_asm_elementwise(text, "=l,=l,l", [ptr], dtype=(tl.int64,) * 2, is_pure=False, pack=1)


@device(lambda ptr, *v: simt.store_words("st_v4_u32", ptr, v, tl.uint32))
def st_v4_u32(ptr, v0, v1, v2, v3):
    """Four words of 32 bits to `ptr` on."""
    text: tl.constexpr = assembly.vector_store_text(32, 4, "", "")
    tl.inline_asm_elementwise(text, "=r,l,r,r,r,r", [ptr, v0, v1, v2, v3], dtype=tl.int32, is_pure=False, pack=1)


@device(
    lambda ptr, v0, v1, v2, v3, scope="", semantic="": simt.store_words("st_v4_b32", ptr, (v0, v1, v2, v3), tl.int32)
)
def st_v4_b32(ptr, v0, v1, v2, v3, scope: tl.constexpr = "", semantic: tl.constexpr = ""):
    """Four words of 32 bits to `ptr` on."""
    text: tl.constexpr = assembly.vector_store_text(32, 4, scope, semantic)
    tl.inline_asm_elementwise(text, "=r,l,r,r,r,r", [ptr, v0, v1, v2, v3], dtype=tl.int32, is_pure=False, pack=1)


@device(lambda ptr, *v: simt.store_words("st_v2_u32", ptr, v, tl.uint32))
def st_v2_u32(ptr, v0, v1):
    """Two words of 32 bits to `ptr` on."""
    text: tl.constexpr = assembly.vector_store_text(32, 2, "", "")
    tl.inline_asm_elementwise(text, "=r,l,r,r", [ptr, v0, v1], dtype=tl.int32, is_pure=False, pack=1)
