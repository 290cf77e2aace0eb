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
from lowering.device.counts import count_up
from lowering.device.places import told


@triton.jit
def wait_epoch(signal, call):
    """Block until another rank has raised `signal` to `call` or beyond.

    All data that the raising program had stored or acquired may be loaded afterwards. The comparison uses the signed
    difference, so that epochs may wrap around.
    """
    while tl.atomic_add(signal, 0, sem="acquire", scope="sys") - call < 0:
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
        late = tl.max(tl.where(peers, call - raised, 0), axis=0)
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
        late = tl.max(tl.where(ranks < NUM_RANKS, value - raised, 0), axis=0)
    program_barrier()  # one thread has acquired each word; now all threads may load


@triton.jit
def wait_places(words, call, NUM_RANKS: tl.constexpr):
    """Block until every rank, this one included, has published the place of its output for this call."""
    ranks = tl.arange(0, triton.next_power_of_2(NUM_RANKS))
    late = tl.full((), 1, tl.int32)
    while late > 0:
        found = tl.atomic_add(words + ranks, 0, mask=ranks < NUM_RANKS, sem="acquire", scope="sys")
        late = tl.max(tl.where(ranks < NUM_RANKS, told(0, call) - found, 0), axis=0)
    program_barrier()  # one thread has acquired each word; now all threads may load


@triton.jit
def wait_use(signal, use):
    """Block until `signal`, the number of uses of a slot, has reached `use`; acquires the data published with it."""
    while tl.atomic_add(signal, 0, sem="acquire", scope="sys") - use < 0:
        pass


@triton.jit
def wait_count(count, target):
    """Block until `count` has reached `target` arrivals in this call; acquires the stores of the arrived programs."""
    while tl.atomic_add(count, 0, sem="acquire", scope="sys") < target:
        pass


@triton.jit
def await_peers(done, peers):
    """Block until `peers` peers have finished their call."""
    wait_count(done, peers)


@triton.jit
def await_copies(copied, STREAMS: tl.constexpr):
    """Block until each of STREAMS copy streams has written 1 into its word: its copies are done."""
    for stream in tl.static_range(STREAMS):
        wait_count(copied + stream, 1)


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
def on_peer(pointers, peer, DTYPE: tl.constexpr):
    """First element of a symmetric buffer on `peer`; `pointers` is the table of its addresses on all ranks."""
    return tl.multiple_of(tl.load(pointers + peer).to(tl.pointer_type(DTYPE)), 16)


@triton.jit
def words_of(words, peer_words, peer):
    """The 64-bit words of `peer`; `words` are those of this rank, `peer_words` is their table of addresses."""
    return on_peer(peer_words, peer, tl.int64)


@triton.jit
def count_at_peer(peer_words, count, peer):
    """Add 1 to word `count` of `peer` after this program's work so far; `peer_words` is a table of addresses."""
    count_up(on_peer(peer_words, peer, tl.int32) + count)


@triton.jit
def count_at_peers(peer_words, count, rank, NUM_RANKS: tl.constexpr):
    """Add 1 to word `count` of every peer after this program's work so far, with one vector atomic."""
    ranks = tl.arange(0, triton.next_power_of_2(NUM_RANKS))
    peers = (ranks < NUM_RANKS) & (ranks != rank)
    there = tl.load(peer_words + ranks, mask=peers, other=0).to(tl.pointer_type(tl.int32))
    program_barrier()
    tl.atomic_add(there + count, 1, mask=peers, sem="release", scope="sys")


@triton.jit
def begin_call(epoch, counts, done, rank, NUM_COUNTS: tl.constexpr, BLOCK: tl.constexpr, NUM_RANKS: tl.constexpr):
    """The first launch of a call, of one program. Wait until every peer has finished the last call, so that its buffers may
    be overwritten. Then clear the counts of this rank and advance the epoch."""
    call = tl.load(epoch) + 1
    for step in range(1, NUM_RANKS):
        wait_epoch(done + (rank + step) % NUM_RANKS, call - 1)
    offsets = tl.arange(0, BLOCK)
    tl.store(counts + offsets, tl.zeros((BLOCK,), tl.int32), mask=offsets < NUM_COUNTS)
    tl.store(epoch, call)


@triton.jit
def finish_call(epoch, signal_peers, rank, DONE: tl.constexpr, NUM_RANKS: tl.constexpr):
    """The last launch of a call, of one program for each peer: signal there that this rank has finished the call."""
    peer = (rank + 1 + tl.program_id(0)) % NUM_RANKS
    notify(on_peer(signal_peers, peer, tl.int32) + DONE + rank, tl.load(epoch))


@triton.jit
def wait_on_stream(signal, epoch):
    """Hold the stream, with one program, until `signal` is raised for this call."""
    wait_epoch(signal, tl.load(epoch))


@triton.jit
def wait_count_on_stream(count, TARGET: tl.constexpr):
    """Hold the stream, with one program, until `count` has reached TARGET arrivals."""
    wait_count(count, TARGET)
