"""The barrier of a program, in portable Triton; targets and vendors replace it."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def program_barrier():
    """CTA barrier: the stores of all threads come before what any thread does next."""
    tl.debug_barrier()
