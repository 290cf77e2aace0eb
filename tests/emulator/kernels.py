"""Small kernels, each for one property of the emulator."""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

SIZE = tl.constexpr(64)
HALF = tl.constexpr(SIZE.value // 2)


@triton.jit
def notify(signal, value):
    tl.debug_barrier()
    tl.atomic_xchg(signal, value, sem="release", scope="sys")


@triton.jit
def wait(signal, value):
    while tl.atomic_add(signal, 0, sem="acquire", scope="sys") < value:
        pass


@triton.jit
def wait_and_notify(mine, theirs, value):
    wait(mine, value)
    notify(theirs, value)


@triton.jit
def ping_pong(own_signal, pointers, log, peer, first, rounds):
    other = tl.load(pointers + peer).to(tl.pointer_type(tl.int32))
    for turn in range(rounds):
        if first:
            notify(other, turn + 1)
        wait(own_signal, turn + 1)
        tl.store(log + turn, tl.load(own_signal))
        if first == 0:
            notify(other, turn + 1)


@triton.jit
def half_wait(signal, consumers, out):
    """Programs below `consumers` wait for all others, which notify."""
    program = tl.program_id(0)
    if program < consumers:
        wait(signal, tl.num_programs(0) - consumers)
        tl.store(out + program, 1)
        return
    tl.debug_barrier()
    tl.atomic_add(signal, 1, sem="release", scope="sys")


@triton.jit
def half_notify(signal, producers, out):
    """The same with the producers first."""
    program = tl.program_id(0)
    if program < producers:
        tl.debug_barrier()
        tl.atomic_add(signal, 1, sem="release", scope="sys")
        return
    wait(signal, producers)
    tl.store(out + program - producers, 1)


@triton.jit
def wait_twice(signal, out, times):
    for _ in range(times):
        wait(signal, 1)
    tl.store(out, times)


@triton.jit
def wait_for_both(signal, out):
    ready = tl.load(signal) == 99
    while ready == 0:
        first = tl.atomic_add(signal, 0, sem="acquire", scope="sys")
        second = tl.atomic_add(signal + 1, 0, sem="acquire", scope="sys")
        ready = (first >= 1) & (second >= 1)
    tl.store(out, 1)


@triton.jit
def poll_words(words, out, NUM: tl.constexpr, LANES: tl.constexpr):
    """All of the first `NUM` words at once."""
    lanes = tl.arange(0, LANES)
    late = tl.full((), 1, tl.int32)
    while late > 0:
        found = tl.atomic_add(words + lanes, 0, mask=lanes < NUM, sem="acquire", scope="sys")
        late = tl.max(tl.where(lanes < NUM, 1 - found, 0), axis=0)
    tl.store(out, 1)


@triton.jit
def capped_spin(signal, out, cap):
    polls = 0
    while (tl.atomic_add(signal, 0, sem="acquire", scope="sys") == 0) & (polls < cap):
        polls += 1
    tl.store(out, polls)


@triton.jit
def take_lock(lock, counter):
    while tl.atomic_cas(lock, 0, 1, sem="acquire", scope="gpu") != 0:
        pass
    value = tl.load(counter)
    tl.atomic_add(counter + 1, 1, sem="relaxed", scope="gpu")
    tl.store(counter, value + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0, sem="release", scope="gpu")


@triton.jit
def take_tiles(counter, out, total):
    tile = tl.atomic_add(counter, 1, sem="relaxed", scope="gpu")
    while tile < total:
        tl.store(out + tile, tl.program_id(0) + 1)
        tile = tl.atomic_add(counter, 1, sem="relaxed", scope="gpu")


@triton.jit
def plain_spin(flag, out):
    while tl.load(flag) == 0:
        pass
    tl.store(out, 1)


@triton.jit
def spin_until_own_write(flag, out):
    while tl.load(flag) == 0:
        tl.atomic_xchg(flag, 1, sem="relaxed", scope="gpu")
    tl.store(out, 1)


@triton.jit
def wait_in_a_work_loop(signal, out, total):
    done = 0
    while done < total:
        wait(signal, 1)
        done += 1
    tl.store(out, done)


@triton.jit
def stuck(value):
    while value > 0:
        pass


@triton.jit
def counts_for_ever(value):
    while value > 0:
        value += 0
        value = value % 5 + 1


@triton.jit
def endless(counter):
    while tl.atomic_add(counter, 1, sem="relaxed", scope="gpu") >= 0:
        pass


@triton.jit
def fill(out, value, n, GUARD: tl.constexpr, BLOCK: tl.constexpr = SIZE):
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if GUARD:
        tl.store(out + lane, value, mask=lane < n)
    else:
        tl.store(out + lane, value)


@triton.jit
def count_up(out):
    tl.atomic_add(out + tl.program_id(0), 1, sem="relaxed", scope="sys")


@triton.jit
def fails(x):
    values = tl.load(x + tl.arange(0, SIZE))
    tl.store(x + tl.arange(0, HALF), values)


@triton.jit
def unknown_asm(out):
    tl.store(out, tl.inline_asm_elementwise("popc.b32 $0, $1;", "=r,r", [1], tl.int32, True, 1))


@triton.jit
def known_asm(out):
    zero = tl.inline_asm_elementwise(
        "cp.async.bulk.wait_group 0; fence.proxy.async.global; bar.sync 0; nanosleep.u32 20; mov.u32 $0, 7;",
        "=r",
        [],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
    tl.store(out, zero)


@triton.jit
def bf16_arithmetic(a, b, out, N: tl.constexpr):
    lane = tl.arange(0, N)
    x = tl.load(a + lane)
    y = tl.load(b + lane)
    tl.store(out + lane, x + y)
    tl.store(out + N + lane, x * y)
    tl.store(out + 2 * N + lane, x - y)
    tl.store(out + 3 * N + lane, tl.maximum(x, y))
    tl.store(out + 4 * N + lane, (x.to(tl.float32) * 3.0).to(tl.bfloat16))
    tl.store(out + 5 * N + lane, (lane * 37).to(tl.bfloat16))
    tl.store(out + 6 * N + lane, x + 1.5)
    tl.store(out + 7 * N + lane, tl.where(x < y, x, y))
    tl.store(out + 8 * N + lane, tl.abs(x))
    tl.store(out + 9 * N + lane, -x)


@triton.jit
def bf16_reductions(a, out, N: tl.constexpr):
    x = tl.load(a + tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :])
    tl.store(out + tl.arange(0, N), tl.sum(x, 1))
    tl.store(out + N + tl.arange(0, N), tl.max(x, 0))
    tl.store(out + 2 * N, tl.sum(tl.load(a + tl.arange(0, N))))


@triton.jit
def dot(a, b, out, N: tl.constexpr, OUT: tl.constexpr = tl.float32):
    rows = tl.arange(0, N)[:, None]
    columns = tl.arange(0, N)[None, :]
    product = tl.dot(tl.load(a + rows * N + columns), tl.load(b + rows * N + columns))
    tl.store(out + rows * N + columns, product.to(OUT))


@triton.jit
def bf16_atomics(out, N: tl.constexpr):
    lane = tl.arange(0, N)
    tl.atomic_add(out + lane % 2, (lane + 1).to(tl.bfloat16), sem="relaxed", scope="gpu")


@triton.jit
def erf(a, out, N: tl.constexpr):
    tl.store(out + tl.arange(0, N), tl.erf(tl.load(a + tl.arange(0, N))))


@triton.jit
def _larger_with_index(left, left_index, right, right_index):
    keep = left >= right
    return tl.where(keep, left, right), tl.where(keep, left_index, right_index)


@triton.jit
def combine(a, out, N: tl.constexpr):
    lane = tl.arange(0, N)
    values, index = tl.reduce((tl.load(a + lane), lane), 0, _larger_with_index)
    tl.store(out, values)
    tl.store(out + 1, index.to(tl.float32))
    tl.store(out + 2, tl.argmax(tl.load(a + lane), 0).to(tl.float32))
    running = tl.cumsum(tl.load(a + lane), 0)
    tl.store(out + 3 + lane, running)


@triton.jit
def sizes(out, extra, COUNT: tl.constexpr = SIZE):
    """Module constants and constexpr parameters used as integers in all ways."""
    quarter: tl.constexpr = SIZE // 4
    total = 0
    for start in range(0, SIZE, quarter):
        total += start
    for start in tl.range(0, SIZE, quarter, flatten=False):
        total += start
    for position in tl.static_range(4):
        total += extra[position]
    if SIZE > HALF and COUNT == SIZE:
        total += tl.cdiv(SIZE + 1, HALF)
    lane = tl.arange(0, SIZE)
    tl.store(out + lane, total + lane * (SIZE - HALF))


@triton.jit
def truncation(out, step):
    """Runtime integers divide towards zero, also when the divisor is a constant and the variable a loop's."""
    for index in range(2):
        tl.store(out + index, (index - step) % 4)
        tl.store(out + 2 + index, (index - step) // 4)
    tl.store(out + 4, -7 // 4)


@triton.jit
def descriptors(first, second, out, pick, SIDE: tl.constexpr):
    chosen = first
    if pick:
        chosen = second
    own = tl.make_tensor_descriptor(out, [SIDE, SIDE], [SIDE, 1], [SIDE, SIDE // 2])
    for column in range(0, SIDE, SIDE // 2):
        own.store([0, column], chosen.load([0, column]))


@triton.jit
def atomics(words, old):
    tl.store(old, tl.atomic_add(words, 5, sem="acq_rel", scope="sys"))
    tl.store(old + 1, tl.atomic_xchg(words + 1, 7, sem="release", scope="gpu"))
    tl.store(old + 2, tl.atomic_max(words + 2, 9, sem="relaxed", scope="cta"))
    tl.store(old + 3, tl.atomic_cas(words + 3, 4, 8, sem="acquire", scope="sys"))
    lane = tl.arange(0, 4)
    tl.atomic_add(words + lane, lane, mask=lane < 2, sem="relaxed", scope="gpu")


@triton.jit
def to_either(one, other, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    tl.store(tl.where(lane % 2 == 0, one + lane, other + lane), lane)


@triton.jit
def address_of_words(out, address):
    tl.store(out, address.to(tl.pointer_type(tl.int64)).to(tl.int64))
