"""Signals in the dialect of Triton-distributed: words of 64 bits in symmetric memory, addressed by this rank's own copy.

`dl.wait` compares by equality. No word that is waited for like this can pass its value: an epoch is only raised again after
this rank has finished the call, a count is complete at its target. `dl.notify` acts in one thread, behind a barrier here.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton.language as tl
import triton_dist
import triton_dist.language as dl
from triton_dist.language.extra.language_extra import __syncthreads, ld

from lowering.device.places import told


@triton_dist.jit
def wait_epoch(signal, call):
    """Block until another rank has raised `signal` for call `call`; returns the token for loads of what it published."""
    return dl.wait(signal, 1, "sys", "acquire", waitValue=call)


@triton_dist.jit
def wait_count(count, target):
    """Block until all of `target` arrivals have been counted at `count` in this call; returns the token."""
    return dl.wait(count, 1, "sys", "acquire", waitValue=target)


@triton_dist.jit
def wait_use(signal, use):
    """Block until `signal`, which counts the uses of a slot, is `use`; returns the token. Nobody raises it further before
    this use is over."""
    return dl.wait(signal, 1, "sys", "acquire", waitValue=use)


@triton_dist.jit
def wait_at_least(count, target):
    """Block until `target` arrivals have been counted at `count`, to which others may add meanwhile."""
    while ld(count, scope="sys", semantic="acquire") < target:
        pass
    __syncthreads()


@triton_dist.jit
def in_place(places, place, DTYPE: tl.constexpr):
    """First element of a place of this rank's pool."""
    return tl.load(places + place).to(tl.pointer_type(DTYPE))


@triton_dist.jit
def wait_places(words, call, NUM_RANKS: tl.constexpr):
    """Block until every rank, this one too, has told for this call where its output lies."""
    for rank in tl.static_range(NUM_RANKS):
        wait_at_least(words + rank, told(0, call))


@triton_dist.jit
def await_peers(done, peers):
    """Block until so many peers have finished their call."""
    wait_at_least(done, peers)


@triton_dist.jit
def await_copies(copied, STREAMS: tl.constexpr):
    """Block until each of so many side streams has written 1 into its word: it has nothing left to copy."""
    for stream in tl.static_range(STREAMS):
        wait_at_least(copied + stream, 1)


@triton_dist.jit
def program_barrier():
    """All threads of the program meet, and their stores come before whatever one of them does next."""
    __syncthreads()


@triton_dist.jit
def notify(signal, peer, call):
    """Raise `signal` of `peer` for call `call`: publishes all stores of this program and what it has acquired."""
    __syncthreads()  # notify is done by one thread and does not wait for the others
    dl.notify(signal, peer, signal=call, sig_op="set", comm_scope="intra_node")


@triton_dist.jit
def words_of(words, peer_words, peer):
    """Words of 64 bits of `peer`: `words`, and `peer_words` as well, are those of this rank."""
    return dl.symm_at(words, peer)


@triton_dist.jit
def count_at_peer(peer_words, count, peer):
    """Count at word `count` of `peer` that this program has come so far; `peer_words` are those of this rank."""
    __syncthreads()
    dl.notify(peer_words + count, peer, signal=1, sig_op="add", comm_scope="intra_node")


@triton_dist.jit
def notify_all(signal, call, NUM_RANKS: tl.constexpr):
    """`notify` for every rank."""
    for peer in tl.static_range(NUM_RANKS):
        notify(signal, peer, call)


@triton_dist.jit
def count_at_peers(peer_words, count, rank, NUM_RANKS: tl.constexpr):
    """`count_at_peer` at every peer."""
    for step in tl.static_range(1, NUM_RANKS):
        count_at_peer(peer_words, count, (rank + step) % NUM_RANKS)


@triton_dist.jit
def begin_call(epoch, counts, done, rank, NUM_COUNTS: tl.constexpr, BLOCK: tl.constexpr, NUM_RANKS: tl.constexpr):
    """One program, first in every call: wait until each peer has finished the last call, so that its buffers may be
    written; set the counts of this rank to 0; go to the next epoch."""
    call = tl.load(epoch) + 1
    for step in range(1, NUM_RANKS):
        wait_at_least(done + (rank + step) % NUM_RANKS, call - 1)
    offsets = tl.arange(0, BLOCK)
    tl.store(counts + offsets, tl.zeros((BLOCK,), tl.int64), mask=offsets < NUM_COUNTS)
    tl.store(epoch, call)


@triton_dist.jit
def finish_call(epoch, signals, rank, DONE: tl.constexpr, NUM_RANKS: tl.constexpr):
    """One program a peer, last in every call: tell it that this rank reads and writes nothing of this call any more."""
    notify(signals + DONE + rank, (rank + 1 + tl.program_id(0)) % NUM_RANKS, tl.load(epoch))


@triton_dist.jit
def wait_on_stream(signal, epoch):
    """One program that holds up its stream until `signal` is raised for this call."""
    wait_at_least(signal, tl.load(epoch))


@triton_dist.jit
def wait_count_on_stream(count, TARGET: tl.constexpr):
    """One program that holds up its stream until `TARGET` arrivals are counted."""
    wait_at_least(count, TARGET)
