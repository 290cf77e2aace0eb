"""Helpers of signals on NVIDIA GPUs; a helper of the same name takes the place of the portable one."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def program_barrier():
    """All threads of the program meet, and their stores come before whatever one of them does next.

    As assembly, because the compiler does not pipeline a loop around `tl.debug_barrier()`.
    """
    tl.inline_asm_elementwise("bar.sync 0; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def fence_descriptors():
    """Order descriptor loads, which go through the asynchronous proxy, after what has been acquired."""
    tl.inline_asm_elementwise(
        "fence.proxy.async.global; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def put_words(words, value):
    """Store whole words, here or at a peer. As assembly: an exchange would bring the old ones back."""
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
    """Load whole words as they are now. As assembly: an addition of nothing would hold up other loads of them."""
    return tl.inline_asm_elementwise(
        "ld.relaxed.sys.global.b64 $0, [$1];", "=l,l", [words.to(tl.int64)], dtype=tl.int64, is_pure=False, pack=1
    )
