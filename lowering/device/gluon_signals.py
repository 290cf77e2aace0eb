"""What `signals` and `ends` have, in Gluon: with explicit layouts, and barriers that join one warpgroup only."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.experimental.gluon.language as gl
from triton.experimental import gluon


@gluon.jit
def program_barrier():
    """Barrier of one warpgroup: the stores of its threads come before what any of them does next."""
    gl.thread_barrier()


@gluon.jit
def each_of(COUNT: gl.constexpr):
    """0, 1, ... up to the next power of two from COUNT on, one for each lane."""
    LANES: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    return gl.arange(0, triton.next_power_of_2(COUNT), LANES)


@gluon.jit
def wait_epochs(signals, call, rank, STRIDE: gl.constexpr, NUM_RANKS: gl.constexpr):
    """Block until every peer has raised its word to `call` or beyond; the word of rank r is `signals + r * STRIDE`.

    All data that the raising programs had stored or acquired may be loaded afterwards.
    """
    ranks = each_of(NUM_RANKS)
    peers = (ranks < NUM_RANKS) & (ranks != rank)
    late = gl.to_tensor(1)
    while late > 0:
        raised = gl.atomic_add(signals + ranks * STRIDE, gl.zeros_like(ranks), mask=peers, sem="acquire", scope="sys")
        late = gl.max(gl.where(peers, call - raised, 0), axis=0)
    program_barrier()  # one thread has acquired each word; now all threads may load


@gluon.jit
def wait_ranks(signals, value, STRIDE: gl.constexpr, NUM_RANKS: gl.constexpr):
    """Block until every rank, this one included, has raised its word to `value`; the word of rank r is `signals + r * STRIDE`.

    All data that the raising programs had stored or acquired may be loaded afterwards.
    """
    ranks = each_of(NUM_RANKS)
    late = gl.to_tensor(1)
    while late > 0:
        raised = gl.atomic_add(
            signals + ranks * STRIDE, gl.zeros_like(ranks), mask=ranks < NUM_RANKS, sem="acquire", scope="sys"
        )
        late = gl.max(gl.where(ranks < NUM_RANKS, value - raised, 0), axis=0)
    program_barrier()  # one thread has acquired each word; now all threads may load


@gluon.jit
def notify_all(peer_words, word, call, NUM_RANKS: gl.constexpr):
    """Raise word `word` of every rank to `call`: publishes all stores of this warpgroup and all data it has acquired.

    One vector atomic serves all ranks; separate releases would wait for each other.
    """
    ranks = each_of(NUM_RANKS)
    there = gl.load(peer_words + ranks, mask=ranks < NUM_RANKS).to(gl.pointer_type(gl.int32))
    program_barrier()
    gl.atomic_xchg(there + word, gl.full_like(ranks, call), mask=ranks < NUM_RANKS, sem="release", scope="sys")


@gluon.jit
def notify_peers(peer_words, word, value, rank, NUM_RANKS: gl.constexpr):
    """Raise word `word` of every peer to `value`: publishes all stores of this warpgroup and all data it has acquired."""
    ranks = each_of(NUM_RANKS)
    peers = (ranks < NUM_RANKS) & (ranks != rank)
    there = gl.load(peer_words + ranks, mask=peers).to(gl.pointer_type(gl.int32))
    program_barrier()
    gl.atomic_xchg(there + word, gl.full_like(ranks, value), mask=peers, sem="release", scope="sys")


@gluon.jit
def count_at_peers(peer_words, count, rank, NUM_RANKS: gl.constexpr):
    """Add 1 to word `count` of every peer after this program's work so far, with one vector atomic."""
    ranks = each_of(NUM_RANKS)
    peers = (ranks < NUM_RANKS) & (ranks != rank)
    there = gl.load(peer_words + ranks, mask=peers).to(gl.pointer_type(gl.int32))
    program_barrier()
    gl.atomic_add(there + count, gl.full_like(ranks, 1), mask=peers, sem="release", scope="sys")


@gluon.jit
def store_at_ranks(peer_numbers, place, value, NUM_RANKS: gl.constexpr):
    """Store a number of 64 bits at every rank, as element `place` of a buffer; `peer_numbers` is its table of addresses."""
    ranks = each_of(NUM_RANKS)
    there = gl.load(peer_numbers + ranks, mask=ranks < NUM_RANKS).to(gl.pointer_type(gl.int64))
    gl.store(there + place, value, mask=ranks < NUM_RANKS)


@gluon.jit
def clear_counts(counts, NUM_COUNTS: gl.constexpr, BLOCK: gl.constexpr):
    """Set the counts of this rank to 0 for the next call; every other program of the call has ended."""
    offsets = each_of(BLOCK)
    gl.store(counts + offsets, gl.zeros_like(offsets), mask=offsets < NUM_COUNTS)


@gluon.jit
def take_off(words, each, WORDS: gl.constexpr, BLOCK: gl.constexpr):
    """Take off WORDS words what a call adds to each of them; nobody waits for them any more in this call."""
    offsets = each_of(BLOCK)
    gl.atomic_add(words + offsets, gl.zeros_like(offsets) - each, mask=offsets < WORDS, sem="relaxed", scope="sys")
