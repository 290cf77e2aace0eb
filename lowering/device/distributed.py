"""Signals in the dialect of Triton-distributed: 64-bit words in symmetric memory, addressed by this rank's own copy.

`dl.wait` compares for equality. A word that it waits for cannot pass the value: an epoch rises again only after this rank
has finished the call, and a count is complete at its target. One thread executes `dl.notify`, here behind a barrier.
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
    """Block until another rank has raised `signal` for call `call`; returns the token for loads of the published data."""
    return dl.wait(signal, 1, "sys", "acquire", waitValue=call)


@triton_dist.jit
def wait_count(count, target):
    """Block until `count` has reached `target` arrivals in this call; returns the token."""
    return dl.wait(count, 1, "sys", "acquire", waitValue=target)


@triton_dist.jit
def wait_use(signal, use):
    """Block until `signal`, the number of uses of a slot, is `use`; returns the token. The signal rises further only after
    this use."""
    return dl.wait(signal, 1, "sys", "acquire", waitValue=use)


@triton_dist.jit
def wait_at_least(count, target):
    """Block until `count` is at least `target`; other programs may add to it meanwhile."""
    while ld(count, scope="sys", semantic="acquire") < target:
        pass
    __syncthreads()


@triton_dist.jit
def in_place(places, place, DTYPE: tl.constexpr):
    """First element of place `place` in this rank's pool."""
    return tl.load(places + place).to(tl.pointer_type(DTYPE))


@triton_dist.jit
def wait_places(words, call, NUM_RANKS: tl.constexpr):
    """Block until every rank, this one included, has published the place of its output for this call."""
    for rank in tl.static_range(NUM_RANKS):
        wait_at_least(words + rank, told(0, call))


@triton_dist.jit
def await_peers(done, peers):
    """Block until `peers` peers have finished their call."""
    wait_at_least(done, peers)


@triton_dist.jit
def await_copies(copied, STREAMS: tl.constexpr):
    """Block until each of STREAMS copy streams has written 1 into its word: its copies are done."""
    for stream in tl.static_range(STREAMS):
        wait_at_least(copied + stream, 1)


@triton_dist.jit
def program_barrier():
    """CTA barrier: the stores of all threads come before what any thread does next."""
    __syncthreads()


@triton_dist.jit
def notify(signal, peer, call):
    """Raise `signal` of `peer` to `call`: publishes all stores of this program and all data that it has acquired."""
    __syncthreads()  # one thread executes notify, without waiting for the others
    dl.notify(signal, peer, signal=call, sig_op="set", comm_scope="intra_node")


@triton_dist.jit
def words_of(words, peer_words, peer):
    """The 64-bit words of `peer`; `words` and `peer_words` are both the words of this rank."""
    return dl.symm_at(words, peer)


@triton_dist.jit
def count_at_peer(peer_words, count, peer):
    """Add 1 to word `count` of `peer` after this program's work so far; `peer_words` are the words of this rank."""
    __syncthreads()
    dl.notify(peer_words + count, peer, signal=1, sig_op="add", comm_scope="intra_node")


@triton_dist.jit
def notify_all(signal, call, NUM_RANKS: tl.constexpr):
    """Raise `signal` of every rank to `call`, in the same order as `notify`."""
    for peer in tl.static_range(NUM_RANKS):
        notify(signal, peer, call)


@triton_dist.jit
def count_at_peers(peer_words, count, rank, NUM_RANKS: tl.constexpr):
    """Add 1 to word `count` of every peer, in the same order as `count_at_peer`."""
    for step in tl.static_range(1, NUM_RANKS):
        count_at_peer(peer_words, count, (rank + step) % NUM_RANKS)


@triton_dist.jit
def begin_call(epoch, counts, done, rank, NUM_COUNTS: tl.constexpr, BLOCK: tl.constexpr, NUM_RANKS: tl.constexpr):
    """The first launch of a call, of one program. Wait until every peer has finished the last call, so that its buffers may
    be overwritten. Then clear the counts of this rank and advance the epoch."""
    call = tl.load(epoch) + 1
    for step in range(1, NUM_RANKS):
        wait_at_least(done + (rank + step) % NUM_RANKS, call - 1)
    offsets = tl.arange(0, BLOCK)
    tl.store(counts + offsets, tl.zeros((BLOCK,), tl.int64), mask=offsets < NUM_COUNTS)
    tl.store(epoch, call)


@triton_dist.jit
def finish_call(epoch, signals, rank, DONE: tl.constexpr, NUM_RANKS: tl.constexpr):
    """The last launch of a call, of one program for each peer: signal there that this rank has finished the call."""
    notify(signals + DONE + rank, (rank + 1 + tl.program_id(0)) % NUM_RANKS, tl.load(epoch))


@triton_dist.jit
def wait_on_stream(signal, epoch):
    """Hold the stream, with one program, until `signal` is raised for this call."""
    wait_at_least(signal, tl.load(epoch))


@triton_dist.jit
def wait_count_on_stream(count, TARGET: tl.constexpr):
    """Hold the stream, with one program, until `count` has reached TARGET arrivals."""
    wait_at_least(count, TARGET)
