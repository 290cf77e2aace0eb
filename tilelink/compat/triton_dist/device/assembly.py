"""PTX texts of the device functions, made at compile time from scopes and orders; what is illegal raises ValueError there.

Labels and registers stand in braces, so that a text may occur many times in one kernel.
Source: PTX ISA 8.7, sections on ld, st, atom, red, membar/fence, shfl, vote and multimem.
"""

from __future__ import annotations

import triton

LOAD_ORDERS = ("relaxed", "acquire")
STORE_ORDERS = ("relaxed", "release")
ATOMIC_ORDERS = ("relaxed", "acquire", "release", "acq_rel")
DEVICE_SCOPES = ("gpu", "sys")
WAIT_SCOPES = ("cta", "gpu", "sys")
FENCE_ORDERS = ("acq_rel", "sc")
MEMBARS = {"cta": "cta", "gl": "gl", "gpu": "gl", "sys": "sys"}
COMPARISONS = ("eq", "ne", "gt", "le", "lt", "ge")  # by number, as NVSHMEM counts them
SIGNAL_OPS = {"set": "st.relaxed", "add": "red.relaxed"}
COMM_SCOPES = {"gpu": "gpu", "intra_node": "sys", "inter_node": "sys"}


@triton.constexpr_function
def _check(what, value, legal):  # type: ignore[no-untyped-def]
    if value not in legal:
        raise ValueError(f"{what} is {value!r}. Legal: {', '.join(map(repr, legal))}.")


@triton.constexpr_function
def _check_word(bits):  # type: ignore[no-untyped-def]
    _check("the width of the word in bits", bits, (32, 64))


@triton.constexpr_function
def wait_text(bits, scope, semantic):  # type: ignore[no-untyped-def]
    """$0 token = poll words of `bits` from $1 on, lane i the i-th of $2, until equal to $3; then the warp meets."""
    _check_word(bits)
    _check("scope", scope, WAIT_SCOPES)
    _check("semantic", semantic, LOAD_ORDERS)
    return f"""{{
.reg .pred %idle, %differs;
.reg .u32 %lane;
.reg .u64 %at;
.reg .b{bits} %found;
mov.u32 %lane, %laneid;
setp.ge.u32 %idle, %lane, $2;
@%idle bra DONE;
mad.wide.u32 %at, %lane, {bits // 8}, $1;
AGAIN:
ld.{semantic}.{scope}.global.b{bits} %found, [%at];
setp.ne.b{bits} %differs, %found, $3;
@%differs bra AGAIN;
DONE:
bar.warp.sync 0xffffffff;
mov.u32 $0, 0;
}}"""


@triton.constexpr_function
def until_text(bits, scope, comparison):  # type: ignore[no-untyped-def]
    """$0 = the word of `bits` at $1, acquired as soon as it compares so with $2, unsigned."""
    _check_word(bits)
    _check("scope", scope, DEVICE_SCOPES)
    _check("cmp_", comparison, range(len(COMPARISONS)))
    kind = "b" if COMPARISONS[comparison] in ("eq", "ne") else "u"
    return f"""{{
.reg .pred %holds;
AGAIN:
ld.acquire.{scope}.global.b{bits} $0, [$1];
setp.{COMPARISONS[comparison]}.{kind}{bits} %holds, $0, $2;
@!%holds bra AGAIN;
}}"""


@triton.constexpr_function
def load_text(bits, scope, semantic):  # type: ignore[no-untyped-def]
    """$0 = the word at $1."""
    _check_word(bits)
    _check("scope", scope, DEVICE_SCOPES)
    _check("semantic", semantic, LOAD_ORDERS)
    return f"ld.{semantic}.{scope}.global.b{bits} $0, [$1];"


@triton.constexpr_function
def store_text(bits, scope, semantic):  # type: ignore[no-untyped-def]
    """Store $2 at $1."""
    _check_word(bits)
    _check("scope", scope, DEVICE_SCOPES)
    _check("semantic", semantic, STORE_ORDERS)
    return f"st.{semantic}.{scope}.global.b{bits} [$1], $2; mov.u32 $0, 0;"


@triton.constexpr_function
def add_text(kind, scope, semantic):  # type: ignore[no-untyped-def]
    """$0 = what was at $1, to which $2 is added; `kind`: a type of PTX such as "u32"."""
    _check("scope", scope, DEVICE_SCOPES)
    _check("semantic", semantic, ATOMIC_ORDERS)
    return f"atom.{semantic}.{scope}.global.add.{kind} $0, [$1], $2;"


@triton.constexpr_function
def cas_text(bits, scope, semantic):  # type: ignore[no-untyped-def]
    """$0 = what was at $1, replaced by $3 if it was $2."""
    _check_word(bits)
    _check("scope", scope, DEVICE_SCOPES)
    _check("semantic", semantic, ATOMIC_ORDERS)
    return f"atom.{semantic}.{scope}.global.cas.b{bits} $0, [$1], $2, $3;"


@triton.constexpr_function
def reduce_text(bits, scope):  # type: ignore[no-untyped-def]
    """Add $2 at $1 with release order."""
    _check_word(bits)
    _check("scope", scope, DEVICE_SCOPES)
    return f"red.release.{scope}.global.add.{'s32' if bits == 32 else 'u64'} [$1], $2; mov.u32 $0, 0;"


@triton.constexpr_function
def first_thread_until_text(bits, scope):  # type: ignore[no-untyped-def]
    """The thread whose $3 is 0 spins until the word at $1 is equal to $2. Without a branch that LLVM could see."""
    _check_word(bits)
    _check("scope", scope, DEVICE_SCOPES)
    return f"""{{
.reg .pred %other, %differs;
.reg .b{bits} %found;
setp.ne.u32 %other, $3, 0;
@%other bra DONE;
AGAIN:
ld.acquire.{scope}.global.b{bits} %found, [$1];
setp.ne.b{bits} %differs, %found, $2;
@%differs bra AGAIN;
DONE:
mov.u32 $0, 0;
}}"""


@triton.constexpr_function
def first_thread_reduce_text(bits, scope):  # type: ignore[no-untyped-def]
    """The thread whose $3 is 0 adds $2 at $1 with release order."""
    _check_word(bits)
    _check("scope", scope, DEVICE_SCOPES)
    kind = "s32" if bits == 32 else "u64"
    return f"""{{
.reg .pred %first;
setp.eq.u32 %first, $3, 0;
@%first red.release.{scope}.global.add.{kind} [$1], $2;
mov.u32 $0, 0;
}}"""


@triton.constexpr_function
def notify_text(sig_op, comm_scope):  # type: ignore[no-untyped-def]
    """Thread 0: a fence, then $2 is set or added at $1, 64 bits. The other threads do nothing."""
    _check("sig_op", sig_op, tuple(SIGNAL_OPS))
    _check("comm_scope", comm_scope, tuple(COMM_SCOPES))
    scope = COMM_SCOPES[comm_scope]
    operation = f"{SIGNAL_OPS[sig_op]}.{scope}.global.{'add.u64' if sig_op == 'add' else 'b64'}"
    return f"""{{
.reg .pred %first;
.reg .u32 %thread;
mov.u32 %thread, %tid.x;
setp.eq.u32 %first, %thread, 0;
@%first membar.{MEMBARS[scope]};
@%first {operation} [$1], $2;
mov.u32 $0, 0;
}}"""


@triton.constexpr_function
def fence_text(semantic, scope):  # type: ignore[no-untyped-def]
    """An ordering fence of every thread."""
    _check("semantic", semantic, FENCE_ORDERS)
    _check("scope", scope, WAIT_SCOPES)
    return f"fence.{semantic}.{scope}; mov.u32 $0, 0;"


@triton.constexpr_function
def membar_text(scope):  # type: ignore[no-untyped-def]
    """The older spelling of a fence."""
    _check("scope", scope, tuple(MEMBARS))
    return f"membar.{MEMBARS[scope]}; mov.u32 $0, 0;"


@triton.constexpr_function
def stores_awaited_text(left):  # type: ignore[no-untyped-def]
    """All descriptor stores but the last `left` of this thread are complete."""
    return f"cp.async.bulk.wait_group {left}; mov.u32 $0, 0;"


@triton.constexpr_function
def register_text(bits, name):  # type: ignore[no-untyped-def]
    """$0 = a special register."""
    return f"mov.u{bits} $0, %{name};"


@triton.constexpr_function
def axis_text(name, axis):  # type: ignore[no-untyped-def]
    """$0 = %tid or %ntid along an axis."""
    _check("axis", axis, (0, 1, 2))
    return f"mov.u32 $0, %{name}.{'xyz'[axis]};"


@triton.constexpr_function
def vector_load_text(bits, count, scope, semantic):  # type: ignore[no-untyped-def]
    """$0, $1, ... = `count` words from the last operand on."""
    order = f".{semantic or 'relaxed'}.{scope or 'sys'}"
    registers = ", ".join(f"${lane}" for lane in range(count))
    return f"ld{order}.global.v{count}.b{bits} {{{registers}}}, [${count}];"


@triton.constexpr_function
def vector_store_text(bits, count, scope, semantic):  # type: ignore[no-untyped-def]
    """`count` words, $2 and so on, to $1 on."""
    order = f".{semantic or 'relaxed'}.{scope or 'sys'}"
    registers = ", ".join(f"${lane + 2}" for lane in range(count))
    return f"st{order}.global.v{count}.b{bits} [$1], {{{registers}}}; mov.u32 $0, 0;"


@triton.constexpr_function
def multimem_store_text(kind, count):  # type: ignore[no-untyped-def]
    """`count` registers, $2 and so on, to $1 on all ranks; `kind`: "b32", "b64", or "f32" of a vector."""
    registers = ", ".join(f"${lane + 2}" for lane in range(count))
    vector, value = (f".v{count}", f"{{{registers}}}") if count > 1 else ("", registers)
    return f"multimem.st.relaxed.sys.global{vector}.{kind} [$1], {value}; mov.u32 $0, 0;"


@triton.constexpr_function
def multimem_reduce_text(element, accumulates_f32):  # type: ignore[no-untyped-def]
    """$0 to $3 = the sum over all ranks of the 16 bytes at $4; `element`: "fp32", "bf16", "fp16"."""
    kinds = {"fp32": "f32", "bf16": "bf16x2", "fp16": "f16x2"}
    _check("the element type", element, tuple(kinds))
    wide = ".acc::f32" if accumulates_f32 and element != "fp32" else ""
    return f"multimem.ld_reduce.relaxed.sys.global.add{wide}.v4.{kinds[element]} {{$0, $1, $2, $3}}, [$4];"
