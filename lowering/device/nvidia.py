"""Helpers in PTX for NVIDIA GPUs; each replaces the portable helper of its name."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def program_barrier():
    """CTA barrier: the stores of all threads come before what any thread does next.

    Written in PTX, because the compiler does not pipeline a loop that contains `tl.debug_barrier()`.
    """
    tl.inline_asm_elementwise("bar.sync 0; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def fence_descriptors():
    """Proxy fence: later descriptor loads, which use the asynchronous proxy, see all data acquired so far."""
    tl.inline_asm_elementwise(
        "fence.proxy.async.global; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def put_words(words, value):
    """Store whole words, on this rank or a peer. Written in PTX: an atomic exchange would return the old words."""
    tl.inline_asm_elementwise(
        "st.relaxed.sys.global.b64 [$1], $2; mov.u32 $0, 0;",
        "=r,l,l",
        [words.to(tl.int64), value],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def get_words(words):
    """Load whole words. Written in PTX: an atomic addition of 0 would serialise with other loads of them."""
    return tl.inline_asm_elementwise(
        "ld.relaxed.sys.global.b64 $0, [$1];", "=l,l", [words.to(tl.int64)], dtype=tl.int64, is_pure=False, pack=1
    )


@triton.jit
def put_words_where(words, packets, mask):
    """Store those of the words whose `mask` is set."""
    tl.inline_asm_elementwise(
        "{ .reg .pred there; setp.ne.s32 there, $3, 0; @there st.relaxed.sys.global.b64 [$1], $2; mov.u32 $0, 0; }",
        "=r,l,l,r",
        [words.to(tl.int64), packets, mask.to(tl.int32)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def get_words_where(words, mask):
    """Load those of the words whose `mask` is set; others are 0."""
    return tl.inline_asm_elementwise(
        "{ .reg .pred there; setp.ne.s32 there, $2, 0; mov.u64 $0, 0; @there ld.relaxed.sys.global.b64 $0, [$1]; }",
        "=&l,l,r",
        [words.to(tl.int64), mask.to(tl.int32)],
        dtype=tl.int64,
        is_pure=False,
        pack=1,
    )
