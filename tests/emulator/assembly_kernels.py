"""Kernels with inline assembly in the forms that published kernels over symmetric memory have; constants plant mistakes."""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

SIZE = tl.constexpr(64)


@triton.jit
def thread():
    """The number of the running thread."""
    return tl.inline_asm_elementwise("mov.u32 $0, %tid.x;", "=r", [], dtype=tl.uint32, is_pure=True, pack=1)


@triton.jit
def flat_thread():
    """The same, of a block of three axes."""
    x, y, z = tl.inline_asm_elementwise(
        "mov.u32 $0, %tid.x; mov.u32 $1, %tid.y; mov.u32 $2, %tid.z;",
        "=r,=r,=r",
        [],
        dtype=(tl.uint32, tl.uint32, tl.uint32),
        is_pure=True,
        pack=1,
    )
    width, height = tl.inline_asm_elementwise(
        "mov.u32 $0, %ntid.x; mov.u32 $1, %ntid.y;", "=r,=r", [], (tl.uint32, tl.uint32), is_pure=True, pack=1
    )
    return (z * height + y) * width + x


@triton.jit
def raise_from_zero(words, ORDER: tl.constexpr, SCOPE: tl.constexpr):
    """Each word from 0 to 1, as soon as it is 0."""
    tl.inline_asm_elementwise(
        f"""
        {{
            .reg .u32   %old<1>;
            .reg .pred  %p<1>;

            again:
                atom.global.{ORDER}.{SCOPE}.cas.b32 %old0, [$1], 0, 1;
                setp.eq.u32 %p0, %old0, 0;
                @!%p0 bra again;
        }}
        """,
        "=r, l",
        [words],
        dtype=words.dtype,
        is_pure=False,
        pack=1,
    )


@triton.jit
def take_to_zero(words, ORDER: tl.constexpr, SCOPE: tl.constexpr):
    """Each word from 1 to 0, as soon as it is 1."""
    tl.inline_asm_elementwise(
        f"""
        {{
            .reg .u32   %old<1>;
            .reg .pred  %p<1>;

            again:
                atom.global.{SCOPE}.{ORDER}.cas.b32 %old0, [$1], 1, 0;
                setp.eq.u32 %p0, %old0, 1;
                @!%p0 bra again;
        }}
        """,
        "=r, l",
        [words],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def meet(
    pads, rank, RANKS: tl.constexpr, BEFORE: tl.constexpr, AFTER: tl.constexpr, SCOPE: tl.constexpr, ALL: tl.constexpr
):
    """Programs of one number meet: one thread for each peer raises its word there, and takes the peer's word here."""
    number = flat_thread()
    peers = tl.arange(0, RANKS)
    pads = pads.to(tl.pointer_type(tl.uint64))
    first = tl.program_id(0) * RANKS
    theirs = tl.load(pads + peers).to(tl.pointer_type(tl.uint32)) + first + rank
    ours = tl.load(pads + rank).to(tl.pointer_type(tl.uint32)) + first + peers
    if BEFORE:
        tl.debug_barrier()
    if ALL:
        raise_from_zero(theirs, "release" if BEFORE else "relaxed", SCOPE)
    elif number < RANKS:
        raise_from_zero(theirs, "release" if BEFORE else "relaxed", SCOPE)
        take_to_zero(ours, "acquire" if AFTER else "relaxed", SCOPE)
    if AFTER:
        tl.debug_barrier()


@triton.jit
def meet_thread_by_thread(pads, rank, RANKS: tl.constexpr, BARRIER: tl.constexpr):
    """The same: a scalar of each thread is its peer, and both halves are one snippet."""
    peer = thread()
    pads = pads.to(tl.pointer_type(tl.uint64))
    tl.inline_asm_elementwise("bar.sync 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    if peer < RANKS:
        theirs = tl.load(pads + peer).to(tl.pointer_type(tl.uint32)) + rank
        ours = tl.load(pads + rank).to(tl.pointer_type(tl.uint32)) + peer
        tl.inline_asm_elementwise(
            """{
                .reg .u32 old; .reg .pred done;
                send:
                    atom.global.release.sys.cas.b32 old, [$1], 0, 1;
                    setp.eq.u32 done, old, 0;
                    @!done bra send;
                wait:  // until the peer has come
                    atom.global.acquire.sys.cas.b32 old, [$2], 1, 0;
                    setp.eq.u32 done, old, 1;
                    @!done bra wait;
                end:
            }""",
            "=r, l, l",
            [theirs, ours],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
    if BARRIER:
        tl.inline_asm_elementwise("bar.sync 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def read_next(
    buffers,
    pads,
    out,
    rank,
    RANKS: tl.constexpr,
    FORM: tl.constexpr,
    AFTER: tl.constexpr = True,
    BEFORE: tl.constexpr = True,
    SCOPE: tl.constexpr = "sys",
    ALL: tl.constexpr = False,
):
    """The buffer of the next rank, between two meetings."""
    if FORM == "blocks":
        meet(pads, rank, RANKS, False, AFTER, SCOPE, ALL)
    else:
        meet_thread_by_thread(pads, rank, RANKS, AFTER)
    table = buffers.to(tl.pointer_type(tl.uint64))
    theirs = tl.load(table + (rank + 1) % RANKS).to(tl.pointer_type(tl.int32))
    tl.store(out + tl.arange(0, SIZE), tl.load(theirs + tl.arange(0, SIZE)))
    if FORM == "blocks":
        meet(pads, rank, RANKS, BEFORE, False, SCOPE, False)
    else:
        meet_thread_by_thread(pads, rank, RANKS, True)


@triton.jit
def publish(buffer, word, value, ORDER: tl.constexpr):
    """One thread of the program copies eight numbers and tells so; which one it is the snippet asks."""
    tl.inline_asm_elementwise(
        f"""
        {{
            .reg .pred other;
            .reg .u32 number, value;
            .reg .u64 pair;
            mov.u32 number, %tid.x;
            setp.ne.u32 other, number, 0;
            @other bra done;
            cvt.u32.u64 value, $3;
            mov.b64 pair, {{value, value}};
            st.relaxed.sys.global.u64 [$1 + 0], pair;
            st.relaxed.sys.global.u64 [$1 + 8], pair;
            atom.global.{ORDER}.sys.exch.b32 value, [$2], value;
            done:
            mov.u32 $0, 0;
        }}
        """,
        "=r,l,l,l",
        [buffer.to(tl.int64), word.to(tl.int64), tl.full([1], value, tl.int64)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def push_and_tell(buffer, word, value, FENCE: tl.constexpr, BARRIER: tl.constexpr, RELEASE: tl.constexpr):
    """All threads store, then every one tells with a store."""
    tl.store(buffer + tl.arange(0, SIZE), value)
    if BARRIER:
        tl.debug_barrier()
    tl.inline_asm_elementwise(
        f"{FENCE}; st.global.{RELEASE}.sys.b32 [$1], $2; mov.u32 $0, 0;",
        "=r, l, r",
        [word, value],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def count_and_tell(buffer, word, value):
    """All threads store, the first one counts."""
    tl.store(buffer + tl.arange(0, SIZE), value)
    tl.debug_barrier()
    if thread() == 0:
        tl.inline_asm_elementwise(
            "red.release.sys.global.add.u32 [$1], $2; mov.u32 $0, 0;", "=r, l, r", [word, value], tl.int32, False, 1
        )


@triton.jit
def await_and_read(buffer, word, value, out, ORDER: tl.constexpr, FENCE: tl.constexpr):
    """Every thread polls until the word is at least `value`."""
    tl.inline_asm_elementwise(
        f"""
        {{
            .reg .u32 found;
            .reg .pred early;
            poll:
                ld.global.{ORDER}.b32 found, [$1];
                setp.lt.u32 early, found, $2;
                @early bra poll;
            {FENCE}
        }}
        """,
        "=r, l, r",
        [word, value],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
    tl.store(out + tl.arange(0, SIZE), tl.load(buffer + tl.arange(0, SIZE)))


@triton.jit
def add_by_all(word):
    """Every thread adds one."""
    tl.inline_asm_elementwise("red.global.add.u32 [$1], 1; mov.u32 $0, 0;", "=r, l", [word], tl.int32, False, 1)


@triton.jit
def copy_by_threads(x, out, COUNT: tl.constexpr):
    """Each thread loads and stores 16 bytes, if they lie inside."""
    number = thread()
    inside = (number < COUNT // 4).to(tl.int32)
    a, b, c, d = tl.inline_asm_elementwise(
        """
        {
            .reg .pred %p0;
            setp.eq.s32 %p0, $5, 1;
            @!%p0 bra end;
            ld.global.v4.b32 {$0, $1, $2, $3}, [$4];
            end:
        }
        """,
        "=r,=r,=r,=r,l,r",
        [x + 4 * number, inside],
        dtype=(tl.uint32, tl.uint32, tl.uint32, tl.uint32),
        is_pure=True,
        pack=1,
    )
    tl.inline_asm_elementwise(
        """
        {
            .reg .pred %p0;
            setp.ne.s32 %p0, $6, 1;
            @%p0 bra end;
            st.global.v4.b32 [$1], {$2, $3, $4, $5};
            end:
        }
        """,
        "=r,l,r,r,r,r,r",
        [out + 4 * number, a, b, c, d, inside],
        dtype=tl.uint32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def sum_by_switch(multicast, out, COUNT: tl.constexpr):
    """The sum of all ranks' pairs of bf16, stored to all ranks."""
    at = multicast.to(tl.pointer_type(tl.uint32)) + tl.arange(0, COUNT)
    total = tl.inline_asm_elementwise(
        "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.bf16x2 $0, [$1];", "=r,l", [at], tl.uint32, True, 1
    )
    tl.store(out + tl.arange(0, COUNT), total)


@triton.jit
def misuse(x, out, WHAT: tl.constexpr):
    """What has no meaning where a program is run as one."""
    number = thread()
    if WHAT == "else":
        if number < 2:
            tl.store(out, 1)
        else:
            tl.store(out, 2)
    elif WHAT == "while":
        while number < 2:
            number += 1
    elif WHAT == "assignment":
        last = 1
        if number < 2:
            last = 2
        tl.store(out, last)
    elif WHAT == "block":
        tl.store(out + tl.arange(0, SIZE), number)
    elif WHAT == "scalar":
        tl.store(out, number)
    elif WHAT == "barrier":
        if number < 2:
            tl.debug_barrier()
    elif WHAT == "block in a branch":
        if number < 2:
            tl.store(out + tl.arange(0, SIZE), 1)
    elif WHAT == "atomic":
        if number == 3:
            tl.atomic_add(out, 1)
    elif WHAT == "bar.sync":
        tl.inline_asm_elementwise(
            "{.reg .pred p; setp.ne.u32 p, $1, 0; @p bra end; bar.sync 0; end: mov.u32 $0, 0;}",
            "=r,r",
            [number],
            tl.int32,
            False,
            1,
        )
    elif WHAT == "elements":
        tl.inline_asm_elementwise("mov.u32 $0, %tid.x;", "=r,r", [tl.zeros((16, 16), tl.int32)], tl.int32, True, 1)


@triton.jit
def by_first_thread(out):
    """A store that thread 0 does, one that it would have to do, and one in a branch that all threads take."""
    number = thread()
    if number == 0:
        tl.store(out, 1)
    if number == 1:
        tl.store(out + 1, 1)
    if number < 1024:
        tl.store(out + 2, 1)
