"""Small kernels whose memory order is right or wrong, as their constants say."""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

SIZE = tl.constexpr(64)
SIDE = tl.constexpr(8)


@triton.jit
def asm(TEXT: tl.constexpr):
    tl.inline_asm_elementwise(TEXT, "=r", [], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def push(
    buffer,
    signal,
    value,
    SEM: tl.constexpr = "release",
    SCOPE: tl.constexpr = "sys",
    BARRIER: tl.constexpr = True,
    FENCE: tl.constexpr = "",
    LATE_FENCE: tl.constexpr = "",
):
    """All threads store, one notifies."""
    lanes = tl.arange(0, SIZE)
    tl.store(buffer + lanes, lanes + value)
    if FENCE != "":
        asm(FENCE)
    if BARRIER:
        tl.debug_barrier()
    if LATE_FENCE != "":
        asm(LATE_FENCE)
    tl.atomic_xchg(signal, value, sem=SEM, scope=SCOPE)


@triton.jit
def push_scalar(buffer, signal, value):
    """The thread that stores is the one that notifies."""
    tl.store(buffer, value)
    tl.atomic_xchg(signal, value, sem="release", scope="sys")


@triton.jit
def push_by_atomics(buffer, signal, value, BARRIER: tl.constexpr):
    lanes = tl.arange(0, SIZE)
    tl.atomic_add(buffer + lanes, lanes, sem="relaxed", scope="sys")
    if BARRIER:
        tl.debug_barrier()
    tl.atomic_xchg(signal, value, sem="release", scope="sys")


@triton.jit
def push_plain(buffer, signal, value):
    """A plain store as a flag."""
    tl.store(buffer + tl.arange(0, SIZE), value)
    tl.debug_barrier()
    tl.store(signal, value)


@triton.jit
def take(buffer, signal, value, out, SEM: tl.constexpr = "acquire", SCOPE: tl.constexpr = "sys"):
    lanes = tl.arange(0, SIZE)
    while tl.atomic_add(signal, 0, sem=SEM, scope=SCOPE) < value:
        pass
    tl.store(out + lanes, tl.load(buffer + lanes))


@triton.jit
def count(word, amount, SCOPE: tl.constexpr, VECTOR: tl.constexpr = False):
    """Arrivals of which nobody makes anything."""
    if VECTOR:
        tl.atomic_add(word + tl.arange(0, 2), amount, sem="relaxed", scope=SCOPE)
    else:
        tl.atomic_add(word, amount, sem="relaxed", scope=SCOPE)


@triton.jit
def count_behind(flag, word, SCOPE: tl.constexpr):
    """Waits in a way that orders nothing."""
    while tl.atomic_add(flag, 0, sem="relaxed", scope="sys") == 0:
        pass
    tl.atomic_add(word, 1, sem="relaxed", scope=SCOPE)


@triton.jit
def count_twice(words):
    for place in tl.static_range(2):
        tl.atomic_add(words + place, 1, sem="relaxed", scope="sys" if place == 0 else "gpu")


@triton.jit
def count_at_every_scope(words):
    for _ in range(2):
        tl.atomic_add(words, 1, sem="relaxed", scope="sys")
        tl.atomic_add(words, 1, sem="acquire", scope="gpu")
        tl.atomic_add(words, 1, sem="release", scope="cta")
        tl.atomic_add(words + tl.arange(0, 4), 1, sem="relaxed", scope="cta")


@triton.jit
def look(word, out, SCOPE: tl.constexpr):
    """What was counted so far, if that tells anything."""
    tl.store(out, tl.atomic_add(word, 0, sem="relaxed", scope=SCOPE))


@triton.jit
def look_volatile(word, out):
    tl.store(out, tl.load(word, volatile=True))


@triton.jit
def take_and_free(buffer, signal, value, out, done):
    take(buffer, signal, value, out)
    tl.debug_barrier()
    tl.atomic_xchg(done, value, sem="release", scope="sys")


@triton.jit
def wait_and_push(buffer, signal, value, done):
    while tl.atomic_add(done, 0, sem="acquire", scope="sys") < value - 1:
        pass
    push(buffer, signal, value)


@triton.jit
def poll(buffer, signal, value, out, VOLATILE: tl.constexpr, FENCE: tl.constexpr = ""):
    lanes = tl.arange(0, SIZE)
    while tl.load(signal, volatile=VOLATILE) < value:
        pass
    if FENCE != "":
        asm(FENCE)
    tl.store(out + lanes, tl.load(buffer + lanes))


@triton.jit
def take_from_all(buffer, signals, value, out, COUNT: tl.constexpr, BARRIER: tl.constexpr):
    """Each of COUNT lanes waits for one signal."""
    lanes = tl.arange(0, SIZE)
    words = signals + tl.arange(0, COUNT)
    while tl.min(tl.atomic_add(words, 0, sem="acquire", scope="sys")) < value:
        pass
    if BARRIER:
        tl.debug_barrier()
    tl.store(out + lanes, tl.load(buffer + lanes))


@triton.jit
def count_and_notify(buffer, count, signal, SEM: tl.constexpr, BARRIER: tl.constexpr = True):
    """Every program stores a part; the last one notifies for all."""
    lanes = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(buffer + lanes, lanes)
    if BARRIER:
        tl.debug_barrier()
    if tl.atomic_add(count, 1, sem=SEM, scope="gpu") == tl.num_programs(0) - 1:
        tl.debug_barrier()
        tl.atomic_xchg(signal, 1, sem="release", scope="sys")


@triton.jit
def take_parts(buffer, signal, out, PARTS: tl.constexpr):
    while tl.atomic_add(signal, 0, sem="acquire", scope="sys") < 1:
        pass
    for part in range(PARTS):
        lanes = part * SIZE + tl.arange(0, SIZE)
        tl.store(out + lanes, tl.load(buffer + lanes))


@triton.jit
def push_descriptor(buffer, signal, value, AWAIT: tl.constexpr, BARRIER: tl.constexpr = True):
    block = tl.make_tensor_descriptor(buffer, [SIDE, SIDE], [SIDE, 1], [SIDE, SIDE])
    block.store([0, 0], tl.full((SIDE, SIDE), 1, tl.int32) * value)
    if AWAIT != "":
        asm(AWAIT)
    if BARRIER:
        tl.debug_barrier()
    tl.atomic_xchg(signal, value, sem="release", scope="sys")


@triton.jit
def take_descriptor(buffer, signal, value, out, FENCE: tl.constexpr, EARLY: tl.constexpr = ""):
    block = tl.make_tensor_descriptor(buffer, [SIDE, SIDE], [SIDE, 1], [SIDE, SIDE])
    own = tl.make_tensor_descriptor(out, [SIDE, SIDE], [SIDE, 1], [SIDE, SIDE])
    if EARLY != "":
        asm(EARLY)
    while tl.atomic_add(signal, 0, sem="acquire", scope="sys") < value:
        pass
    if FENCE != "":
        asm(FENCE)
    own.store([0, 0], block.load([0, 0]))


@triton.jit
def fill(out, value):
    tl.store(out + tl.arange(0, SIZE), value)


@triton.jit
def fill_descriptor(out, value):
    own = tl.make_tensor_descriptor(out, [SIDE, SIDE], [SIDE, 1], [SIDE, SIDE])
    own.store([0, 0], tl.full((SIDE, SIDE), 1, tl.int32) * value)


@triton.jit
def read(x, out):
    lanes = tl.arange(0, SIZE)
    tl.store(out + lanes, tl.load(x + lanes))


@triton.jit
def store_then_read_back(x, out, BARRIER: tl.constexpr):
    """One thread stores what all threads read."""
    tl.store(x, 7)
    if BARRIER:
        tl.debug_barrier()
    lanes = tl.arange(0, SIZE)
    tl.store(out + lanes, tl.load(x + lanes))


@triton.jit
def store_twice(x, FIRST: tl.constexpr, SECOND: tl.constexpr):
    """A scalar store, then one through a block of one element: two threads as far as anyone knows."""
    if FIRST:
        tl.store(x, 1)
    if SECOND:
        tl.store(x + tl.arange(0, 1), 2)


@triton.jit
def use_scratch(x, out):
    """What one program does on its own: scalar by scalar, block by block, lanes and block."""
    lanes = tl.arange(0, SIZE)
    for step in range(3):
        tl.store(x, tl.load(x) + step)
        tl.store(out + lanes, tl.load(out + lanes) + step)
        tl.atomic_add(out + lanes, 1, sem="relaxed", scope="gpu")
        tl.store(out + lanes, tl.load(out + lanes) + step)


@triton.jit
def narrow(x, value):
    """Stores bytes of int32 elements: the even bytes or the odd ones."""
    bytes_of = x.to(tl.pointer_type(tl.int8))
    tl.store(bytes_of + 2 * tl.arange(0, SIZE) + value, tl.full((SIZE,), 1, tl.int8) * value)


@triton.jit
def raise_lanes(pointers, value, COUNT: tl.constexpr):
    """One vector atomic into the buffers of several ranks."""
    words = tl.load(pointers + tl.arange(0, COUNT)).to(tl.pointer_type(tl.int32))
    tl.atomic_xchg(words, value, sem="release", scope="sys")


@triton.jit
def await_relaxed(signal, value):
    """Its end is all that orders anything."""
    while tl.atomic_add(signal, 0, sem="relaxed", scope="sys") < value:
        pass
