"""Collectives in packets: 64-bit words that carry data together with the fact of their arrival. A packet is stored and
loaded as one word, so that no memory order is needed.

LL packets hold 32 bits of data and the 32-bit number of the call. Lamport packets hold 64 bits of data, and 0 is the empty
packet. The reader clears each Lamport packet, so that its slot is free two calls later. Data is inverted in transit, because
zeros are common: only a word of NaNs with all bits set would become 0, and is sent as other NaNs.

Two sets of packets alternate. In each call every rank waits for packets of every peer. A rank therefore begins the second
call after this one only when its peers have begun the next one, and so have read the packets of this one.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def put_words(words, value):
    """Store whole words, on this rank or a peer."""
    tl.atomic_xchg(words, value, sem="relaxed", scope="sys")


@triton.jit
def get_words(words):
    """Load whole words."""
    return tl.atomic_add(words, tl.zeros(words.shape, tl.int64), sem="relaxed", scope="sys")
