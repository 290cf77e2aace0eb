"""The end of a call, which prepares the next one; the target supplies the helpers that it calls."""

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
    """Prepare the next call: take the peers' arrivals off `done`, clear the counts of this rank, advance the epoch.

    The arrivals are those of the last call. If `MEETS`, they are those of this call, and are awaited first: all ranks
    leave the call together.
    """
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
    """The last launch of a call. One program for each peer signals there that this rank has finished the call; one more
    program prepares the next call."""
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
    """The end of each program of the last kernel of a call. The program that arrives last signals to every peer that this
    rank has finished the call, and prepares the next call."""
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
    """The end of each program of the last kernel of a call with copy streams. The program that arrives last waits until
    all STREAMS copy streams are done with the epoch and the counts. It then signals to every peer that this rank has
    finished the call, and prepares the next call."""
    if count_arrival(counts + ENDED) == PROGRAMS - 1:
        await_copies(counts + COPIED, STREAMS)
        count_at_peers(peer_words, DONE, rank, NUM_RANKS)
        next_call(epoch, counts, done, NUM_COUNTS, BLOCK, NUM_RANKS, MEETS)
