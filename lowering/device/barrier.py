"""The barrier of a program, in portable Triton, which targets and vendors replace; and a wait for its own stores."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def program_barrier():
    """CTA barrier: the stores of all threads come before what any thread does next."""
    tl.debug_barrier()


@triton.jit
def flush_stores():
    """Block until what descriptors of this program have stored has arrived; a barrier has to follow."""
    tl.inline_asm_elementwise(
        "cp.async.bulk.wait_group 0; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
    )
