"""Collectives of few bytes by the protocol that NCCL calls LL: a word of 64 bits carries 32 of data and 32 that number the
call. Who finds the number has the data, since a word is stored and loaded in one piece; there is nothing to order.

Two sets of words take turns. A kernel of the second call after this one begins only when its peers have begun the next one,
and so have read the words of this one: in each call every rank waits for words of every peer.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from lowering.device.signals import words_of


@triton.jit
def put_words(words, value):
    """Store whole words, here or at a peer."""
    tl.atomic_xchg(words, value, sem="relaxed", scope="sys")


@triton.jit
def get_words(words):
    """Load whole words as they are now."""
    return tl.atomic_add(words, tl.zeros(words.shape, tl.int64), sem="relaxed", scope="sys")


@triton.jit
def numbered(data, call):
    """Words of `data`, int32, in call number `call`."""
    return (call.to(tl.int64) << 32) | (data.to(tl.int64) & 0xFFFFFFFF)


@triton.jit
def arrived(words, call):
    """The data of `words` once all of them are of call number `call`. All threads of the program come out together."""
    found = get_words(words)
    while tl.max(((found >> 32).to(tl.int32) != call).to(tl.int32), axis=0) > 0:
        found = get_words(words)
    return found.to(tl.int32)


@triton.jit
def arrived_where(words, call, where):
    """The data of `words` once those of which `where` says so are of call number `call`."""
    found = get_words(words)
    while tl.max((((found >> 32).to(tl.int32) != call) & where).to(tl.int32), axis=0) > 0:
        found = get_words(words)
    return found.to(tl.int32)


@triton.jit
def first_of(word, DTYPE: tl.constexpr):
    """The element in the lower half of each word, or in all of it, as fp32."""
    if tl.float32 == DTYPE:
        return word.to(tl.float32, bitcast=True)
    else:
        return (word & 0xFFFF).to(tl.int16).to(DTYPE, bitcast=True).to(tl.float32)


@triton.jit
def second_of(word, DTYPE: tl.constexpr):
    """The element in the upper half of each word, as fp32."""
    return (word >> 16).to(tl.int16).to(DTYPE, bitcast=True).to(tl.float32)


@triton.jit
def word_of(first, second, DTYPE: tl.constexpr):
    """Both elements in a word, or the first one alone if it takes a word."""
    if tl.float32 == DTYPE:
        return first.to(tl.int32, bitcast=True)
    else:
        low = first.to(DTYPE).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
        return low | (second.to(DTYPE).to(tl.int16, bitcast=True).to(tl.int32) << 16)


@triton.jit
def tile_words(tile, DTYPE: tl.constexpr):
    """The words of a tile in fp32, rounded to DTYPE, row after row."""
    if tl.float32 == DTYPE:
        return tl.reshape(word_of(tile, tile, DTYPE), (tile.shape[0] * tile.shape[1],))
    else:
        first, second = tl.split(tl.reshape(tile, (tile.shape[0], tile.shape[1] // 2, 2)))
        return tl.reshape(word_of(first, second, DTYPE), (tile.shape[0] * tile.shape[1] // 2,))


@triton.jit
def sum_words(
    tile,
    words,
    peer_words,
    number,
    call,
    rank,
    TILES: tl.constexpr,
    NUM_RANKS: tl.constexpr,
    DTYPE: tl.constexpr,
    first=0,
    SHARE: tl.constexpr = 0,
    DIM: tl.constexpr = 0,
):
    """The sum over ranks of tile `number` of TILES, in fp32, rounded to DTYPE before.

    With a SHARE, element number `first` and those after it along dimension DIM, of a tensor of which each rank gets so many:
    nothing else is added on this rank than what belongs to it.
    """
    own = tile_words(tile, DTYPE)
    SIZE: tl.constexpr = own.shape[0]
    ROW: tl.constexpr = SIZE // tile.shape[0]
    offsets = tl.arange(0, SIZE)
    place = ((call & 1) * NUM_RANKS * TILES + number) * SIZE + offsets
    if SHARE:
        inside = offsets // ROW if DIM == 0 else offsets % ROW * (tile.shape[1] // ROW)
        owner = (first + inside) // SHARE
    for step in tl.static_range(1, NUM_RANKS):
        peer = (rank + step) % NUM_RANKS
        there = words_of(words, peer_words, peer) + rank * TILES * SIZE + place
        if SHARE:  # what is not for this peer goes to a place here that nobody reads
            there = tl.where(owner == peer, there, words + rank * TILES * SIZE + place)
        put_words(there, numbered(own, call))
    found = (own,)
    for step in tl.static_range(1, NUM_RANKS):
        from_peer = words + (rank + step) % NUM_RANKS * TILES * SIZE + place
        data = arrived_where(from_peer, call, owner == rank) if SHARE else arrived(from_peer, call)
        found = found + (data,)
    one, two = tl.zeros((SIZE,), tl.float32), tl.zeros((SIZE,), tl.float32)
    # in one order on all ranks: where each of them adds, all have the same bits
    for peer in tl.static_range(NUM_RANKS):
        data = own
        for step in tl.static_range(1, NUM_RANKS):
            data = tl.where((rank + step) % NUM_RANKS == peer, found[step], data)
        one += first_of(data, DTYPE)
        if tl.float32 != DTYPE:
            two += second_of(data, DTYPE)
    if tl.float32 == DTYPE:
        return tl.reshape(one, tile.shape)
    else:
        return tl.reshape(tl.join(one, two), tile.shape)


@triton.jit(do_not_specialize=["rank"])
def ll_all_gather(
    source, out, words, peer_words, calls, rank, WORDS: tl.constexpr, BLOCK: tl.constexpr, NUM_RANKS: tl.constexpr
):
    """`out` = `source` of every rank, WORDS words of 4 bytes each; `calls` numbers the calls, for each program by itself."""
    program, size = tl.program_id(0), tl.cdiv(WORDS, BLOCK) * BLOCK
    call = tl.load(calls + program).to(tl.int32) + 1
    turn = (call & 1) * NUM_RANKS * size
    for first in range(program * BLOCK, WORDS, tl.num_programs(0) * BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        own = tl.load(source + offsets, mask=offsets < WORDS, other=0)
        for step in tl.static_range(1, NUM_RANKS):
            there = words_of(words, peer_words, (rank + step) % NUM_RANKS)
            put_words(there + turn + rank * size + offsets, numbered(own, call))
        tl.store(out + rank * WORDS + offsets, own, mask=offsets < WORDS)
    for first in range(program * BLOCK, WORDS, tl.num_programs(0) * BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        for step in tl.static_range(1, NUM_RANKS):
            peer = (rank + step) % NUM_RANKS
            data = arrived(words + turn + peer * size + offsets, call)
            tl.store(out + peer * WORDS + offsets, data, mask=offsets < WORDS)
    tl.store(calls + program, call)


@triton.jit(do_not_specialize=["rank"])
def ll_reduce(
    source,
    out,
    words,
    peer_words,
    calls,
    rank,
    WORDS: tl.constexpr,
    BLOCK: tl.constexpr,
    NUM_RANKS: tl.constexpr,
    SCATTER: tl.constexpr,
    DTYPE: tl.constexpr,
):
    """`out` = the sum over ranks of `source`, WORDS words of 4 bytes; with SCATTER, of the part of it that is this rank's."""
    program, size = tl.program_id(0), tl.cdiv(WORDS, BLOCK) * BLOCK
    call = tl.load(calls + program).to(tl.int32) + 1
    turn = (call & 1) * NUM_RANKS * size
    for first in range(program * BLOCK, WORDS, tl.num_programs(0) * BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        for step in tl.static_range(1, NUM_RANKS):
            peer = (rank + step) % NUM_RANKS
            part = peer * WORDS if SCATTER else 0
            sent = tl.load(source + part + offsets, mask=offsets < WORDS, other=0)
            put_words(words_of(words, peer_words, peer) + turn + rank * size + offsets, numbered(sent, call))
    for first in range(program * BLOCK, WORDS, tl.num_programs(0) * BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        part = rank * WORDS if SCATTER else 0
        own = tl.load(source + part + offsets, mask=offsets < WORDS, other=0)
        one, two = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
        # in one order on all ranks: where each of them adds, all have the same bits
        for peer in tl.static_range(NUM_RANKS):
            data = own
            if peer != rank:
                data = arrived(words + turn + peer * size + offsets, call)
            one += first_of(data, DTYPE)
            if tl.float32 != DTYPE:
                two += second_of(data, DTYPE)
        tl.store(out + offsets, word_of(one, two, DTYPE), mask=offsets < WORDS)
    tl.store(calls + program, call)
