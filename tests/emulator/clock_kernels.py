"""Kernels that read a clock while they wait: for time alone, for a word until a deadline, and for ever."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def now():
    return tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=r", [], dtype=tl.int64, is_pure=False, pack=1)


@triton.jit
def pause_in_test(out, CLOCKS: tl.constexpr):
    begun = now()
    while now() - begun < CLOCKS:
        pass
    tl.store(out, now() - begun)


@triton.jit
def pause_in_body(out, CLOCKS: tl.constexpr):
    begun = now()
    left = tl.full((), CLOCKS, tl.int64)
    while left > 0:
        left = begun + CLOCKS - now()
    tl.store(out, now() - begun)


@triton.jit
def pause_by_sum(out, CLOCKS: tl.constexpr):
    begun = now()
    last = begun
    passed = tl.full((), 0, tl.int64)
    while passed < CLOCKS:
        moment = now()
        passed += moment - last
        last = moment
    tl.store(out, now() - begun)


@triton.jit
def pause_in_microseconds(out, CLOCKS: tl.constexpr):
    begun = now()
    micros = tl.full((), 0, tl.int64)
    while micros * 1000 < CLOCKS:
        micros = (now() - begun) // 1000
    tl.store(out, now() - begun)


@triton.jit
def pause_by_pauses(out, CLOCKS: tl.constexpr):
    begun = now()
    while now() - begun < CLOCKS:
        inner = now()
        while now() - inner < 50:
            pass
    tl.store(out, now() - begun)


@triton.jit
def pause_and_count(out, CLOCKS: tl.constexpr):
    begun = now()
    rounds = 0
    while now() - begun < CLOCKS:
        rounds += 1
    tl.store(out, now() - begun)


@triton.jit
def raise_late(word, CLOCKS: tl.constexpr):
    begun = now()
    while now() - begun < CLOCKS:
        pass
    tl.atomic_xchg(word, 1, sem="release", scope="sys")


@triton.jit
def await_until(word, out, CLOCKS: tl.constexpr):
    """2 if the deadline passes, else 1."""
    begun = now()
    late = begun < begun
    while (tl.atomic_add(word, 0, sem="acquire", scope="sys") == 0) & (late == 0):
        late = now() - begun > CLOCKS
    tl.store(out, tl.where(late, 2, 1))


@triton.jit
def await_and_look(word, out):
    """As a wait that shows how long it has taken, without a deadline."""
    waited = tl.full((), 0, tl.int64)
    begun = now()
    while tl.atomic_add(word, 0, sem="acquire", scope="sys") == 0:
        waited = now() - begun
    tl.store(out, waited)


@triton.jit
def work_by_the_clock(x, out, ROUNDS: tl.constexpr):
    """Reads the clock in each round of work: no round is idle."""
    begun = now()
    k = 0
    sums = tl.zeros((4,), tl.float32)
    spent = tl.full((), 0, tl.int64)
    while k < ROUNDS:
        sums += tl.load(x + k % 8 + tl.arange(0, 4))
        spent = now() - begun
        k += 1
    tl.store(out, spent)
