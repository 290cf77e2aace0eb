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


@triton_dist.jit
def wait_until(word, value):
    """Block until `word` of this rank is `value`; returns the token for loads of what was published with it. Nobody raises the
    word further before all that wait for `value` have seen it. Threads do not meet."""
    return dl.wait(word, 1, "sys", "acquire", waitValue=value)


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
def program_barrier():
    """CTA barrier: the stores of all threads come before what any thread does next."""
    __syncthreads()


@triton_dist.jit
def notify(signal, peer, call):
    """Raise `signal` of `peer` to `call`: publishes all stores of this program and all data that it has acquired."""
    __syncthreads()  # one thread executes notify, without waiting for the others
    dl.notify(signal, peer, signal=call, sig_op="set", comm_scope="intra_node")


@triton_dist.jit
def count_at_peer(peer_words, count, peer):
    """Add 1 to word `count` of `peer` after this program's work so far; `peer_words` are the words of this rank."""
    __syncthreads()
    dl.notify(peer_words + count, peer, signal=1, sig_op="add", comm_scope="intra_node")


@triton_dist.jit
def notify_here(word, value):
    """Raise `word` of this rank to `value`: publishes all stores of this program and all data that it has acquired."""
    program_barrier()  # one thread releases, without waiting for the others
    tl.atomic_xchg(word, value, sem="release", scope="sys")
