"""Warp-specialised tiles in Gluon: a producer warpgroup loads, and two consumer warpgroups compute in ping-pong."""

# mypy: ignore-errors
from __future__ import annotations

import triton.experimental.gluon.language as gl
from triton.experimental import gluon
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)


@gluon.jit
def load_steps(
    left_desc, row, right_desc, col, left, right, loaded, used, number, STEPS: gl.constexpr, TRANSPOSED: gl.constexpr
):
    """Producer: load the operands of all STEPS steps along k of a tile, each into the next free stage of the ring buffer.

    The ring buffer is left [stages, rows, step] and right [stages, step, cols] ([stages, cols, step] if TRANSPOSED).
    `number` tiles of this program were loaded before.
    """
    PLACES: gl.constexpr = left.shape[0]
    STEP: gl.constexpr = left.shape[2]
    BYTES: gl.constexpr = (left.numel + right.numel) // PLACES * left.dtype.primitive_bitwidth // 8
    for k in range(STEPS):
        step = number * STEPS + k
        place = step % PLACES
        mbarrier.wait(used.index(place), (step // PLACES + 1) % 2)
        mbarrier.expect(loaded.index(place), BYTES)
        tma.async_copy_global_to_shared(left_desc, [row, k * STEP], loaded.index(place), left.index(place))
        if TRANSPOSED:
            tma.async_copy_global_to_shared(right_desc, [col, k * STEP], loaded.index(place), right.index(place))
        else:
            tma.async_copy_global_to_shared(right_desc, [k * STEP, col], loaded.index(place), right.index(place))


@gluon.jit
def cycles():
    """The clock counter of the SM, for differences."""
    return gl.inline_asm_elementwise("mov.u32 $0, %clock;", "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def multiply_in_turn(
    left, right, loaded, used, turns, number, GROUP: gl.constexpr, STEPS: gl.constexpr, TRANSPOSED: gl.constexpr
):
    """Consumer: the product of a tile, accumulated over STEPS stages of the ring buffer, once the other consumer has
    finished its product.

    Until then this warpgroup must not read the ring buffer: the phase of a barrier tells a round from the one before it,
    not from the one after the next. Returns sums [rows, cols] in fp32, and the clocks that they took.
    """
    PLACES: gl.constexpr = left.shape[0]
    ROWS: gl.constexpr = left.shape[1]
    COLS: gl.constexpr = right.shape[1] if TRANSPOSED else right.shape[2]
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLS, 16])
    sums = gl.zeros((ROWS, COLS), gl.float32, SUMS)
    mbarrier.wait(turns.index(GROUP), (number // 2 + 1 + GROUP) % 2)
    begun = cycles()
    for k in range(STEPS):
        step = number * STEPS + k
        place = step % PLACES
        mbarrier.wait(loaded.index(place), step // PLACES % 2)
        if TRANSPOSED:
            sums = warpgroup_mma(left.index(place), right.index(place).permute((1, 0)), sums, is_async=True)
        else:
            sums = warpgroup_mma(left.index(place), right.index(place), sums, is_async=True)
        sums = warpgroup_mma_wait(1, deps=[sums])  # the step before has read its operands
        mbarrier.arrive(used.index((step + PLACES - 1) % PLACES), pred=k > 0)
    mbarrier.arrive(turns.index(1 - GROUP))
    sums = warpgroup_mma_wait(0, deps=[sums])
    mbarrier.arrive(used.index((number * STEPS + STEPS - 1) % PLACES))
    return sums, cycles() - begun


@gluon.jit
def ring_barriers(PLACES: gl.constexpr, GROUPS: gl.constexpr):
    """Barriers of the ring buffer: `loaded` and `used` for each of PLACES stages, and `turns` for each of GROUPS consumers."""
    loaded = gl.allocate_shared_memory(gl.int64, [PLACES, 1], mbarrier.MBarrierLayout())
    used = gl.allocate_shared_memory(gl.int64, [PLACES, 1], mbarrier.MBarrierLayout())
    turns = gl.allocate_shared_memory(gl.int64, [GROUPS, 1], mbarrier.MBarrierLayout())
    for group in gl.static_range(GROUPS):
        mbarrier.init(turns.index(group), count=1)
    for place in gl.static_range(PLACES):
        mbarrier.init(loaded.index(place), count=1)
        mbarrier.init(used.index(place), count=1)
    fence_async_shared()  # asynchronous loads arrive at the barriers of stages
    return loaded, used, turns
