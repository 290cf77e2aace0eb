"""Swizzles: the tile at a position of the launch order. `tilelink.ir.order` defines them under the same names."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def rank_major(position, TILES: tl.constexpr, MINOR: tl.constexpr, GROUP: tl.constexpr):
    """One segment after the other. Inside a segment, groups of GROUP major tiles walk through all MINOR tiles together,
    which keeps their operands in L2.

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
    """A group of GROUP major tiles of every segment, then the next group: chunks of all peers arrive at the same time, over
    separate links.

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
    """A group of GROUP major tiles of every segment, then the next group. The last segment lags by one group, which leaves
    its data one round to arrive.

    TILES is a multiple of GROUP. Returns (place in the order of segments, major tile in the segment, minor tile).
    """
    visit = position // (GROUP * MINOR)
    rest = position % (GROUP * MINOR)
    # the first round skips the last segment, and one group of it is left for the end
    stage = (visit + 1) // SEGMENTS
    segment = tl.where(stage == 0, visit, (visit + 1) % SEGMENTS)
    segment = tl.where(stage == TILES // GROUP, SEGMENTS - 1, segment)
    stage = tl.where(segment == SEGMENTS - 1, stage - 1, stage)
    return segment, stage * GROUP + rest % GROUP, rest // GROUP


@triton.jit
def use_of_slot(call, item, ITEMS: tl.constexpr, SLOTS: tl.constexpr):
    """Which use of slot `item % SLOTS` item `item` makes, counted from 0 over all calls.

    `call` counts from 1. A call of ITEMS items uses a slot once for each item that maps to it.
    """
    uses = (ITEMS - item % SLOTS + SLOTS - 1) // SLOTS
    return (call - 1) * uses + item // SLOTS


@triton.jit
def node_major(rank, position, PER_NODE: tl.constexpr, NODES: tl.constexpr, FIRST: tl.constexpr, SIGN: tl.constexpr):
    """The rank at `position`: node by node, then rank by rank, both rotated by FIRST from the own node and rank."""
    node = (rank // PER_NODE + SIGN * (FIRST + position // PER_NODE) + 2 * NODES) % NODES
    local = (rank % PER_NODE + SIGN * (FIRST + position % PER_NODE) + 2 * PER_NODE) % PER_NODE
    return node * PER_NODE + local


@triton.jit
def by_die(program, PROGRAMS: tl.constexpr, DIES: tl.constexpr):
    """Renumber programs, which the hardware deals to dies round robin: neighbours then share the L2 of one die."""
    even = PROGRAMS // DIES * DIES
    moved = program % DIES * (even // DIES) + program // DIES
    return tl.where(program < even, moved, program)


@triton.jit
def tiles_in_rows(first, end, EXTENT: tl.constexpr, TILES: tl.constexpr, TILE: tl.constexpr):
    """Number of row tiles that touch rows [first, end); each segment of EXTENT rows has TILES tiles of TILE rows."""
    low = first // EXTENT * TILES + first % EXTENT // TILE
    high = (end - 1) // EXTENT * TILES + (end - 1) % EXTENT // TILE
    return high - low + 1
