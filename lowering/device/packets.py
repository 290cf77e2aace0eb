"""Packets: 64-bit words that carry data together with the fact of their arrival. A packet is stored and
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


@triton.jit
def put_words_where(words, packets, mask):
    """Store those of the words whose `mask` is set."""
    tl.atomic_xchg(words, packets, mask=mask, sem="relaxed", scope="sys")


@triton.jit
def get_words_where(words, mask):
    """Load those of the words whose `mask` is set; others are any number."""
    return tl.atomic_add(words, tl.zeros(words.shape, tl.int64), mask=mask, sem="relaxed", scope="sys")


@triton.jit
def store_words(words, packets, mask):
    """Store whole words, on this rank or a peer: those that exist."""
    if mask is None:
        put_words(words, packets)
    else:
        put_words_where(words, packets, mask)


@triton.jit
def load_words(words, mask):
    """What words hold: those that exist."""
    return get_words(words) if mask is None else get_words_where(words, mask)


@triton.jit
def data_of_tile(tile, DTYPE: tl.constexpr, COUNT: tl.constexpr):
    """A tile rounded to DTYPE as 64-bit data: COUNT elements that follow each other in a row, the first one in the low bits.

    Each pair is put together in the narrowest type: what is as wide as data before it is half as many takes all registers."""
    if DTYPE.primitive_bitwidth == 32:
        data = tile.to(DTYPE).to(tl.int32, bitcast=True)
    else:
        data = tile.to(DTYPE).to(tl.int16, bitcast=True)
        if COUNT >= 2:
            low, high = tl.split(tl.reshape(data, (data.shape[0], data.shape[1] // 2, 2)))
            data = (low.to(tl.int32) & 0xFFFF) | (high.to(tl.int32) << 16)
    if COUNT * DTYPE.primitive_bitwidth == 64:
        low, high = tl.split(tl.reshape(data, (data.shape[0], data.shape[1] // 2, 2)))
        return (low.to(tl.int64) & 0xFFFFFFFF) | (high.to(tl.int64) << 32)
    else:
        return data.to(tl.int64) & 0xFFFFFFFF


@triton.jit
def tile_of_data(data, DTYPE: tl.constexpr, COUNT: tl.constexpr):
    """The tile of type DTYPE whose elements `data` holds, COUNT in each."""
    if COUNT * DTYPE.primitive_bitwidth == 64:
        words = tl.reshape(tl.join(data.to(tl.int32), (data >> 32).to(tl.int32)), (data.shape[0], data.shape[1] * 2))
    else:
        words = data.to(tl.int32)
    if DTYPE.primitive_bitwidth == 32:
        return words.to(DTYPE, bitcast=True)
    elif COUNT >= 2:
        halves = tl.join(words.to(tl.int16), (words >> 16).to(tl.int16))
        return tl.reshape(halves, (words.shape[0], words.shape[1] * 2)).to(DTYPE, bitcast=True)
    else:
        return words.to(tl.int16).to(DTYPE, bitcast=True)


@triton.jit
def packets_of(data, call, NUMBERED: tl.constexpr):
    """Packets of `data`: NUMBERED with the number of the call, or else so that none is 0. Data is inverted then, because zeros
    are common; a word of NaNs with all bits set is sent as other NaNs."""
    if NUMBERED:
        return (tl.full(data.shape, 0, tl.int64) + call) << 32 | data
    else:
        return tl.where(data == -1, -(2**63), ~data)


@triton.jit
def absent(found, call, NUMBERED: tl.constexpr):
    """1 for each of the packets `found` that is not of call number `call`, or is empty; else 0."""
    if NUMBERED:
        return ((found >> 32).to(tl.int32) != call).to(tl.int32)
    else:
        return (found == 0).to(tl.int32)


@triton.jit
def not_there(found, call, NUMBERED: tl.constexpr, mask):
    """1 if one of the packets `found` that exist has not arrived in call number `call`, else 0."""
    missing = absent(found, call, NUMBERED)
    return tl.max(missing if mask is None else tl.where(mask, missing, 0))


@triton.jit
def put_packets(words, tile, call, DTYPE: tl.constexpr, COUNT: tl.constexpr, NUMBERED: tl.constexpr, mask=None):
    """Store a tile of elements of DTYPE, COUNT in a packet."""
    store_words(words, packets_of(data_of_tile(tile, DTYPE, COUNT), call, NUMBERED), mask)


@triton.jit
def take_packets(words, call, DTYPE: tl.constexpr, COUNT: tl.constexpr, NUMBERED: tl.constexpr, mask=None):
    """The tile of elements in `words`, after a wait until all have arrived in this call; zeros where there are none. Packets
    that are not NUMBERED are emptied: set to 0."""
    return tile_of_data(take_data(words, call, NUMBERED, mask), DTYPE, COUNT)


@triton.jit
def own_or_packets(
    own, is_own, words, call, DTYPE: tl.constexpr, COUNT: tl.constexpr, NUMBERED: tl.constexpr, mask=None
):
    """The tile `own`, rounded to DTYPE, if `is_own`; else the tile in `words`, after a wait until all of it has arrived."""
    others = tl.full(words.shape, 1, tl.int1) & (is_own == 0)  # no branch: the compiler fails on it
    found = take_data(words, call, NUMBERED, others if mask is None else others & mask)
    return tile_of_data(tl.where(is_own, data_of_tile(own, DTYPE, COUNT), found), DTYPE, COUNT)


@triton.jit
def take_data(words, call, NUMBERED: tl.constexpr, mask):
    """What packets hold, after a wait until all have arrived in this call; 0 where there are none. Packets that are not NUMBERED
    are emptied."""
    found = load_words(words, mask)
    while not_there(found, call, NUMBERED, mask) > 0:
        found = load_words(words, mask)
    if not NUMBERED:
        store_words(words, tl.zeros(words.shape, tl.int64), mask)
        found = ~found
    if mask is not None:
        found = tl.where(mask, found, 0)
    return found
