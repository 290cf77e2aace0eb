"""Words of memory with scope and order, threads and fences: the assembly under the functions of the dialect.

Every function here is run by every thread of the program, unless it says otherwise.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from tilelink.compat.triton_dist.device import assembly


@triton.jit
def load(ptr, scope: tl.constexpr, semantic: tl.constexpr):
    """The word of 32 or 64 bits at `ptr`, of its type."""
    bits: tl.constexpr = ptr.dtype.element_ty.primitive_bitwidth
    text: tl.constexpr = assembly.load_text(bits, scope, semantic)
    if bits == 32:
        found = tl.inline_asm_elementwise(text, "=r,l", [ptr], dtype=tl.int32, is_pure=False, pack=1)
    else:
        found = tl.inline_asm_elementwise(text, "=l,l", [ptr], dtype=tl.int64, is_pure=False, pack=1)
    return found.to(ptr.dtype.element_ty, bitcast=True)


@triton.jit
def bits_for(ptr, value):
    """`value` as the word at `ptr` holds it, int32 or int64."""
    element: tl.constexpr = ptr.dtype.element_ty
    typed = tl.full((), value, element)
    if element.primitive_bitwidth == 32:
        return typed.to(tl.int32, bitcast=True)
    else:
        return typed.to(tl.int64, bitcast=True)


@triton.jit
def store(ptr, value, scope: tl.constexpr, semantic: tl.constexpr):
    """Store a word of 32 or 64 bits."""
    bits: tl.constexpr = ptr.dtype.element_ty.primitive_bitwidth
    text: tl.constexpr = assembly.store_text(bits, scope, semantic)
    constraints: tl.constexpr = "=r,l,r" if bits == 32 else "=r,l,l"
    tl.inline_asm_elementwise(text, constraints, [ptr, bits_for(ptr, value)], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def add(ptr, value, scope: tl.constexpr, semantic: tl.constexpr):
    """Add to a word of 32 or 64 bits; returns what was there before."""
    element: tl.constexpr = ptr.dtype.element_ty
    if element == tl.float32:
        operands = [ptr, tl.full((), value, tl.float32)]
        text: tl.constexpr = assembly.add_text("f32", scope, semantic)
        return tl.inline_asm_elementwise(text, "=f,l,f", operands, dtype=tl.float32, is_pure=False, pack=1)
    elif element.primitive_bitwidth == 32:
        text: tl.constexpr = assembly.add_text("u32", scope, semantic)
        operands = [ptr, bits_for(ptr, value)]
        found = tl.inline_asm_elementwise(text, "=r,l,r", operands, dtype=tl.int32, is_pure=False, pack=1)
        return found.to(element, bitcast=True)
    else:
        text: tl.constexpr = assembly.add_text("u64", scope, semantic)
        operands = [ptr, bits_for(ptr, value)]
        found = tl.inline_asm_elementwise(text, "=l,l,l", operands, dtype=tl.int64, is_pure=False, pack=1)
        return found.to(element, bitcast=True)


@triton.jit
def compare_and_swap(ptr, expected, wanted, scope: tl.constexpr, semantic: tl.constexpr):
    """Put `wanted` in the place of `expected`; returns what was there before."""
    bits: tl.constexpr = ptr.dtype.element_ty.primitive_bitwidth
    text: tl.constexpr = assembly.cas_text(bits, scope, semantic)
    operands = [ptr, bits_for(ptr, expected), bits_for(ptr, wanted)]
    if bits == 32:
        found = tl.inline_asm_elementwise(text, "=r,l,r,r", operands, dtype=tl.int32, is_pure=False, pack=1)
    else:
        found = tl.inline_asm_elementwise(text, "=l,l,l,l", operands, dtype=tl.int64, is_pure=False, pack=1)
    return found.to(ptr.dtype.element_ty, bitcast=True)


@triton.jit
def reduce(ptr, value, scope: tl.constexpr):
    """Add to a word with release order."""
    bits: tl.constexpr = ptr.dtype.element_ty.primitive_bitwidth
    text: tl.constexpr = assembly.reduce_text(bits, scope)
    constraints: tl.constexpr = "=r,l,r" if bits == 32 else "=r,l,l"
    tl.inline_asm_elementwise(text, constraints, [ptr, bits_for(ptr, value)], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def until(ptr, value, scope: tl.constexpr, comparison: tl.constexpr):
    """Spin until the word compares so (unsigned; 0 to 5: EQ, NE, GT, LE, LT, GE); acquires and returns it."""
    bits: tl.constexpr = ptr.dtype.element_ty.primitive_bitwidth
    text: tl.constexpr = assembly.until_text(bits, scope, comparison)
    operands = [ptr, bits_for(ptr, value)]
    if bits == 32:
        found = tl.inline_asm_elementwise(text, "=&r,l,r", operands, dtype=tl.int32, is_pure=False, pack=1)
    else:
        found = tl.inline_asm_elementwise(text, "=&l,l,l", operands, dtype=tl.int64, is_pure=False, pack=1)
    return found.to(ptr.dtype.element_ty, bitcast=True)


@triton.jit
def execute(text: tl.constexpr):
    """Run assembly that has no value; it ends with `mov.u32 $0, 0;`."""
    tl.inline_asm_elementwise(text, "=r", [], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def meet():
    """All threads of the program meet.

    As assembly, because no loop around `tl.debug_barrier()` is pipelined; in the form that threads of a warp may come to
    one by one, because LLVM may copy assembly into both sides of a branch on a thread's number.
    """
    execute("barrier.sync 0; mov.u32 $0, 0;")


@triton.jit
def first_thread_until(ptr, thread_idx, value, scope: tl.constexpr):
    """The thread that holds 0 in `thread_idx` spins until the word is equal to `value`, and acquires."""
    bits: tl.constexpr = ptr.dtype.element_ty.primitive_bitwidth
    text: tl.constexpr = assembly.first_thread_until_text(bits, scope)
    constraints: tl.constexpr = "=r,l,r,r" if bits == 32 else "=r,l,l,r"
    operands = [ptr, bits_for(ptr, value), tl.full((), thread_idx, tl.int32)]
    tl.inline_asm_elementwise(text, constraints, operands, dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def first_thread_reduce(ptr, thread_idx, value, scope: tl.constexpr):
    """The thread that holds 0 in `thread_idx` adds with release order."""
    bits: tl.constexpr = ptr.dtype.element_ty.primitive_bitwidth
    text: tl.constexpr = assembly.first_thread_reduce_text(bits, scope)
    constraints: tl.constexpr = "=r,l,r,r" if bits == 32 else "=r,l,l,r"
    operands = [ptr, bits_for(ptr, value), tl.full((), thread_idx, tl.int32)]
    tl.inline_asm_elementwise(text, constraints, operands, dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def notify(ptr, signal, sig_op: tl.constexpr, comm_scope: tl.constexpr):
    """Thread 0 fences, then sets the 64-bit word or adds to it; no CTA barrier before."""
    text: tl.constexpr = assembly.notify_text(sig_op, comm_scope)
    value = tl.full((), signal, tl.int64)
    tl.inline_asm_elementwise(text, "=r,l,l", [ptr, value], dtype=tl.int32, is_pure=False, pack=1)
