"""Helpers of signals of Triton-distributed on AMD GPUs, where `dl.notify` does not exist."""

# mypy: ignore-errors
from __future__ import annotations

import triton_dist
import triton_dist.language as dl
from triton_dist.language.extra.language_extra import __syncthreads, atomic_add, st, tid


@triton_dist.jit
def notify(signal, peer, call):
    """Raise `signal` of `peer` for call `call`: publishes all stores of this program and what it has acquired."""
    __syncthreads()
    if tid(0) == 0:
        st(dl.symm_at(signal, peer), call, scope="sys", semantic="release")


@triton_dist.jit
def count_at_peer(peer_words, count, peer):
    """Count at word `count` of `peer` that this program has come so far; `peer_words` are those of this rank."""
    __syncthreads()
    if tid(0) == 0:
        atomic_add(dl.symm_at(peer_words, peer) + count, 1, scope="sys", semantic="release")
