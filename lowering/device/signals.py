"""Signals between programs, streams and ranks.

The chain from a tile of one rank to a load of another rank: stores of all threads -> CTA barrier -> release by one thread
-> acquire by one thread there -> CTA barrier -> loads by all threads. In Triton one thread executes a scalar atomic. A CTA
barrier follows an acquiring atomic; none precedes a releasing one.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from lowering.device.barrier import program_barrier


@triton.jit
def wait_until(word, value):
    """Block until `word` of this rank is at least `value`; acquires all that was published with it.

    The comparison uses the signed difference, so that words may wrap around. A barrier of all threads follows the acquire.
    """
    while tl.atomic_add(word, 0, sem="acquire", scope="sys") - value < 0:
        pass


@triton.jit
def wait_epochs(signals, call, rank, STRIDE: tl.constexpr, NUM_RANKS: tl.constexpr):
    """Block until every peer has raised its word to `call` or beyond; the word of rank r is `signals + r * STRIDE`.

    All data that the raising programs had stored or acquired may be loaded afterwards.
    """
    ranks = tl.arange(0, triton.next_power_of_2(NUM_RANKS))
    peers = (ranks < NUM_RANKS) & (ranks != rank)
    late = tl.full((), 1, tl.int32)
    while late > 0:
        raised = tl.atomic_add(signals + ranks * STRIDE, 0, mask=peers, sem="acquire", scope="sys")
        late = tl.max(tl.where(peers, call - raised, 0), axis=0).to(tl.int32)
    program_barrier()  # one thread has acquired each word; now all threads may load


@triton.jit
def wait_ranks(signals, value, STRIDE: tl.constexpr, NUM_RANKS: tl.constexpr):
    """Block until every rank, this one included, has raised its word to `value`; the word of rank r is `signals + r * STRIDE`.

    All data that the raising programs had stored or acquired may be loaded afterwards.
    """
    ranks = tl.arange(0, triton.next_power_of_2(NUM_RANKS))
    late = tl.full((), 1, tl.int32)
    while late > 0:
        raised = tl.atomic_add(signals + ranks * STRIDE, 0, mask=ranks < NUM_RANKS, sem="acquire", scope="sys")
        late = tl.max(tl.where(ranks < NUM_RANKS, value - raised, 0), axis=0).to(tl.int32)
    program_barrier()  # one thread has acquired each word; now all threads may load


@triton.jit
def notify(signal, call):
    """Raise `signal`, on this rank or a peer, to `call`: publishes all stores of this program and all data it has acquired.

    The signal of a slot rises to the number of its next use instead.
    """
    program_barrier()  # one thread releases, without waiting for the others
    tl.atomic_xchg(signal, call, sem="release", scope="sys")


@triton.jit
def notify_all(peer_words, word, call, NUM_RANKS: tl.constexpr):
    """Raise word `word` of every rank to `call`: publishes all stores of this program and all data it has acquired.

    One vector atomic serves all ranks; separate releases would wait for each other.
    """
    ranks = tl.arange(0, triton.next_power_of_2(NUM_RANKS))
    there = tl.load(peer_words + ranks, mask=ranks < NUM_RANKS, other=0).to(tl.pointer_type(tl.int32))
    program_barrier()
    tl.atomic_xchg(there + word, call, mask=ranks < NUM_RANKS, sem="release", scope="sys")


@triton.jit
def notify_peers(peer_words, word, value, rank, NUM_RANKS: tl.constexpr):
    """Raise word `word` of every peer to `value`: publishes all stores of this program and all data it has acquired."""
    ranks = tl.arange(0, triton.next_power_of_2(NUM_RANKS))
    peers = (ranks < NUM_RANKS) & (ranks != rank)
    there = tl.load(peer_words + ranks, mask=peers, other=0).to(tl.pointer_type(tl.int32))
    program_barrier()
    tl.atomic_xchg(there + word, value, mask=peers, sem="release", scope="sys")


@triton.jit
def count_at_peers(peer_words, count, rank, NUM_RANKS: tl.constexpr):
    """Add 1 to word `count` of every peer after this program's work so far, with one vector atomic."""
    ranks = tl.arange(0, triton.next_power_of_2(NUM_RANKS))
    peers = (ranks < NUM_RANKS) & (ranks != rank)
    there = tl.load(peer_words + ranks, mask=peers, other=0).to(tl.pointer_type(tl.int32))
    program_barrier()
    tl.atomic_add(there + count, 1, mask=peers, sem="release", scope="sys")


@triton.jit
def on_peer(pointers, peer, DTYPE: tl.constexpr):
    """First element of a symmetric buffer on `peer`; `pointers` is the table of its addresses on all ranks."""
    return tl.multiple_of(tl.load(pointers + peer).to(tl.pointer_type(DTYPE)), 16)


@triton.jit
def on_ranks(pointers, ranks, DTYPE: tl.constexpr):
    """First elements of a symmetric buffer on each of `ranks`, as a column; `pointers` is the table of its addresses."""
    there = tl.load(pointers + ranks).to(tl.pointer_type(DTYPE))
    return tl.multiple_of(there[:, None], [16, 16])


@triton.jit
def store_at_ranks(peer_numbers, place, value, NUM_RANKS: tl.constexpr):
    """Store a number of 64 bits at every rank, as element `place` of a buffer; `peer_numbers` is its table of addresses."""
    ranks = tl.arange(0, triton.next_power_of_2(NUM_RANKS))
    there = tl.load(peer_numbers + ranks, mask=ranks < NUM_RANKS, other=0).to(tl.pointer_type(tl.int64))
    tl.store(there + place, value, mask=ranks < NUM_RANKS)
