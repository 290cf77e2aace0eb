"""Rows by experts: a stable counting sort of the assignments of tokens to experts, into tiles of rows of one expert.

Assignment a = t * K + j is token t at its j-th expert. Rows of an expert follow each other in the order of assignments, and
begin at a tile. Behind those of expert NUM_EXPERTS - 1 come assignments to no expert, as rows of one more expert. What a call
writes depends on the ids only, so that it is equal bit by bit from run to run. Two launches: `count_experts`, `place_rows`;
the second one alone where one program sorts all ids.
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
def count_wrong(ids, wrong, first, BLOCK: tl.constexpr, NUM_ROWS: tl.constexpr, ALL_EXPERTS: tl.constexpr):
    """Adds to `wrong` how many of BLOCK ids from `first` on are outside of -1 to ALL_EXPERTS - 1."""
    places = first + tl.arange(0, BLOCK)
    given = tl.load(ids + places, mask=places < NUM_ROWS, other=-1)
    outside = tl.sum(((given < -1) | (given >= ALL_EXPERTS)).to(tl.int32))
    if outside > 0:
        tl.atomic_add(wrong, outside, sem="relaxed", scope="gpu")


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
):
    """Program p counts assignments to each expert among CHUNK from p * CHUNK on, in row p of `counts`. `wrong`: ids outside of
    -1 to ALL_EXPERTS - 1, of all calls so far."""
    program = tl.program_id(0)
    found = experts_of(ids, program * CHUNK, first_expert, CHUNK, NUM_ROWS, NUM_EXPERTS)
    tl.store(counts + program * BINS + tl.arange(0, BINS), tl.histogram(found, BINS, found < NUM_EXPERTS))
    count_wrong(ids, wrong, program * CHUNK, CHUNK, NUM_ROWS, ALL_EXPERTS)


@triton.jit
def counts_of(
    counts, start, BINS: tl.constexpr, NUM_EXPERTS: tl.constexpr, NUM_COUNTS: tl.constexpr, BLOCK: tl.constexpr
):
    """Rows of `counts` from `start` on: zeros behind the last one."""
    who, bins = start + tl.arange(0, BLOCK)[:, None], tl.arange(0, BINS)[None, :]
    return tl.load(counts + who * BINS + bins, mask=(who < NUM_COUNTS) & (bins < NUM_EXPERTS), other=0)


@triton.jit
def make_tiles(
    experts,
    here,
    num_tiles,
    every,
    none,
    worker,
    workers,
    NUM_EXPERTS: tl.constexpr,
    BINS: tl.constexpr,
    TILE: tl.constexpr,
    MOST_TILES: tl.constexpr,
    TILES_BLOCK: tl.constexpr,
):
    """Program `worker` of `workers` writes its share of `experts` and `here`. `every`: rows of each expert, of BINS; `none`: rows
    of no expert that have tiles."""
    bins = tl.arange(0, BINS)
    tiles = tl.cdiv(every, TILE)
    ends = tl.cumsum(tiles, 0)
    used = tl.sum(tiles, 0)
    for start in range(worker * TILES_BLOCK, MOST_TILES, workers * TILES_BLOCK):
        tile = start + tl.arange(0, TILES_BLOCK)
        behind = (ends[None, :] <= tile[:, None]) & (bins < NUM_EXPERTS)[None, :]
        expert = tl.sum(behind.to(tl.int32), 1)
        last = tl.sum(tl.where(bins[None, :] == expert[:, None], every + (ends - tiles) * TILE, 0), 1)
        left = tl.where(expert < NUM_EXPERTS, last, used * TILE + none) - tile * TILE
        tl.store(here + tile, tl.maximum(tl.minimum(left, TILE), 0), mask=tile < MOST_TILES)
        tl.store(experts + tile, expert, mask=tile < MOST_TILES)
    if worker == 0:
        tl.store(num_tiles, used + tl.cdiv(none, TILE))


@triton.jit
def place_rows(
    ids,
    counts,
    wrong,
    rows,
    tokens,
    experts,
    here,
    num_tiles,
    first_expert,
    NUM_ROWS: tl.constexpr,
    NUM_EXPERTS: tl.constexpr,
    ALL_EXPERTS: tl.constexpr,
    BINS: tl.constexpr,
    CHUNK: tl.constexpr,
    CHOICES: tl.constexpr,
    NUM_COUNTS: tl.constexpr,
    COUNTS_BLOCK: tl.constexpr,
    TILE: tl.constexpr,
    MOST_TILES: tl.constexpr,
    TILES_BLOCK: tl.constexpr,
    NONE: tl.constexpr,
):
    """Of NUM_COUNTS programs p puts its assignments at their places in `rows`, which has tiles of TILE, and their tokens in
    `tokens`. Programs behind them make the tables of tiles: tile i of `num_tiles` has here[i] rows of experts[i]; others up to
    MOST_TILES have 0. NONE: 1 where rows that none of these experts takes have tiles, too, 0 where not.

    Where all ids are those of one program, each program counts them, and nobody reads `counts`."""
    program = tl.program_id(0)
    if program < NUM_COUNTS:
        first = program * CHUNK
        found = experts_of(ids, first, first_expert, CHUNK, NUM_ROWS, NUM_EXPERTS)
        lanes = tl.arange(0, CHUNK)
        if NUM_COUNTS == 1:
            own = tl.histogram(found, BINS, found < NUM_EXPERTS)
            every = own
            before = tl.zeros((BINS,), tl.int32)
            count_wrong(ids, wrong, 0, CHUNK, NUM_ROWS, ALL_EXPERTS)
            keys = tl.sort(found * CHUNK + lanes)
        else:
            bins = tl.arange(0, BINS)
            own = tl.load(counts + program * BINS + bins, mask=bins < NUM_EXPERTS, other=0)
            counted = counts_of(counts, 0, BINS, NUM_EXPERTS, NUM_COUNTS, COUNTS_BLOCK)
            keys = tl.sort(found * CHUNK + lanes)  # while counts arrive
            who = tl.arange(0, COUNTS_BLOCK)[:, None]
            every = tl.sum(counted, 0)
            before = tl.sum(tl.where(who < program, counted, 0), 0)
            for start in range(COUNTS_BLOCK, NUM_COUNTS, COUNTS_BLOCK):
                counted = counts_of(counts, start, BINS, NUM_EXPERTS, NUM_COUNTS, COUNTS_BLOCK)
                every += tl.sum(counted, 0)
                before += tl.sum(tl.where(start + who < program, counted, 0), 0)
        # where the first of an expert would be if it were the first one in `keys`
        taken = tl.cdiv(every, TILE) * TILE - own
        base = tl.cumsum(taken, 0) - taken + before
        base_of_none = first + tl.sum(taken - before, 0)
        found = keys // CHUNK
        there = tl.where(found < NUM_EXPERTS, tl.gather(base, tl.minimum(found, BINS - 1), 0), base_of_none) + lanes
        assignment = first + keys % CHUNK
        tl.store(rows + there, assignment, mask=found <= NUM_EXPERTS)
        tl.store(tokens + there, assignment // CHOICES, mask=found <= NUM_EXPERTS)
    else:
        if NUM_COUNTS == 1:
            found = experts_of(ids, 0, first_expert, CHUNK, NUM_ROWS, NUM_EXPERTS)
            every = tl.histogram(found, BINS, found < NUM_EXPERTS)
        else:
            every = tl.zeros((BINS,), tl.int32)
            for start in range(0, NUM_COUNTS, COUNTS_BLOCK):
                every += tl.sum(counts_of(counts, start, BINS, NUM_EXPERTS, NUM_COUNTS, COUNTS_BLOCK), 0)
        worker, workers = program - NUM_COUNTS, tl.num_programs(0) - NUM_COUNTS
        none = NONE * (NUM_ROWS - tl.sum(every, 0))
        make_tiles(
            experts, here, num_tiles, every, none, worker, workers, NUM_EXPERTS, BINS, TILE, MOST_TILES, TILES_BLOCK
        )


@triton.jit
def list_rows(
    ids,
    listed,
    here,
    first,
    NUM_TOKENS: tl.constexpr,
    CHOICES: tl.constexpr,
    NUM_EXPERTS: tl.constexpr,
    NUM_BLOCKS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """Program (i, p) lists which of NUM_TOKENS tokens reader first + p needs, which has NUM_EXPERTS experts: in BLOCKS blocks of
    ROWS tokens from block i * BLOCKS on. here[p, b] tokens of block b have one of these, and their places in the block are the
    first entries of listed[p, b], in order."""
    number = tl.program_id(1)
    first_expert = (first + number) * NUM_EXPERTS
    block = tl.program_id(0) * BLOCKS + tl.arange(0, BLOCKS)[:, None]
    row = tl.arange(0, ROWS)[None, :]
    token = block * ROWS + row
    found = tl.zeros((BLOCKS, ROWS), tl.int32)
    for choice in tl.static_range(CHOICES):
        expert = tl.load(ids + token * CHOICES + choice, mask=token < NUM_TOKENS, other=-1)
        found = found | is_one_of(expert, NUM_EXPERTS, first_expert).to(tl.int32)
    there = number * NUM_BLOCKS + block
    place = tl.cumsum(found, 1) - 1
    tl.store(listed + there * ROWS + place, row + tl.zeros_like(found), mask=found > 0)
    tl.store(here + there, tl.sum(found, 1)[:, None], mask=block < NUM_BLOCKS)


@triton.jit
def is_one_of(expert, num_experts, first_expert):
    """Whether it is one of `num_experts` from `first_expert` on."""
    return (expert >= first_expert) & (expert < first_expert + num_experts)


@triton.jit
def add_weighted(total, part, weight, expert, num_experts, first_expert):
    """`total`, and rows in `part` times their `weight`, where `expert` is one of `num_experts` from `first_expert` on."""
    there = is_one_of(expert, num_experts, first_expert)
    return total + tl.where(there, part.to(tl.float32), 0.0) * tl.where(there, weight.to(tl.float32), 0.0)
