"""Where the threads of a program meet; what a target or vendor has instead takes its place."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def program_barrier():
    """All threads of the program meet, and their stores come before whatever one of them does next."""
    tl.debug_barrier()
