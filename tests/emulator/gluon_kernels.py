"""Small kernels in Gluon, each for one property of its emulation."""

# mypy: ignore-errors

from __future__ import annotations

import triton.experimental.gluon.language as gl
from triton.experimental import gluon
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma


@gluon.jit
def writer(memory, barrier, ORDERED: gl.constexpr):
    gl.store(memory, 1)
    if ORDERED:
        mbarrier.arrive(barrier)


@gluon.jit
def reader(memory, barrier, out, ORDERED: gl.constexpr):
    if ORDERED:
        mbarrier.wait(barrier, 0)
    gl.store(out, gl.load(memory))


@gluon.jit
def two_groups(memory, out, ORDERED: gl.constexpr):
    """One group stores, the other one loads, behind a barrier if `ORDERED`."""
    barrier = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(barrier, count=1)
    gl.warp_specialize([(writer, (memory, barrier, ORDERED)), (reader, (memory, barrier, out, ORDERED))], [4], [24])


@gluon.jit
def behind_groups(memory, out):
    """What groups have stored is there when all of them have ended."""
    barrier = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(barrier, count=1)
    gl.warp_specialize([(writer, (memory, barrier, False)), (writer, (memory + 1, barrier, False))], [4], [24])
    gl.store(out, gl.load(memory) + gl.load(memory + 1))


@gluon.jit
def raise_relaxed(signal):
    gl.atomic_xchg(signal, 1, sem="relaxed", scope="sys")


@gluon.jit
def await_relaxed(signal):
    while gl.atomic_add(signal, 0, sem="relaxed", scope="sys") == 0:
        pass


@gluon.jit
def relaxed_in_groups(theirs, ours):
    """One group raises a signal, the other one waits for another."""
    gl.warp_specialize([(raise_relaxed, (theirs,)), (await_relaxed, (ours,))], [4], [24])


@gluon.jit
def phases(out, ARRIVALS: gl.constexpr, PARITY: gl.constexpr):
    """Wait for `PARITY` behind so many phases of a barrier."""
    barrier = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(barrier, count=1)
    for _ in range(ARRIVALS):
        mbarrier.arrive(barrier)
    mbarrier.wait(barrier, PARITY)
    gl.store(out, 1)


@gluon.jit
def load_tile(desc, out, WAITS: gl.constexpr, FENCED: gl.constexpr = True):
    """Copy a tile through shared memory; without the wait it may not be there yet."""
    barrier = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    tile = gl.allocate_shared_memory(gl.float32, [16, 16], desc.layout)
    mbarrier.init(barrier, count=1)
    if FENCED:
        fence_async_shared()
    mbarrier.expect(barrier, 16 * 16 * 4)
    tma.async_copy_global_to_shared(desc, [0, 0], barrier, tile)
    if WAITS:
        mbarrier.wait(barrier, 0)
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 1], [2, 16], [4, 1], [1, 0])
    rows = gl.arange(0, 16, gl.SliceLayout(1, LAYOUT))
    cols = gl.arange(0, 16, gl.SliceLayout(0, LAYOUT))
    gl.store(out + rows[:, None] * 16 + cols[None, :], tile.load(LAYOUT))


@gluon.jit
def not_initialised(out):
    barrier = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.wait(barrier, 1)
    gl.store(out, 1)


@gluon.jit
def invalidates(out):
    barrier = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(barrier, count=1)
    mbarrier.invalidate(barrier)
    gl.store(out, 1)


@gluon.jit
def store_tiles(
    desc,
    READ: gl.constexpr,
    FREED: gl.constexpr,
    FENCED: gl.constexpr,
    MET: gl.constexpr,
    PERFORMED: gl.constexpr,
    told,
):
    """Store two tiles from the same place of shared memory, and tell of it: without waiting for what was asked to be left out."""
    tile = gl.allocate_shared_memory(gl.float32, [16, 16], desc.layout)
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [8, 4], [4, 1], [1, 0])
    for number in gl.static_range(2):
        if READ:
            tma.store_wait(0)
        if FREED:
            gl.thread_barrier()
        tile.store(gl.full([16, 16], number + 1, gl.float32, layout))
        if FENCED:
            fence_async_shared()
        if MET:
            gl.thread_barrier()
        tma.async_copy_shared_to_global(desc, [16 * number, 0], tile)
    if PERFORMED:
        gl.inline_asm_elementwise("cp.async.bulk.wait_group 0; mov.u32 $0, 0;", "=r", [], gl.int32, False, 1)
    gl.thread_barrier()
    gl.atomic_xchg(told, 1, sem="release", scope="sys")


@gluon.jit
def read_told(memory, told, out):
    while gl.atomic_add(told, 0, sem="acquire", scope="sys") == 0:
        pass
    gl.store(out, gl.load(memory + 16 * 16))


@gluon.jit
def passes(out, CLOCKS: gl.constexpr):
    """Let time go by."""
    begun = gl.inline_asm_elementwise("mov.u32 $0, %clock;", "=r", [], gl.int32, False, 1)
    while gl.inline_asm_elementwise("mov.u32 $0, %clock;", "=r", [], gl.int32, False, 1) - begun < CLOCKS:
        pass
    gl.store(out, 1)
