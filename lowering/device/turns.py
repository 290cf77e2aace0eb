"""Two warpgroups of a program that multiply in turns, and a third one that loads for them; and, in place of helpers of the same
names, those that also run where a program has warpgroups of its own: layouts are spelled out there, and a barrier is one of the
group that comes to it."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.experimental.gluon.language as gl
from triton.experimental import gluon
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from lowering.device.places import told
from lowering.device.signals import await_peers


@gluon.jit
def load_steps(
    left_desc, row, right_desc, col, left, right, loaded, used, number, STEPS: gl.constexpr, TRANSPOSED: gl.constexpr
):
    """Load the operands of all steps along k of a tile, each into the next place of the ring as soon as it has been used.

    left [places, rows, step] and right [places, step, cols] ([places, cols, step] if `TRANSPOSED`) are the ring; `number` is
    how many tiles the program has loaded before.
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
    """Clocks of the SM so far; what counts is a difference."""
    return gl.inline_asm_elementwise("mov.u32 $0, %clock;", "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def multiply_in_turn(
    left, right, loaded, used, turns, number, GROUP: gl.constexpr, STEPS: gl.constexpr, TRANSPOSED: gl.constexpr
):
    """The product of a tile whose operands `load_steps` brings: when the other group has done with its own, and until then
    that one is not to look at the ring, since barriers tell a round of it from the one before, but not from the next but one.

    Returns sums [rows, cols] fp32, and how many clocks they took.
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
        sums = warpgroup_mma_wait(1, deps=[sums])  # the product of the step before has read its operands
        mbarrier.arrive(used.index((step + PLACES - 1) % PLACES), pred=k > 0)
    mbarrier.arrive(turns.index(1 - GROUP))
    sums = warpgroup_mma_wait(0, deps=[sums])
    mbarrier.arrive(used.index((number * STEPS + STEPS - 1) % PLACES))
    return sums, cycles() - begun


@gluon.jit
def ring_barriers(PLACES: gl.constexpr, GROUPS: gl.constexpr):
    """Barriers of a ring: for each place that its operands have been loaded, and that they have been used; and for each group
    that its turn has come."""
    loaded = gl.allocate_shared_memory(gl.int64, [PLACES, 1], mbarrier.MBarrierLayout())
    used = gl.allocate_shared_memory(gl.int64, [PLACES, 1], mbarrier.MBarrierLayout())
    turns = gl.allocate_shared_memory(gl.int64, [GROUPS, 1], mbarrier.MBarrierLayout())
    for group in gl.static_range(GROUPS):
        mbarrier.init(turns.index(group), count=1)
    for place in gl.static_range(PLACES):
        mbarrier.init(loaded.index(place), count=1)
        mbarrier.init(used.index(place), count=1)
    fence_async_shared()  # loads raise the barriers of places
    return loaded, used, turns


@gluon.jit
def program_barrier():
    """All threads of the warpgroup meet, and their stores come before whatever one of them does next."""
    gl.thread_barrier()


@gluon.jit
def each_of(COUNT: gl.constexpr):
    """0 to `COUNT` - 1 and more, up to a power of two: one a lane."""
    LANES: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    return gl.arange(0, triton.next_power_of_2(COUNT), LANES)


@gluon.jit
def wait_epochs(signals, call, rank, STRIDE: gl.constexpr, NUM_RANKS: gl.constexpr):
    """`wait_epoch` for the words of all peers at once: that of rank r lies r * STRIDE behind `signals`."""
    ranks = each_of(NUM_RANKS)
    peers = (ranks < NUM_RANKS) & (ranks != rank)
    late = gl.to_tensor(1)
    while late > 0:
        raised = gl.atomic_add(signals + ranks * STRIDE, gl.zeros_like(ranks), mask=peers, sem="acquire", scope="sys")
        late = gl.max(gl.where(peers, call - raised, 0), axis=0)
    program_barrier()  # what one thread of each word has acquired, all threads may load


@gluon.jit
def wait_places(words, call, NUM_RANKS: gl.constexpr):
    """Block until every rank, this one too, has told for this call where its output lies; ordering as in `wait_epoch`."""
    ranks = each_of(NUM_RANKS)
    late = gl.to_tensor(1)
    while late > 0:
        found = gl.atomic_add(words + ranks, gl.zeros_like(ranks), mask=ranks < NUM_RANKS, sem="acquire", scope="sys")
        late = gl.max(gl.where(ranks < NUM_RANKS, told(0, call) - found, 0), axis=0)
    program_barrier()  # what one thread of each word has acquired, all threads may load


@gluon.jit
def notify_all(peer_words, word, call, NUM_RANKS: gl.constexpr):
    """`notify` at word `word` of every rank at once: one after the other, each release would wait for the one before."""
    ranks = each_of(NUM_RANKS)
    there = gl.load(peer_words + ranks, mask=ranks < NUM_RANKS).to(gl.pointer_type(gl.int32))
    program_barrier()
    gl.atomic_xchg(there + word, gl.full_like(ranks, call), mask=ranks < NUM_RANKS, sem="release", scope="sys")


@gluon.jit
def count_at_peers(peer_words, count, rank, NUM_RANKS: gl.constexpr):
    """`count_at_peer` at every peer at once, as `notify_all` does."""
    ranks = each_of(NUM_RANKS)
    peers = (ranks < NUM_RANKS) & (ranks != rank)
    there = gl.load(peer_words + ranks, mask=peers).to(gl.pointer_type(gl.int32))
    program_barrier()
    gl.atomic_add(there + count, gl.full_like(ranks, 1), mask=peers, sem="release", scope="sys")


@gluon.jit
def next_call(
    epoch,
    counts,
    done,
    NUM_COUNTS: gl.constexpr,
    BLOCK: gl.constexpr,
    NUM_RANKS: gl.constexpr,
    MEETS: gl.constexpr,
):
    """Take back what the peers told for the last call, set the counts of this rank to 0 and go to the next epoch.

    Where calls end together (`MEETS`) the peers tell it for this call, and it is waited for."""
    if MEETS:
        await_peers(done, NUM_RANKS - 1)
    offsets = each_of(BLOCK)
    gl.store(counts + offsets, gl.zeros_like(offsets), mask=offsets < NUM_COUNTS)
    gl.atomic_add(done, 1 - NUM_RANKS, sem="relaxed", scope="sys")
    gl.store(epoch, gl.load(epoch) + 1)
