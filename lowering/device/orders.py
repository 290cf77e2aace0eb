"""Swizzles: from the position in launch order to a tile. Named as in tilelink.ir.order, which defines them."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def rank_major(position, TILES: tl.constexpr, MINOR: tl.constexpr, GROUP: tl.constexpr):
    """Segment by segment; inside, groups of GROUP major tiles walk through all MINOR tiles together (they share L2).

    Returns (place in the order of segments, major tile in the segment, minor tile).
    """
    segment = position // (TILES * MINOR)
    rest = position % (TILES * MINOR)
    stage = rest // (GROUP * MINOR)
    rest = rest % (GROUP * MINOR)
    rows = tl.minimum(GROUP, TILES - stage * GROUP)
    return segment, stage * GROUP + rest % rows, rest // rows


@triton.jit
def chunk_major(position, TILES: tl.constexpr, MINOR: tl.constexpr, GROUP: tl.constexpr, SEGMENTS: tl.constexpr):
    """A group of GROUP major tiles of every segment, then the next group: chunks that travel on links of their own.

    Returns (place in the order of segments, major tile in the segment, minor tile).
    """
    stage = position // (SEGMENTS * GROUP * MINOR)
    rest = position % (SEGMENTS * GROUP * MINOR)
    rows = tl.minimum(GROUP, TILES - stage * GROUP)
    segment = rest // (rows * MINOR)
    rest = rest % (rows * MINOR)
    return segment, stage * GROUP + rest % rows, rest // rows


@triton.jit
def last_late(position, TILES: tl.constexpr, MINOR: tl.constexpr, GROUP: tl.constexpr, SEGMENTS: tl.constexpr):
    """As `chunk_major`, but the last segment lags behind by one group: what it waits for has a round's time to arrive.

    TILES is a multiple of GROUP. Returns (place in the order of segments, major tile in the segment, minor tile).
    """
    visit = position // (GROUP * MINOR)
    rest = position % (GROUP * MINOR)
    # the first round has no visit of the last segment, and one of it is left over at the end
    stage = (visit + 1) // SEGMENTS
    segment = tl.where(stage == 0, visit, (visit + 1) % SEGMENTS)
    segment = tl.where(stage == TILES // GROUP, SEGMENTS - 1, segment)
    stage = tl.where(segment == SEGMENTS - 1, stage - 1, stage)
    return segment, stage * GROUP + rest % GROUP, rest // GROUP


@triton.jit
def use_of_slot(call, item, ITEMS: tl.constexpr, SLOTS: tl.constexpr):
    """Number of the use that item `item` makes of slot `item % SLOTS`: counted from 0 on, through all calls.

    `call` counts from 1. In each call of ITEMS items a slot is used as often as items fall to it.
    """
    uses = (ITEMS - item % SLOTS + SLOTS - 1) // SLOTS
    return (call - 1) * uses + item // SLOTS


@triton.jit
def node_major(rank, position, PER_NODE: tl.constexpr, NODES: tl.constexpr, FIRST: tl.constexpr, SIGN: tl.constexpr):
    """Rank at `position`: nodes outside, ranks of a node inside, both rotated by FIRST from the own one."""
    node = (rank // PER_NODE + SIGN * (FIRST + position // PER_NODE) + 2 * NODES) % NODES
    local = (rank % PER_NODE + SIGN * (FIRST + position % PER_NODE) + 2 * PER_NODE) % PER_NODE
    return node * PER_NODE + local


@triton.jit
def by_die(program, PROGRAMS: tl.constexpr, DIES: tl.constexpr):
    """Programs are handed to dies round robin; make those of one die neighbours, so that they share its L2."""
    even = PROGRAMS // DIES * DIES
    moved = program % DIES * (even // DIES) + program // DIES
    return tl.where(program < even, moved, program)


@triton.jit
def tiles_in_rows(first, end, EXTENT: tl.constexpr, TILES: tl.constexpr, TILE: tl.constexpr):
    """Number of row tiles that touch rows [first, end), where segments of EXTENT rows are cut in TILES tiles of TILE."""
    low = first // EXTENT * TILES + first % EXTENT // TILE
    high = (end - 1) // EXTENT * TILES + (end - 1) % EXTENT // TILE
    return high - low + 1
