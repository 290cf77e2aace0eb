"""The end of a call, which is the beginning of the next one; what it calls is that of the target."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from lowering.device.counts import count_arrival
from lowering.device.signals import await_copies, await_peers, count_at_peer, count_at_peers


@triton.jit
def next_call(
    epoch,
    counts,
    done,
    NUM_COUNTS: tl.constexpr,
    BLOCK: tl.constexpr,
    NUM_RANKS: tl.constexpr,
    MEETS: tl.constexpr,
):
    """Take back what the peers told for the last call, set the counts of this rank to 0 and go to the next epoch.

    Where calls end together (`MEETS`) the peers tell it for this call, and it is waited for."""
    if MEETS:
        await_peers(done, NUM_RANKS - 1)
    offsets = tl.arange(0, BLOCK)
    tl.store(counts + offsets, 0, mask=offsets < NUM_COUNTS)
    tl.atomic_add(done, 1 - NUM_RANKS, sem="relaxed", scope="sys")
    tl.store(epoch, tl.load(epoch) + 1)


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
    program goes to the next call."""
    program = tl.program_id(0)
    if program < NUM_RANKS - 1:
        count_at_peer(peer_words, DONE, (rank + 1 + program) % NUM_RANKS)
    else:
        next_call(epoch, counts, done, NUM_COUNTS, BLOCK, NUM_RANKS, MEETS)


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
        count_at_peers(peer_words, DONE, rank, NUM_RANKS)
        next_call(epoch, counts, done, NUM_COUNTS, BLOCK, NUM_RANKS, MEETS)


@triton.jit
def close_call_after_copies(
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
    COPIED: tl.constexpr,
    STREAMS: tl.constexpr,
):
    """`close_call` where side streams copy: they still use the epoch and the counts until they have nothing left to copy."""
    if count_arrival(counts + ENDED) == PROGRAMS - 1:
        await_copies(counts + COPIED, STREAMS)
        count_at_peers(peer_words, DONE, rank, NUM_RANKS)
        next_call(epoch, counts, done, NUM_COUNTS, BLOCK, NUM_RANKS, MEETS)
