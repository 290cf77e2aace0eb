"""The end of a call, which is the beginning of the next one; what it calls is that of the target."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from lowering.device.counts import count_arrival
from lowering.device.signals import await_peers, count_at_peer


@triton.jit
def turn_call(
    epoch,
    counts,
    done,
    peer_words,
    rank,
    DONE: tl.constexpr,
    NUM_COUNTS: tl.constexpr,
    BLOCK: tl.constexpr,
    NUM_RANKS: tl.constexpr,
    MEETS: tl.constexpr,
):
    """Last in every call. One program a peer tells it that this rank reads and writes nothing of this call any more; one
    program takes back what the peers told, sets the counts of this rank to 0 and goes to the next epoch.

    The peers told it for the last call; where calls end together (`MEETS`) for this one, and that program waits for it."""
    program = tl.program_id(0)
    if program < NUM_RANKS - 1:
        count_at_peer(peer_words, DONE, (rank + 1 + program) % NUM_RANKS)
    else:
        if MEETS:
            await_peers(done, NUM_RANKS - 1)
        offsets = tl.arange(0, BLOCK)
        tl.store(counts + offsets, 0, mask=offsets < NUM_COUNTS)
        tl.atomic_add(done, 1 - NUM_RANKS, sem="relaxed", scope="sys")
        tl.store(epoch, tl.load(epoch) + 1)


@triton.jit
def close_call(
    epoch,
    counts,
    done,
    peer_words,
    rank,
    PROGRAMS: tl.constexpr,
    ENDED: tl.constexpr,
    DONE: tl.constexpr,
    NUM_COUNTS: tl.constexpr,
    BLOCK: tl.constexpr,
    NUM_RANKS: tl.constexpr,
    MEETS: tl.constexpr,
):
    """Last in each program of the last kernel of a call: the one that ends last does for all what `turn_call` does."""
    if count_arrival(counts + ENDED) == PROGRAMS - 1:
        for step in range(1, NUM_RANKS):
            count_at_peer(peer_words, DONE, (rank + step) % NUM_RANKS)
        if MEETS:
            await_peers(done, NUM_RANKS - 1)
        offsets = tl.arange(0, BLOCK)
        tl.store(counts + offsets, 0, mask=offsets < NUM_COUNTS)
        tl.atomic_add(done, 1 - NUM_RANKS, sem="relaxed", scope="sys")
        tl.store(epoch, tl.load(epoch) + 1)
