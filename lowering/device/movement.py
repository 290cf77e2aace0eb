"""Moving bytes by SMs."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def copy_share(target, source, size, program, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    """Copy this program's share of `size` consecutive elements; the programs together copy all of them."""
    for start in range(program * BLOCK, size, PROGRAMS * BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        inside = offsets < size
        tl.store(target + offsets, tl.load(source + offsets, mask=inside), mask=inside)
