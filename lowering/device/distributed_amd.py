"""Signals of Triton-distributed on AMD GPUs, which have no `dl.notify`."""

# mypy: ignore-errors
from __future__ import annotations

import triton_dist
import triton_dist.language as dl
from triton_dist.language.extra.language_extra import __syncthreads, atomic_add, st, tid


@triton_dist.jit
def notify(signal, peer, call):
    """Raise `signal` of `peer` to `call`: publishes all stores of this program and all data that it has acquired."""
    __syncthreads()
    if tid(0) == 0:
        st(dl.symm_at(signal, peer), call, scope="sys", semantic="release")


@triton_dist.jit
def count_at_peer(peer_words, count, peer):
    """Add 1 to word `count` of `peer` after this program's work so far; `peer_words` are the words of this rank."""
    __syncthreads()
    if tid(0) == 0:
        atomic_add(dl.symm_at(peer_words, peer) + count, 1, scope="sys", semantic="release")
