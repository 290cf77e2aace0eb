"""Rows by experts, with those of own tokens first: the index program of loops whose own tiles do not wait for peers.

As in `routing.py`, but rows of an expert begin with those of own tokens, and tiles are numbered in two parts: first the tiles
that have rows of own tokens only, by experts, then all others, by experts. Both parts together are as many tiles as there are
without. Own tokens follow each other, so that their assignments do: OWN_ROWS from `first_own` on. Two launches:
`count_own_experts`, `place_own_rows`; the second one alone where one program sorts all ids.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from lowering.device.routing import count_wrong, counts_of, experts_of


@triton.jit
def own_of(first, first_own, BLOCK: tl.constexpr, OWN_ROWS: tl.constexpr):
    """Which of the assignments from `first` on are of own tokens."""
    places = first + tl.arange(0, BLOCK)
    return (places >= first_own) & (places < first_own + OWN_ROWS)


@triton.jit
def count_own_experts(
    ids,
    counts,
    wrong,
    first_expert,
    first_own,
    NUM_ROWS: tl.constexpr,
    NUM_EXPERTS: tl.constexpr,
    ALL_EXPERTS: tl.constexpr,
    OWN_ROWS: tl.constexpr,
    BINS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Program p counts assignments to each expert among CHUNK from p * CHUNK on: those of own tokens in row p of `counts`, all
    others in row p behind those of all programs. `wrong`: as in `count_experts`."""
    program = tl.program_id(0)
    found = experts_of(ids, program * CHUNK, first_expert, CHUNK, NUM_ROWS, NUM_EXPERTS)
    own = own_of(program * CHUNK, first_own, CHUNK, OWN_ROWS)
    bins = tl.arange(0, BINS)
    tl.store(counts + program * BINS + bins, tl.histogram(found, BINS, own & (found < NUM_EXPERTS)))
    others = counts + (tl.num_programs(0) + program) * BINS
    tl.store(others + bins, tl.histogram(found, BINS, (own == 0) & (found < NUM_EXPERTS)))
    count_wrong(ids, wrong, program * CHUNK, CHUNK, NUM_ROWS, ALL_EXPERTS)


@triton.jit
def totals_of(
    counts, program, BINS: tl.constexpr, NUM_EXPERTS: tl.constexpr, NUM_COUNTS: tl.constexpr, BLOCK: tl.constexpr
):
    """What all programs have counted of each expert, and what those before `program` have."""
    every = tl.zeros((BINS,), tl.int32)
    before = tl.zeros((BINS,), tl.int32)
    for start in range(0, NUM_COUNTS, BLOCK):
        counted = counts_of(counts, start, BINS, NUM_EXPERTS, NUM_COUNTS, BLOCK)
        who = start + tl.arange(0, BLOCK)[:, None]
        every += tl.sum(counted, 0)
        before += tl.sum(tl.where(who < program, counted, 0), 0)
    return every, before


@triton.jit
def two_parts(own, others, TILE: tl.constexpr):
    """Of each expert, tiles that have rows of own tokens only, and other ones: of `own` rows and `others` behind them."""
    tiles = tl.cdiv(own + others, TILE)
    alone = tl.where(others > 0, own // TILE, tiles)
    return alone, tiles - alone


@triton.jit
def make_two_parts(
    experts,
    here,
    num_tiles,
    num_own,
    own,
    others,
    none,
    worker,
    workers,
    NUM_EXPERTS: tl.constexpr,
    BINS: tl.constexpr,
    TILE: tl.constexpr,
    MOST_TILES: tl.constexpr,
    TILES_BLOCK: tl.constexpr,
):
    """As `make_tiles`, of `own` rows of each expert and `others`; `num_own` tiles have rows of own tokens only."""
    bins = tl.arange(0, BINS)
    alone, mixed = two_parts(own, others, TILE)
    first = tl.cumsum(alone, 0) - alone
    first_part = tl.sum(alone, 0)
    second = first_part + tl.cumsum(mixed, 0) - mixed
    used = first_part + tl.sum(mixed, 0)
    for start in range(worker * TILES_BLOCK, MOST_TILES, workers * TILES_BLOCK):
        tile = start + tl.arange(0, TILES_BLOCK)
        is_own = (tile < first_part)[:, None]
        ends = tl.where(is_own, (first + alone)[None, :], (second + mixed)[None, :])
        behind = (ends <= tile[:, None]) & (bins < NUM_EXPERTS)[None, :]
        expert = tl.sum(behind.to(tl.int32), 1)
        # where the first tile of an expert would be if all of its tiles were in this part
        begins = tl.where(is_own, first[None, :], (second - alone)[None, :])
        last = (own + others)[None, :] + begins * TILE
        last = tl.sum(tl.where(bins[None, :] == expert[:, None], last, 0), 1)
        left = tl.where(expert < NUM_EXPERTS, last, used * TILE + none) - tile * TILE
        tl.store(here + tile, tl.maximum(tl.minimum(left, TILE), 0), mask=tile < MOST_TILES)
        tl.store(experts + tile, expert, mask=tile < MOST_TILES)
    if worker == 0:
        tl.store(num_tiles, used + tl.cdiv(none, TILE))
        tl.store(num_own, first_part)


@triton.jit
def place_own_rows(
    ids,
    counts,
    wrong,
    rows,
    tokens,
    experts,
    here,
    num_tiles,
    num_own,
    first_expert,
    first_own,
    NUM_ROWS: tl.constexpr,
    NUM_EXPERTS: tl.constexpr,
    ALL_EXPERTS: tl.constexpr,
    OWN_ROWS: tl.constexpr,
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
    """As `place_rows`, with rows of own tokens first. `num_own` of `num_tiles` tiles have no other ones."""
    program = tl.program_id(0)
    first = tl.minimum(program, NUM_COUNTS - 1) * CHUNK
    found = experts_of(ids, first, first_expert, CHUNK, NUM_ROWS, NUM_EXPERTS)
    mine = own_of(first, first_own, CHUNK, OWN_ROWS)
    if NUM_COUNTS == 1:
        own_here = tl.histogram(found, BINS, mine & (found < NUM_EXPERTS))
        others_here = tl.histogram(found, BINS, (mine == 0) & (found < NUM_EXPERTS))
        own, own_before = own_here, tl.zeros((BINS,), tl.int32)
        others, others_before = others_here, own_before
    else:
        bins, behind = tl.arange(0, BINS), counts + NUM_COUNTS * BINS
        counted = (bins < NUM_EXPERTS) & (program < NUM_COUNTS)
        own_here = tl.load(counts + program * BINS + bins, mask=counted, other=0)
        others_here = tl.load(behind + program * BINS + bins, mask=counted, other=0)
        own, own_before = totals_of(counts, program, BINS, NUM_EXPERTS, NUM_COUNTS, COUNTS_BLOCK)
        others, others_before = totals_of(behind, program, BINS, NUM_EXPERTS, NUM_COUNTS, COUNTS_BLOCK)
    if program < NUM_COUNTS:
        if NUM_COUNTS == 1:
            count_wrong(ids, wrong, 0, CHUNK, NUM_ROWS, ALL_EXPERTS)
        lanes = tl.arange(0, CHUNK)
        keys = tl.sort((found * 2 + ((mine == 0) & (found < NUM_EXPERTS)).to(tl.int32)) * CHUNK + lanes)
        alone, mixed = two_parts(own, others, TILE)
        first_part = tl.sum(alone, 0)
        # what comes to the number of a tile among those of its expert, in each part
        to_first = tl.cumsum(alone, 0) - alone
        to_second = first_part + tl.cumsum(mixed, 0) - mixed - alone
        # what comes to the place of a row in `keys`, to be its number among those of its expert
        begins = tl.cumsum(own_here + others_here, 0) - own_here - others_here
        to_own, to_others = own_before - begins, own + others_before - begins - own_here
        found = keys // CHUNK // 2
        expert = tl.minimum(found, BINS - 1)
        is_own = keys // CHUNK % 2 == 0
        row = lanes + tl.where(is_own, tl.gather(to_own, expert, 0), tl.gather(to_others, expert, 0))
        tile = row // TILE
        in_first = tile < tl.gather(alone, expert, 0)
        tile += tl.where(in_first, tl.gather(to_first, expert, 0), tl.gather(to_second, expert, 0))
        before = tl.sum(own_before + others_before + own_here + others_here, 0)
        of_none = first - before + (first_part + tl.sum(mixed, 0)) * TILE + lanes
        there = tl.where(found < NUM_EXPERTS, tile * TILE + row % TILE, of_none)
        assignment = first + keys % CHUNK
        tl.store(rows + there, assignment, mask=found <= NUM_EXPERTS)
        tl.store(tokens + there, assignment // CHOICES, mask=found <= NUM_EXPERTS)
    else:
        worker, workers = program - NUM_COUNTS, tl.num_programs(0) - NUM_COUNTS
        none = NONE * (NUM_ROWS - tl.sum(own + others, 0))
        make_two_parts(
            experts,
            here,
            num_tiles,
            num_own,
            own,
            others,
            none,
            worker,
            workers,
            NUM_EXPERTS,
            BINS,
            TILE,
            MOST_TILES,
            TILES_BLOCK,
        )
