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

from lowering.device.counts import count_up
from lowering.device.signals import wait_use, words_of


@triton.jit
def put_words(words, value):
    """Store whole words, on this rank or a peer."""
    tl.atomic_xchg(words, value, sem="relaxed", scope="sys")


@triton.jit
def get_words(words):
    """Load whole words."""
    return tl.atomic_add(words, tl.zeros(words.shape, tl.int64), sem="relaxed", scope="sys")


@triton.jit
def sent(data, call):
    """Packets of `data`: int32 data makes LL packets of call number `call`, int64 data Lamport packets."""
    if data.dtype == tl.int32:
        return (call.to(tl.int64) << 32) | (data.to(tl.int64) & 0xFFFFFFFF)
    else:
        return tl.where(data == -1, -(2**63), ~data)


@triton.jit
def missing(found, call, NUMBERED: tl.constexpr):
    """1 for each packet that has not arrived in call number `call`, else 0."""
    if NUMBERED:
        return ((found >> 32).to(tl.int32) != call).to(tl.int32)
    else:
        return (found == 0).to(tl.int32)


@triton.jit
def taken(words, found, NUMBERED: tl.constexpr):
    """The data of arrived packets; Lamport packets (not NUMBERED) are cleared."""
    if NUMBERED:
        return found.to(tl.int32)
    else:
        put_words(words, tl.zeros(words.shape, tl.int64))
        return ~found


@triton.jit
def arrived(words, call, NUMBERED: tl.constexpr, where=1):
    """The data of `words`, after a wait until all packets of call number `call` have arrived; only packets whose `where` is
    not 0 are awaited. All threads of the program leave together."""
    found = get_words(words)
    while tl.max(missing(found, call, NUMBERED) * where, axis=0) > 0:
        found = get_words(words)
    return taken(words, found, NUMBERED)


@triton.jit
def own_or_arrived(own, is_own, words, call, NUMBERED: tl.constexpr):
    """`own` if `is_own`, else the data of `words` after their arrival."""
    data = own
    if not is_own:
        data = arrived(words, call, NUMBERED)
    return data


@triton.jit
def element_of(data, SHIFT: tl.constexpr, DTYPE: tl.constexpr):
    """The element of type DTYPE at bit SHIFT of each word of `data`, as fp32."""
    if tl.float32 == DTYPE:
        return (data >> SHIFT).to(tl.int32).to(tl.float32, bitcast=True)
    else:
        return (data >> SHIFT).to(tl.int16).to(DTYPE, bitcast=True).to(tl.float32)


@triton.jit
def elements_of(data, DTYPE: tl.constexpr):
    """All elements of the words of `data`, as fp32: one tensor for each element of a word."""
    BITS: tl.constexpr = DTYPE.primitive_bitwidth
    found = (element_of(data, 0, DTYPE),)
    for number in tl.static_range(1, data.dtype.primitive_bitwidth // BITS):
        found = found + (element_of(data, number * BITS, DTYPE),)
    return found


@triton.jit
def data_of(elements, DTYPE: tl.constexpr):
    """Words of data that hold `elements`, tensors in fp32, rounded to DTYPE."""
    BITS: tl.constexpr = DTYPE.primitive_bitwidth
    WORD: tl.constexpr = tl.int32 if BITS * len(elements) == 32 else tl.int64
    data = tl.zeros(elements[0].shape, WORD)
    for number in tl.static_range(len(elements)):
        if BITS == 32:
            bits = elements[number].to(tl.uint32, bitcast=True)
        else:
            bits = elements[number].to(DTYPE).to(tl.uint16, bitcast=True)
        data |= bits.to(WORD) << (number * BITS)
    return data


@triton.jit
def added(sums, elements):
    """`sums` plus `elements`, tensor by tensor."""
    found = (sums[0] + elements[0],)
    for number in tl.static_range(1, len(elements)):
        found = found + (sums[number] + elements[number],)
    return found


@triton.jit
def tile_data(tile, DTYPE: tl.constexpr, NUMBERED: tl.constexpr):
    """A tile in fp32 as words of data, rounded to DTYPE, row by row."""
    COUNT: tl.constexpr = (32 if NUMBERED else 64) // DTYPE.primitive_bitwidth  # elements of a word
    ROWS: tl.constexpr = tile.shape[0]
    COLS: tl.constexpr = tile.shape[1] // COUNT
    elements = (tile,) if COUNT == 1 else tl.split(tl.reshape(tile, (ROWS, tile.shape[1] // 2, 2)))
    if COUNT == 4:
        even, odd = elements
        even, odd = tl.split(tl.reshape(even, (ROWS, COLS, 2))), tl.split(tl.reshape(odd, (ROWS, COLS, 2)))
        elements = (even[0], odd[0], even[1], odd[1])
    return tl.reshape(data_of(elements, DTYPE), (ROWS * COLS,))


@triton.jit
def tile_of(elements, shape: tl.constexpr):
    """The tile, in fp32, from the elements of its words."""
    if len(elements) == 1:
        return tl.reshape(elements[0], shape)
    elif len(elements) == 2:
        return tl.reshape(tl.join(elements[0], elements[1]), shape)
    else:
        even, odd = tl.join(elements[0], elements[2]), tl.join(elements[1], elements[3])
        return tl.reshape(tl.join(even, odd), shape)


@triton.jit
def of_rank(found, peer: tl.constexpr, rank):
    """The data of `peer`, where `found` holds the data of `rank`, of the next rank, and so on."""
    data = found[0]
    for step in tl.static_range(1, len(found)):
        data = tl.where((rank + step) % len(found) == peer, found[step], data)
    return data


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
    NUMBERED: tl.constexpr,
    first=0,
    SHARE: tl.constexpr = 0,
    DIM: tl.constexpr = 0,
    GATHER: tl.constexpr = False,
):
    """The sum over all ranks of tile `number` of TILES, in fp32; summands are rounded to DTYPE.

    With SHARE, each rank owns SHARE elements along dimension DIM, the tile begins at element `first`, and a rank adds only
    its own elements. With GATHER, each rank adds an equal share of the packets and sends the sums, rounded to DTYPE, to all.
    """
    own = tile_data(tile, DTYPE, NUMBERED)
    SIZE: tl.constexpr = own.shape[0]
    ROW: tl.constexpr = SIZE // tile.shape[0]
    SENDER: tl.constexpr = TILES * SIZE  # packets of one sender
    offsets = tl.arange(0, SIZE)
    place = ((call & 1) * (2 if GATHER else 1) * NUM_RANKS * TILES + number) * SIZE + offsets
    mine = 1
    if GATHER or SHARE:
        if GATHER:
            owner = offsets * NUM_RANKS // SIZE
        else:
            inside = offsets // ROW if DIM == 0 else offsets % ROW * (tile.shape[1] // ROW)
            owner = (first + inside) // SHARE
        mine = (owner == rank).to(tl.int32)
        there = words + rank * SENDER + place  # packets for no peer go to slots of this rank that are never read
        for step in tl.static_range(1, NUM_RANKS):
            peer = (rank + step) % NUM_RANKS
            there = tl.where(owner == peer, words_of(words, peer_words, peer) + rank * SENDER + place, there)
        put_words(there, sent(own, call))
    else:
        for step in tl.static_range(1, NUM_RANKS):
            there = words_of(words, peer_words, (rank + step) % NUM_RANKS)
            put_words(there + rank * SENDER + place, sent(own, call))
    found = (own,)
    for step in tl.static_range(1, NUM_RANKS):
        from_peer = words + (rank + step) % NUM_RANKS * SENDER + place
        found = found + (arrived(from_peer, call, NUMBERED, mine),)
    # the same order on all ranks: their sums are equal bit by bit
    sums = elements_of(of_rank(found, 0, rank), DTYPE)
    for peer in tl.static_range(1, NUM_RANKS):
        sums = added(sums, elements_of(of_rank(found, peer, rank), DTYPE))
    if GATHER:
        total, place = data_of(sums, DTYPE), place + NUM_RANKS * SENDER
        nowhere = words + rank * SENDER + place
        for step in tl.static_range(1, NUM_RANKS):
            there = words_of(words, peer_words, (rank + step) % NUM_RANKS) + rank * SENDER + place
            put_words(tl.where(owner == rank, there, nowhere), sent(total, call))
        data = arrived(words + owner * SENDER + place, call, NUMBERED, 1 - mine)
        sums = elements_of(tl.where(owner == rank, total, data), DTYPE)
    return tile_of(sums, tile.shape)


@triton.jit(do_not_specialize=["rank"])
def words_gather(
    source,
    out,
    words,
    peer_words,
    calls,
    rank,
    WORDS: tl.constexpr,
    BLOCK: tl.constexpr,
    NUM_RANKS: tl.constexpr,
    NUMBERED: tl.constexpr,
):
    """all_gather: `out` is `source` of every rank, WORDS words of data each. `calls` holds the number of the last call of
    each program."""
    program, size = tl.program_id(0), tl.cdiv(WORDS, BLOCK) * BLOCK
    call = tl.load(calls + program).to(tl.int32) + 1
    turn = (call & 1) * NUM_RANKS * size
    for first in range(program * BLOCK, WORDS, tl.num_programs(0) * BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        own = tl.load(source + offsets, mask=offsets < WORDS, other=0)
        for step in tl.static_range(1, NUM_RANKS):
            there = words_of(words, peer_words, (rank + step) % NUM_RANKS)
            put_words(there + turn + rank * size + offsets, sent(own, call))
        tl.store(out + rank * WORDS + offsets, own, mask=offsets < WORDS)
    for first in range(program * BLOCK, WORDS, tl.num_programs(0) * BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        for step in tl.static_range(1, NUM_RANKS):
            peer = (rank + step) % NUM_RANKS
            data = arrived(words + turn + peer * size + offsets, call, NUMBERED)
            tl.store(out + peer * WORDS + offsets, data, mask=offsets < WORDS)
    tl.store(calls + program, call)


@triton.jit
def gather_first(
    source,
    out,
    words,
    peer_words,
    calls,
    gathered,
    rank,
    WORDS: tl.constexpr,
    BLOCK: tl.constexpr,
    NUM_RANKS: tl.constexpr,
    NUMBERED: tl.constexpr,
):
    """The prologue of a kernel: `words_gather` by all its programs. Each program waits until all have finished their blocks;
    `gathered` counts them, over all calls."""
    words_gather(source, out, words, peer_words, calls, rank, WORDS, BLOCK, NUM_RANKS, NUMBERED)
    count_up(gathered)
    wait_use(gathered, tl.load(calls + tl.program_id(0)).to(tl.int32) * tl.num_programs(0))


@triton.jit(do_not_specialize=["rank"])
def words_reduce(
    source,
    out,
    words,
    peer_words,
    calls,
    rank,
    WORDS: tl.constexpr,
    BLOCK: tl.constexpr,
    NUM_RANKS: tl.constexpr,
    NUMBERED: tl.constexpr,
    DTYPE: tl.constexpr,
    SCATTER: tl.constexpr,
    GATHER: tl.constexpr,
):
    """all_reduce: `out` is the sum over all ranks of `source`, WORDS words of data.

    With SCATTER, reduce_scatter: the sum of the own part only. With GATHER in addition, each rank sends the sum of its part
    to all others (a two-shot all_reduce).
    """
    program, size = tl.program_id(0), tl.cdiv(WORDS, BLOCK) * BLOCK
    call = tl.load(calls + program).to(tl.int32) + 1
    turn = (call & 1) * (2 if GATHER else 1) * NUM_RANKS * size
    sums_turn = turn + NUM_RANKS * size
    for first in range(program * BLOCK, WORDS, tl.num_programs(0) * BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        for step in tl.static_range(1, NUM_RANKS):
            peer = (rank + step) % NUM_RANKS
            part = peer * WORDS if SCATTER else 0
            summand = tl.load(source + part + offsets, mask=offsets < WORDS, other=0)
            put_words(words_of(words, peer_words, peer) + turn + rank * size + offsets, sent(summand, call))
    for first in range(program * BLOCK, WORDS, tl.num_programs(0) * BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        part = rank * WORDS if SCATTER else 0
        own = tl.load(source + part + offsets, mask=offsets < WORDS, other=0)
        here = words + turn + offsets
        # the same order on all ranks: their sums are equal bit by bit
        sums = elements_of(own_or_arrived(own, rank == 0, here, call, NUMBERED), DTYPE)
        for peer in tl.static_range(1, NUM_RANKS):
            data = own_or_arrived(own, rank == peer, here + peer * size, call, NUMBERED)
            sums = added(sums, elements_of(data, DTYPE))
        total = data_of(sums, DTYPE)
        tl.store(out + (part if GATHER else 0) + offsets, total, mask=offsets < WORDS)
        if GATHER:
            for step in tl.static_range(1, NUM_RANKS):
                there = words_of(words, peer_words, (rank + step) % NUM_RANKS)
                put_words(there + sums_turn + rank * size + offsets, sent(total, call))
    if GATHER:
        for first in range(program * BLOCK, WORDS, tl.num_programs(0) * BLOCK):
            offsets = first + tl.arange(0, BLOCK)
            for step in tl.static_range(1, NUM_RANKS):
                peer = (rank + step) % NUM_RANKS
                data = arrived(words + sums_turn + peer * size + offsets, call, NUMBERED)
                tl.store(out + peer * WORDS + offsets, data, mask=offsets < WORDS)
    tl.store(calls + program, call)
