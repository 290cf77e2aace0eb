"""The multimem functions of `language_extra`: one access that the switch carries out on all ranks.

They take addresses that `libshmem_device.remote_mc_ptr` returned. They compile for sm_90; links without multicast, and
machines on which it is off, have no such addresses.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton.language as tl

from tilelink.compat.dialects import simt
from tilelink.compat.triton_dist.device import assembly
from tilelink.compat.triton_dist.kernels import device


@device(lambda ptr, v: simt.multimem_st("multimem_st_b32", ptr, (v,)))
def multimem_st_b32(ptr, v):
    """Store 32 bits on all ranks."""
    text: tl.constexpr = assembly.multimem_store_text("b32", 1)
    tl.inline_asm_elementwise(text, "=r,l,r", [ptr, v], dtype=tl.int32, is_pure=False, pack=1)


@device(lambda ptr, v: simt.multimem_st("multimem_st_b64", ptr, (v,)))
def multimem_st_b64(ptr, v):
    """Store 64 bits on all ranks."""
    text: tl.constexpr = assembly.multimem_store_text("b64", 1)
    tl.inline_asm_elementwise(text, "=r,l,l", [ptr, v], dtype=tl.int32, is_pure=False, pack=1)


@device(lambda ptr, v0, v1: simt.multimem_st("multimem_st_v2", ptr, (v0, v1)))
def multimem_st_v2(ptr, v0, v1):
    """Store two words of 32 bits on all ranks."""
    text: tl.constexpr = assembly.multimem_store_text("f32", 2)
    tl.inline_asm_elementwise(text, "=r,l,r,r", [ptr, v0, v1], dtype=tl.int32, is_pure=False, pack=1)


@device(lambda ptr, v0, v1, v2, v3: simt.multimem_st("multimem_st_v4", ptr, (v0, v1, v2, v3)))
def multimem_st_v4(ptr, v0, v1, v2, v3):
    """Store four words of 32 bits on all ranks."""
    text: tl.constexpr = assembly.multimem_store_text("f32", 4)
    tl.inline_asm_elementwise(text, "=r,l,r,r,r,r", [ptr, v0, v1, v2, v3], dtype=tl.int32, is_pure=False, pack=1)


@device(lambda ptr, val, mask: simt.multimem_st("multimem_st_p_b32", ptr, (val,), mask))
def multimem_st_p_b32(ptr, val, mask):
    """Store 32 bits on all ranks where `mask` is not 0."""
    text: tl.constexpr = (
        "{ .reg .pred %p; setp.ne.b32 %p, $3, 0; @%p multimem.st.relaxed.sys.global.b32 [$1], $2; mov.u32 $0, 0; }"
    )
    operands = [ptr, val, tl.full((), mask, tl.int32)]
    tl.inline_asm_elementwise(text, "=r,l,r,r", operands, dtype=tl.int32, is_pure=False, pack=1)


@device(simt.multimem_ld_reduce_v4)
def multimem_ld_reduce_v4(ptr, acc_dtype: tl.constexpr = None):
    """Four words of 32 bits: the sum over all ranks of the 16 bytes of fp32, bf16 or fp16 at `ptr`.

    bf16 and fp16 are summed in fp32, unless `acc_dtype` is another type than fp32.
    """
    wide: tl.constexpr = acc_dtype is None or acc_dtype == tl.float32
    element: tl.constexpr = ptr.dtype.element_ty.name
    text: tl.constexpr = assembly.multimem_reduce_text(element, wide)
    return tl.inline_asm_elementwise(text, "=r,=r,=r,=r,l", [ptr], dtype=(tl.int32,) * 4, is_pure=False, pack=1)
