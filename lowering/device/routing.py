"""Rows by experts: a stable counting sort of the assignments of tokens to experts, into tiles of rows of one expert.

Assignment a = t * K + j is token t at its j-th expert. Rows of an expert follow each other in the order of assignments, and
begin at a tile. Behind those of expert NUM_EXPERTS - 1 come assignments to no expert, as rows of one more expert. What a call
writes depends on the ids only, so that it is equal bit by bit from run to run. Two launches: `count_experts`, `place_rows`.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def experts_of(ids, first, first_expert, BLOCK: tl.constexpr, NUM_ROWS: tl.constexpr, NUM_EXPERTS: tl.constexpr):
    """Experts of the assignments from `first` on, counted from `first_expert`: NUM_EXPERTS where there is none of these, and
    NUM_EXPERTS + 1 behind the last one."""
    places = first + tl.arange(0, BLOCK)
    found = tl.load(ids + places, mask=places < NUM_ROWS, other=-1) - first_expert
    legal = (found >= 0) & (found < NUM_EXPERTS)
    return tl.where(places < NUM_ROWS, tl.where(legal, found, NUM_EXPERTS), NUM_EXPERTS + 1)


@triton.jit
def count_experts(
    ids,
    counts,
    wrong,
    first_expert,
    NUM_ROWS: tl.constexpr,
    NUM_EXPERTS: tl.constexpr,
    ALL_EXPERTS: tl.constexpr,
    BINS: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program p counts assignments to each expert among CHUNK from p * CHUNK on, in row p of `counts`. `wrong`: ids outside of
    -1 to ALL_EXPERTS - 1, of all calls so far."""
    program = tl.program_id(0)
    found = tl.zeros((BINS,), tl.int32)
    outside = 0
    for start in range(0, CHUNK, BLOCK):
        found += tl.histogram(
            experts_of(ids, program * CHUNK + start, first_expert, BLOCK, NUM_ROWS, NUM_EXPERTS), BINS
        )
        places = program * CHUNK + start + tl.arange(0, BLOCK)
        given = tl.load(ids + places, mask=places < NUM_ROWS, other=-1)
        outside += tl.sum(((given < -1) | (given >= ALL_EXPERTS)).to(tl.int32))
    tl.store(counts + program * BINS + tl.arange(0, BINS), found)
    if outside > 0:
        tl.atomic_add(wrong, outside, sem="relaxed", scope="gpu")


@triton.jit
def place_rows(
    ids,
    counts,
    rows,
    tokens,
    experts,
    here,
    num_tiles,
    first_expert,
    NUM_ROWS: tl.constexpr,
    CHOICES: tl.constexpr,
    NUM_EXPERTS: tl.constexpr,
    BINS: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
    NUM_COUNTS: tl.constexpr,
    COUNTS_BLOCK: tl.constexpr,
    TILE: tl.constexpr,
    MOST_TILES: tl.constexpr,
    TILES_BLOCK: tl.constexpr,
    NONE: tl.constexpr,
):
    """Program p puts its assignments at their places in `rows`, which has tiles of TILE, and their tokens in `tokens`. Tile i of
    `num_tiles` has here[i] rows of experts[i]; others up to MOST_TILES have 0. NONE: 1 where rows that none of these
    experts takes have tiles, too, 0 where not."""
    program = tl.program_id(0)
    bins = tl.arange(0, BINS)
    every = tl.zeros((BINS,), tl.int32)
    before = tl.zeros((BINS,), tl.int32)
    for start in range(0, NUM_COUNTS, COUNTS_BLOCK):
        who = start + tl.arange(0, COUNTS_BLOCK)
        found = tl.load(counts + who[:, None] * BINS + bins[None, :], mask=(who < NUM_COUNTS)[:, None], other=0)
        every += tl.sum(found, 0)
        before += tl.sum(tl.where((who < program)[:, None], found, 0), 0)
    every = tl.where(bins < NUM_EXPERTS + NONE, every, 0)
    tiles = (every + TILE - 1) // TILE
    ends = tl.cumsum(tiles, 0)
    place = (ends - tiles) * TILE + before  # the next one of each expert for this program
    for start in range(0, CHUNK, BLOCK):
        first = program * CHUNK + start
        found = experts_of(ids, first, first_expert, BLOCK, NUM_ROWS, NUM_EXPERTS)
        lanes = tl.arange(0, BLOCK)
        earlier = (found[:, None] == found[None, :]) & (lanes[None, :] < lanes[:, None])
        there = tl.gather(place, found, 0) + tl.sum(earlier.to(tl.int32), 1)
        tl.store(rows + there, first + lanes, mask=found <= NUM_EXPERTS)
        tl.store(tokens + there, (first + lanes) // CHOICES, mask=found <= NUM_EXPERTS)
        place += tl.histogram(found, BINS)
    for start in range(program * TILES_BLOCK, MOST_TILES, tl.num_programs(0) * TILES_BLOCK):
        tile = start + tl.arange(0, TILES_BLOCK)
        expert = tl.sum(((ends[None, :] <= tile[:, None]) & (bins <= NUM_EXPERTS)[None, :]).to(tl.int32), 1)
        left = every[None, :] - (tile[:, None] - (ends - tiles)[None, :]) * TILE
        left = tl.sum(tl.where(bins[None, :] == expert[:, None], left, 0), 1)
        tl.store(here + tile, tl.where(expert <= NUM_EXPERTS, tl.minimum(left, TILE), 0), mask=tile < MOST_TILES)
        tl.store(experts + tile, tl.minimum(expert, NUM_EXPERTS), mask=tile < MOST_TILES)
    if program == 0:
        tl.store(num_tiles, tl.sum(tiles))


@triton.jit
def is_one_of(expert, NUM_EXPERTS: tl.constexpr, first_expert):
    """Whether it is one of NUM_EXPERTS from `first_expert` on."""
    return (expert >= first_expert) & (expert < first_expert + NUM_EXPERTS)


@triton.jit
def add_weighted(total, part, weight, expert, NUM_EXPERTS: tl.constexpr, first_expert):
    """`total`, and rows in `part` times their `weight`, of tokens whose `expert` is one of NUM_EXPERTS from `first_expert` on."""
    there = is_one_of(expert, NUM_EXPERTS, first_expert)
    return total + tl.where(there, part.to(tl.float32), 0.0) * tl.where(there, weight.to(tl.float32), 0.0)
