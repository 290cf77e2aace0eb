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
