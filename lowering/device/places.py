"""Rows of own assignments by the ranks of their experts, with the places that these ranks give them: as in `routing.py`, tiles of
an expert begin behind those of the experts before it on its rank, and its rows come in the order of the assignments of all ranks.

Assignments are counted in chunks of each rank's, so that chunks of own ones are among them. Two launches: `count_choices`,
`list_places`.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from lowering.device.routing import counts_of


@triton.jit
def choices_of(ids, first, many, CHUNK: tl.constexpr, NUM_EXPERTS: tl.constexpr):
    """Experts of `many` assignments from `first` on: NUM_EXPERTS where there is none, and NUM_EXPERTS + 1 behind the last one."""
    lanes = tl.arange(0, CHUNK)
    found = tl.load(ids + first + lanes, mask=lanes < many, other=-1)
    legal = (found >= 0) & (found < NUM_EXPERTS)
    return tl.where(lanes < many, tl.where(legal, found, NUM_EXPERTS), NUM_EXPERTS + 1)


@triton.jit
def count_choices(
    ids, counts, OWN_ROWS: tl.constexpr, NUM_EXPERTS: tl.constexpr, BINS: tl.constexpr, CHUNK: tl.constexpr
):
    """Program (c, p) counts assignments to each expert in chunk c of the OWN_ROWS of rank p, in a row of `counts`. Rows come rank
    by rank."""
    chunk, owner = tl.program_id(0), tl.program_id(1)
    first = chunk * CHUNK
    found = choices_of(ids, owner * OWN_ROWS + first, OWN_ROWS - first, CHUNK, NUM_EXPERTS)
    row = owner * tl.num_programs(0) + chunk
    tl.store(counts + row * BINS + tl.arange(0, BINS), tl.histogram(found, BINS, found < NUM_EXPERTS))


@triton.jit
def list_places(
    ids,
    counts,
    listed,
    placed,
    here,
    rank,
    OWN_ROWS: tl.constexpr,
    NUM_EXPERTS: tl.constexpr,
    BINS: tl.constexpr,
    CHUNK: tl.constexpr,
    CHOICES: tl.constexpr,
    SHARE: tl.constexpr,
    NUM_RANKS: tl.constexpr,
    TILE: tl.constexpr,
    PIECE: tl.constexpr,
    CHUNKS: tl.constexpr,
    COUNTS_BLOCK: tl.constexpr,
    RANKS_BLOCK: tl.constexpr,
    PIECES_BLOCK: tl.constexpr,
):
    """Of CHUNKS programs c lists chunk c of the OWN_ROWS assignments of rank `rank`. Those to the SHARE experts of rank p are in
    row p of `listed`, as own tokens, and their places there in row p of `placed`, by expert and number. Piece q of a row, PIECE
    columns, has here[p, q]."""
    chunk, lanes, bins = tl.program_id(0), tl.arange(0, CHUNK), tl.arange(0, BINS)
    first, mine = chunk * CHUNK, rank * CHUNKS + chunk
    found = choices_of(ids, rank * OWN_ROWS + first, OWN_ROWS - first, CHUNK, NUM_EXPERTS)
    own = tl.load(counts + mine * BINS + bins, mask=bins < NUM_EXPERTS, other=0)
    keys = tl.sort(found * CHUNK + lanes)
    # assignments to each expert: of all ranks and of this one, and how many of these come before the chunk
    every = tl.zeros((BINS,), tl.int32)
    before = tl.zeros((BINS,), tl.int32)
    own_every = tl.zeros((BINS,), tl.int32)
    own_before = tl.zeros((BINS,), tl.int32)
    for start in range(0, NUM_RANKS * CHUNKS, COUNTS_BLOCK):
        counted = counts_of(counts, start, BINS, NUM_EXPERTS, NUM_RANKS * CHUNKS, COUNTS_BLOCK)
        who = start + tl.arange(0, COUNTS_BLOCK)[:, None]
        is_own = who // CHUNKS == rank
        every += tl.sum(counted, 0)
        before += tl.sum(tl.where(who < mine, counted, 0), 0)
        own_every += tl.sum(tl.where(is_own, counted, 0), 0)
        own_before += tl.sum(tl.where(is_own & (who < mine), counted, 0), 0)
    # where places and entries of each expert would begin if all experts were those of one rank, less those of ranks before
    of_rank = bins // SHARE * SHARE
    taken = tl.cdiv(every, TILE) * TILE
    begin = tl.cumsum(taken, 0) - taken
    begin -= tl.gather(begin, of_rank, 0)
    entries = tl.cumsum(own_every, 0) - own_every
    entries -= tl.gather(entries, of_rank, 0)
    ahead = tl.cumsum(own, 0) - own  # where the first of an expert is in `keys`
    found = keys // CHUNK
    there, expert = found < NUM_EXPERTS, tl.minimum(found, BINS - 1)
    entry = found // SHARE * OWN_ROWS + tl.gather(entries + own_before - ahead, expert, 0) + lanes
    tl.store(listed + entry, (first + keys % CHUNK) // CHOICES, mask=there)
    tl.store(placed + entry, tl.gather(begin + before - ahead, expert, 0) + lanes, mask=there)
    ranks = tl.arange(0, RANKS_BLOCK)[:, None]
    many = tl.sum(tl.where((bins // SHARE)[None, :] == ranks, own_every[None, :], 0), 1)
    piece = chunk * PIECES_BLOCK + tl.arange(0, PIECES_BLOCK)[None, :]
    left = tl.maximum(tl.minimum(many[:, None] - piece * PIECE, PIECE), 0)
    inside = (ranks < NUM_RANKS) & (piece < OWN_ROWS // PIECE)
    tl.store(here + ranks * (OWN_ROWS // PIECE) + piece, left, mask=inside)
