"""Warp-specialised attention in Gluon: a producer warp loads queries, keys and values, and two consumer warpgroups have half of
the rows of queries each. The scores of a tile of keys are computed beside the product of the tile before with its values (Shah
et al., FlashAttention-3, 2024)."""

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

from lowering.device.barrier import flush_stores


@gluon.jit
def barriers_of(PLACES: gl.constexpr, ARRIVALS: gl.constexpr):
    """Two barriers for each of PLACES tiles: it has been loaded, and it has been used, by ARRIVALS consumers."""
    loaded = gl.allocate_shared_memory(gl.int64, [PLACES, 1], mbarrier.MBarrierLayout())
    used = gl.allocate_shared_memory(gl.int64, [PLACES, 1], mbarrier.MBarrierLayout())
    for place in gl.static_range(PLACES):
        mbarrier.init(loaded.index(place), count=1)
        mbarrier.init(used.index(place), count=ARRIVALS)
    fence_async_shared()  # asynchronous loads arrive at the barriers
    return loaded, used


@gluon.jit
def load_queries(desc, row, col, queries, loaded, used, number):
    """Producer: load the queries of a tile, [groups, rows, columns], when those of the tile before are not read any more.

    `number` tiles of this program were loaded before.
    """
    GROUPS: gl.constexpr = queries.shape[0]
    ROWS: gl.constexpr = queries.shape[1]
    mbarrier.wait(used.index(0), (number + 1) % 2)
    mbarrier.expect(loaded.index(0), queries.numel * queries.dtype.primitive_bitwidth // 8)
    for group in gl.static_range(GROUPS):
        tma.async_copy_global_to_shared(desc, [row + group * ROWS, col], loaded.index(0), queries.index(group))


@gluon.jit
def load_tile(desc, row, col, ring, loaded, used, number):
    """Producer: load a tile into the next free place of a ring buffer; `number` tiles were loaded before."""
    PLACES: gl.constexpr = ring.shape[0]
    place = number % PLACES
    mbarrier.wait(used.index(place), (number // PLACES + 1) % 2)
    mbarrier.expect(loaded.index(place), ring.numel // PLACES * ring.dtype.primitive_bitwidth // 8)
    tma.async_copy_global_to_shared(desc, [row, col], loaded.index(place), ring.index(place))


@gluon.jit
def load_tile_of_part(desc, part, row, col, ring, loaded, used, number):
    """Producer: load a tile of one part of a buffer into the next free place of a ring buffer, with zeros behind the last row of
    the part; `number` tiles were loaded before."""
    PLACES: gl.constexpr = ring.shape[0]
    ROWS: gl.constexpr = ring.shape[1]
    COLS: gl.constexpr = ring.shape[2]
    place = number % PLACES
    mbarrier.wait(used.index(place), (number // PLACES + 1) % 2)
    mbarrier.expect(loaded.index(place), ring.numel // PLACES * ring.dtype.primitive_bitwidth // 8)
    tile = ring.index(place).reshape((1, ROWS, COLS))
    tma.async_copy_global_to_shared(desc, [part, row, col], loaded.index(place), tile)


@gluon.jit
def begin_scores(queries, keys, keys_loaded, number):
    """Consumer: issue the product of queries with a tile of keys."""
    PLACES: gl.constexpr = keys.shape[0]
    ROWS: gl.constexpr = queries.shape[0]
    KEYS: gl.constexpr = keys.shape[1]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    place = number % PLACES
    mbarrier.wait(keys_loaded.index(place), number // PLACES % 2)
    zeros = gl.zeros((ROWS, KEYS), gl.float32, SCORES)
    return warpgroup_mma(queries, keys.index(place).permute((1, 0)), zeros, use_acc=False, is_async=True)


@gluon.jit
def exponents(
    scores, ahead, SCALE: gl.constexpr, CAP: gl.constexpr, MASKED: gl.constexpr, WINDOW: gl.constexpr, many=None
):
    """Scores as exponents of 2. If they are MASKED, the first query stands `ahead` tokens behind the first key, and sees keys up
    to itself, of a WINDOW other than 0 at most, and of the first `many` if that is given."""
    if CAP > 0:
        bent = scores * (SCALE / CAP)
        scores = (CAP - 2 * CAP / (gl.exp(2 * bent) + 1)) * 1.4426950408889634
    else:
        scores = scores * (SCALE * 1.4426950408889634)
    if MASKED:
        ROWS: gl.constexpr = scores.shape[0]
        KEYS: gl.constexpr = scores.shape[1]
        SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
        row = gl.arange(0, ROWS, gl.SliceLayout(1, SCORES))[:, None]
        key = gl.arange(0, KEYS, gl.SliceLayout(0, SCORES))[None, :]
        behind = ahead + row - key
        seen = behind >= 0
        if WINDOW > 0:
            seen = seen & (behind < WINDOW)
        if many is not None:
            seen = seen & (key < many)
        scores = gl.where(seen, scores, float("-inf"))
    return scores


@gluon.jit
def as_operand(weights, VALUES_DTYPE: gl.constexpr, WIDTH: gl.constexpr):
    """Weights as the left operand of their product with values, in registers."""
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    return gl.convert_layout(weights.to(VALUES_DTYPE), gl.DotOperandLayout(0, SUMS, 2))


@gluon.jit
def first_keys(
    queries, queries_loaded, tile_number, keys, keys_loaded, keys_used, values, number, ahead,
    SCALE: gl.constexpr, CAP: gl.constexpr, MASKED: gl.constexpr, WINDOW: gl.constexpr, many=None,
):  # fmt: skip
    """Consumer: the state behind the first tile of keys: largest scores, sums of weights, sums of values, and the weights whose
    values come next."""
    PLACES: gl.constexpr = keys.shape[0]
    ROWS: gl.constexpr = queries.shape[0]
    WIDTH: gl.constexpr = values.shape[2]
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    mbarrier.wait(queries_loaded.index(0), tile_number % 2)
    scores = begin_scores(queries, keys, keys_loaded, number)
    scores = warpgroup_mma_wait(0, deps=[scores])
    mbarrier.arrive(keys_used.index(number % PLACES))
    scores = exponents(scores, ahead, SCALE, CAP, MASKED, WINDOW, many)
    top = gl.maximum(gl.max(scores, axis=1), -1e30)
    weights = gl.exp2(scores - top[:, None])
    weight = gl.sum(weights, axis=1)
    total = gl.zeros((ROWS, WIDTH), gl.float32, SUMS)
    return top, weight, total, as_operand(weights, values.dtype, WIDTH)


@gluon.jit
def next_keys(
    top, weight, total, weights, queries, keys, keys_loaded, keys_used, values, values_loaded, values_used, number, ahead,
    SCALE: gl.constexpr, CAP: gl.constexpr, MASKED: gl.constexpr, WINDOW: gl.constexpr, many=None,
):  # fmt: skip
    """Consumer: the state behind one more tile of keys, and the values of the tile before."""
    PLACES: gl.constexpr = keys.shape[0]
    WIDTH: gl.constexpr = values.shape[2]
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    before = number - 1
    scores = begin_scores(queries, keys, keys_loaded, number)
    mbarrier.wait(values_loaded.index(before % PLACES), before // PLACES % 2)
    total = warpgroup_mma(weights, values.index(before % PLACES), total, is_async=True)
    scores = warpgroup_mma_wait(1, deps=[scores])
    mbarrier.arrive(keys_used.index(number % PLACES))
    scores = exponents(scores, ahead, SCALE, CAP, MASKED, WINDOW, many)
    higher = gl.maximum(top, gl.max(scores, axis=1))
    fade = gl.exp2(top - higher)
    new = gl.exp2(scores - higher[:, None])
    weight = weight * fade + gl.sum(new, axis=1)
    total, weights = warpgroup_mma_wait(0, deps=[total, weights])
    mbarrier.arrive(values_used.index(before % PLACES))
    total = total * gl.convert_layout(fade, gl.SliceLayout(1, SUMS))[:, None]
    return higher, weight, total, as_operand(new, values.dtype, WIDTH)


@gluon.jit
def last_values(total, weights, queries_used, values, values_loaded, values_used, number):
    """Consumer: the sums of values, with those of the last tile; `number` tiles have been loaded. The queries are free."""
    PLACES: gl.constexpr = values.shape[0]
    mbarrier.arrive(queries_used.index(0))
    before = number - 1
    mbarrier.wait(values_loaded.index(before % PLACES), before // PLACES % 2)
    total = warpgroup_mma(weights, values.index(before % PLACES), total, is_async=True)
    total, weights = warpgroup_mma_wait(0, deps=[total, weights])
    mbarrier.arrive(values_used.index(before % PLACES))
    return total


@gluon.jit
def store_logs(top, weight, keys, logs, row, stride, NATURAL: gl.constexpr, many=None):
    """Consumer: store the logarithms of the sums of weights of its rows, which begin `row` rows behind `logs`; if
    `many` is given, of so many rows of the tile."""
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, keys.shape[1], 16])
    log = top + gl.log2(weight)
    if NATURAL:
        log = log * 0.6931471805599453
    rows = row + gl.arange(0, top.shape[0], gl.SliceLayout(1, SCORES))
    gl.store(logs + rows * stride, log, mask=None if many is None else rows < many)


@gluon.jit
def store_means(total, weight, desc, row, col, leaving):
    """Consumer: store the means of the values of its rows."""
    WIDTH: gl.constexpr = total.shape[1]
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    weight = gl.convert_layout(gl.where(weight > 0, weight, 1.0), gl.SliceLayout(1, SUMS))
    leaving.store((total / weight[:, None]).to(leaving.dtype))
    fence_async_shared()
    gl.thread_barrier()  # all warps have stored
    tma.async_copy_shared_to_global(desc, [row, col], leaving)
    flush_stores()
    gl.thread_barrier()  # nobody writes the next tile there before this one has left
