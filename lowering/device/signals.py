"""Signals between programs, streams and ranks.

The chain that makes a tile of one rank readable by a program of another: stores of all threads -> CTA barrier -> release
by one thread -> acquire by one thread there -> CTA barrier -> loads by all threads. A scalar atomic in Triton is executed
by one thread; an acquiring one is followed by a CTA barrier of its own, a releasing one is not preceded by one.
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
    """Block until another rank has raised `signal` for call `call` or a later one.

    After it, everything that the raising program could see when it raised the signal may be loaded. Compares the signed
    difference, so that the epoch may wrap around.
    """
    while tl.atomic_add(signal, 0, sem="acquire", scope="sys") - call < 0:
        pass


@triton.jit
def wait_epochs(signals, call, rank, STRIDE: tl.constexpr, NUM_RANKS: tl.constexpr):
    """`wait_epoch` for the words of all peers at once: that of rank r lies r * STRIDE behind `signals`."""
    ranks = tl.arange(0, triton.next_power_of_2(NUM_RANKS))
    peers = (ranks < NUM_RANKS) & (ranks != rank)
    late = tl.full((), 1, tl.int32)
    while late > 0:
        raised = tl.atomic_add(signals + ranks * STRIDE, 0, mask=peers, sem="acquire", scope="sys")
        late = tl.max(tl.where(peers, call - raised, 0), axis=0)
    program_barrier()  # what one thread of each word has acquired, all threads may load


@triton.jit
def wait_places(words, call, NUM_RANKS: tl.constexpr):
    """Block until every rank, this one too, has told for this call where its output lies; ordering as in `wait_epoch`."""
    ranks = tl.arange(0, triton.next_power_of_2(NUM_RANKS))
    late = tl.full((), 1, tl.int32)
    while late > 0:
        found = tl.atomic_add(words + ranks, 0, mask=ranks < NUM_RANKS, sem="acquire", scope="sys")
        late = tl.max(tl.where(ranks < NUM_RANKS, told(0, call) - found, 0), axis=0)
    program_barrier()  # what one thread of each word has acquired, all threads may load


@triton.jit
def wait_use(signal, use):
    """Block until `signal`, which counts the uses of a slot, has come to `use`; ordering as in `wait_epoch`."""
    while tl.atomic_add(signal, 0, sem="acquire", scope="sys") - use < 0:
        pass


@triton.jit
def wait_count(count, target):
    """Block until `target` arrivals have been counted at `count` in this call; ordering as in `wait_epoch`."""
    while tl.atomic_add(count, 0, sem="acquire", scope="sys") < target:
        pass


@triton.jit
def await_peers(done, peers):
    """Block until so many peers have finished their call; ordering as in `wait_epoch`."""
    wait_count(done, peers)


@triton.jit
def await_copies(copied, STREAMS: tl.constexpr):
    """Block until each of so many side streams has written 1 into its word: it has nothing left to copy."""
    for stream in tl.static_range(STREAMS):
        wait_count(copied + stream, 1)


@triton.jit
def notify(signal, call):
    """Raise `signal`, here or on a peer, for call `call`: publishes all stores of this program and what it has acquired.

    Signals of a slot are raised to the number of its next use instead of that of the call.
    """
    program_barrier()  # a release does not wait for the other threads of the program
    tl.atomic_xchg(signal, call, sem="release", scope="sys")


@triton.jit
def notify_all(peer_words, word, call, NUM_RANKS: tl.constexpr):
    """`notify` at word `word` of every rank at once: one after the other, each release would wait for the one before."""
    ranks = tl.arange(0, triton.next_power_of_2(NUM_RANKS))
    there = tl.load(peer_words + ranks, mask=ranks < NUM_RANKS, other=0).to(tl.pointer_type(tl.int32))
    program_barrier()
    tl.atomic_xchg(there + word, call, mask=ranks < NUM_RANKS, sem="release", scope="sys")


@triton.jit
def on_peer(pointers, peer, DTYPE: tl.constexpr):
    """First element of a symmetric buffer of `peer`; `pointers` is the table of its addresses on all ranks."""
    return tl.multiple_of(tl.load(pointers + peer).to(tl.pointer_type(DTYPE)), 16)


@triton.jit
def words_of(words, peer_words, peer):
    """Words of 64 bits of `peer`: `words` are those of this rank, `peer_words` the table of `on_peer`."""
    return on_peer(peer_words, peer, tl.int64)


@triton.jit
def count_at_peer(peer_words, count, peer):
    """Count at word `count` of `peer` that this program has come so far; `peer_words` is the table of `on_peer`."""
    count_up(on_peer(peer_words, peer, tl.int32) + count)


@triton.jit
def count_at_peers(peer_words, count, rank, NUM_RANKS: tl.constexpr):
    """`count_at_peer` at every peer at once, as `notify_all` does."""
    ranks = tl.arange(0, triton.next_power_of_2(NUM_RANKS))
    peers = (ranks < NUM_RANKS) & (ranks != rank)
    there = tl.load(peer_words + ranks, mask=peers, other=0).to(tl.pointer_type(tl.int32))
    program_barrier()
    tl.atomic_add(there + count, 1, mask=peers, sem="release", scope="sys")


@triton.jit
def begin_call(epoch, counts, done, rank, NUM_COUNTS: tl.constexpr, BLOCK: tl.constexpr, NUM_RANKS: tl.constexpr):
    """One program, first in every call: wait until each peer has finished the last call, so that its buffers may be
    written; set the counts of this rank to 0; go to the next epoch."""
    call = tl.load(epoch) + 1
    for step in range(1, NUM_RANKS):
        wait_epoch(done + (rank + step) % NUM_RANKS, call - 1)
    offsets = tl.arange(0, BLOCK)
    tl.store(counts + offsets, tl.zeros((BLOCK,), tl.int32), mask=offsets < NUM_COUNTS)
    tl.store(epoch, call)


@triton.jit
def finish_call(epoch, signal_peers, rank, DONE: tl.constexpr, NUM_RANKS: tl.constexpr):
    """One program a peer, last in every call: tell it that this rank reads and writes nothing of this call any more."""
    peer = (rank + 1 + tl.program_id(0)) % NUM_RANKS
    notify(on_peer(signal_peers, peer, tl.int32) + DONE + rank, tl.load(epoch))


@triton.jit
def wait_on_stream(signal, epoch):
    """One program that holds up its stream until `signal` is raised for this call."""
    wait_epoch(signal, tl.load(epoch))


@triton.jit
def wait_count_on_stream(count, TARGET: tl.constexpr):
    """One program that holds up its stream until `TARGET` arrivals are counted."""
    wait_count(count, TARGET)
