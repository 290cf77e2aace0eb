"""Rows by experts: a stable counting sort of the assignments of tokens to experts, into tiles of rows of one expert.

Assignment a = t * K + j is token t at its j-th expert. Rows of an expert follow each other in the order of assignments, and
begin at a tile; entries between the last one and the next tile are -1. Behind those of expert E - 1 come rows of assignments
that are dropped, as those of an expert E. What a call writes depends on the expert numbers only, so it is equal bit by bit
from run to run. Two launches: `count_experts`, then `place_rows`.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def experts_of(ids, first, BLOCK: tl.constexpr, NUM_ROWS: tl.constexpr, NUM_EXPERTS: tl.constexpr):
    """Experts of the assignments from `first` on: NUM_EXPERTS where one is dropped or there is no such expert, and
    NUM_EXPERTS + 1 behind the last assignment."""
    places = first + tl.arange(0, BLOCK)
    found = tl.load(ids + places, mask=places < NUM_ROWS, other=-1)
    legal = (found >= 0) & (found < NUM_EXPERTS)
    return tl.where(places < NUM_ROWS, tl.where(legal, found, NUM_EXPERTS), NUM_EXPERTS + 1)


@triton.jit
def count_experts(
    ids,
    rows,
    counts,
    wrong,
    NUM_ROWS: tl.constexpr,
    NUM_EXPERTS: tl.constexpr,
    BINS: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
    NUM_PLACES: tl.constexpr,
    FILL: tl.constexpr,
):
    """Program p counts the assignments of each expert among CHUNK from p * CHUNK on, into row p of `counts`; all programs set
    `rows` to -1. `wrong`, which others may read later: numbers outside of -1 to NUM_EXPERTS - 1, of all calls so far."""
    program = tl.program_id(0)
    first = program * CHUNK
    found = tl.zeros((BINS,), tl.int32)
    outside = 0
    for start in range(0, CHUNK, BLOCK):
        found += tl.histogram(experts_of(ids, first + start, BLOCK, NUM_ROWS, NUM_EXPERTS), BINS)
        places = first + start + tl.arange(0, BLOCK)
        given = tl.load(ids + places, mask=places < NUM_ROWS, other=-1)
        outside += tl.sum(((given < -1) | (given >= NUM_EXPERTS)).to(tl.int32))
    tl.store(counts + program * BINS + tl.arange(0, BINS), found)
    if outside > 0:
        tl.atomic_add(wrong, outside, sem="relaxed", scope="gpu")
    for start in range(program * FILL, NUM_PLACES, tl.num_programs(0) * FILL):
        places = start + tl.arange(0, FILL)
        tl.store(rows + places, tl.full((FILL,), -1, tl.int32), mask=places < NUM_PLACES)


@triton.jit
def place_rows(
    ids,
    rows,
    experts,
    counts,
    num_tiles,
    NUM_ROWS: tl.constexpr,
    NUM_EXPERTS: tl.constexpr,
    BINS: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
    TILE: tl.constexpr,
    MOST_TILES: tl.constexpr,
    TILES_BLOCK: tl.constexpr,
    NUM_COUNTS: tl.constexpr,
    COUNTS_BLOCK: tl.constexpr,
):
    """Program p puts its assignments at their places in `rows`, which has tiles of TILE. Of MOST_TILES tiles `experts` has the
    expert, -1 behind the last one of `num_tiles`."""
    program = tl.program_id(0)
    bins = tl.arange(0, BINS)
    every = tl.zeros((BINS,), tl.int32)
    before = tl.zeros((BINS,), tl.int32)
    for start in range(0, NUM_COUNTS, COUNTS_BLOCK):
        who = start + tl.arange(0, COUNTS_BLOCK)
        found = tl.load(counts + who[:, None] * BINS + bins[None, :], mask=(who < NUM_COUNTS)[:, None], other=0)
        every += tl.sum(found, 0)
        before += tl.sum(tl.where((who < program)[:, None], found, 0), 0)
    tiles = tl.where(bins <= NUM_EXPERTS, (every + TILE - 1) // TILE, 0)
    ends = tl.cumsum(tiles, 0)
    # the next place of each expert for this program
    place = (ends - tiles) * TILE + before
    for start in range(0, CHUNK, BLOCK):
        found = experts_of(ids, program * CHUNK + start, BLOCK, NUM_ROWS, NUM_EXPERTS)
        lanes = tl.arange(0, BLOCK)
        earlier = (found[:, None] == found[None, :]) & (lanes[None, :] < lanes[:, None])
        there = tl.gather(place, found, 0) + tl.sum(earlier.to(tl.int32), 1)
        tl.store(rows + there, program * CHUNK + start + lanes, mask=found <= NUM_EXPERTS)
        place += tl.histogram(found, BINS)
    for start in range(program * TILES_BLOCK, MOST_TILES, tl.num_programs(0) * TILES_BLOCK):
        tile = start + tl.arange(0, TILES_BLOCK)
        behind = (ends[None, :] <= tile[:, None]) & (bins <= NUM_EXPERTS)[None, :]
        expert = tl.sum(behind.to(tl.int32), 1)
        tl.store(experts + tile, tl.where(expert <= NUM_EXPERTS, expert, -1), mask=tile < MOST_TILES)
    if program == 0:
        tl.store(num_tiles, tl.sum(tiles))
