"""What travels in words of 64 bits that say themselves that they have arrived. A word is stored and loaded in one piece; there
is nothing to order.

LL: 32 bits of data, and 32 that number the call. Lamport: 64 bits of data, and a word of 0 is empty; who has read a word
empties it for the call after the next one. Data are inverted on their way, so that words of four zeros are not empty; those
that still would be are NaNs in all their elements, and become other NaNs.

Two sets of words take turns. A kernel of the second call after this one begins only when its peers have begun the next one,
and so have read the words of this one: in each call every rank waits for words of every peer.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from lowering.device.counts import count_up
from lowering.device.signals import wait_use, words_of


@triton.jit
def put_words(words, value):
    """Store whole words, here or at a peer."""
    tl.atomic_xchg(words, value, sem="relaxed", scope="sys")


@triton.jit
def get_words(words):
    """Load whole words as they are now."""
    return tl.atomic_add(words, tl.zeros(words.shape, tl.int64), sem="relaxed", scope="sys")


@triton.jit
def sent(data, call):
    """Words that carry `data`: int32, in call number `call` (LL), or int64 (Lamport)."""
    if data.dtype == tl.int32:
        return (call.to(tl.int64) << 32) | (data.to(tl.int64) & 0xFFFFFFFF)
    else:
        return tl.where(data == -1, -(2**63), ~data)


@triton.jit
def missing(found, call, NUMBERED: tl.constexpr):
    """Whether words are not those of call number `call` yet."""
    if NUMBERED:
        return ((found >> 32).to(tl.int32) != call).to(tl.int32)
    else:
        return (found == 0).to(tl.int32)


@triton.jit
def taken(words, found, NUMBERED: tl.constexpr):
    """The data of the words that were found, which are emptied if they are not numbered."""
    if NUMBERED:
        return found.to(tl.int32)
    else:
        put_words(words, tl.zeros(words.shape, tl.int64))
        return ~found


@triton.jit
def arrived(words, call, NUMBERED: tl.constexpr, where=1):
    """The data of `words` once all of them are of call number `call`, or those where `where` is not 0. All threads of the
    program come out together."""
    found = get_words(words)
    while tl.max(missing(found, call, NUMBERED) * where, axis=0) > 0:
        found = get_words(words)
    return taken(words, found, NUMBERED)


@triton.jit
def own_or_arrived(own, is_own, words, call, NUMBERED: tl.constexpr):
    """`own` where it is that, else the data of `words` once they are there."""
    data = own
    if not is_own:
        data = arrived(words, call, NUMBERED)
    return data


@triton.jit
def element_of(data, SHIFT: tl.constexpr, DTYPE: tl.constexpr):
    """The element of DTYPE that begins at bit SHIFT of each word of `data`, as fp32."""
    if tl.float32 == DTYPE:
        return (data >> SHIFT).to(tl.int32).to(tl.float32, bitcast=True)
    else:
        return (data >> SHIFT).to(tl.int16).to(DTYPE, bitcast=True).to(tl.float32)


@triton.jit
def elements_of(data, DTYPE: tl.constexpr):
    """All elements of the words of `data`, as fp32: one tensor for each that a word holds."""
    BITS: tl.constexpr = DTYPE.primitive_bitwidth
    found = (element_of(data, 0, DTYPE),)
    for number in tl.static_range(1, data.dtype.primitive_bitwidth // BITS):
        found = found + (element_of(data, number * BITS, DTYPE),)
    return found


@triton.jit
def data_of(elements, DTYPE: tl.constexpr):
    """Words of data that hold the `elements`, tensors in fp32, rounded to DTYPE."""
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
    """Each of `sums` and the element of the same number."""
    found = (sums[0] + elements[0],)
    for number in tl.static_range(1, len(elements)):
        found = found + (sums[number] + elements[number],)
    return found


@triton.jit
def tile_data(tile, DTYPE: tl.constexpr, NUMBERED: tl.constexpr):
    """Words of data of a tile in fp32, rounded to DTYPE, row after row."""
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
    """The tile whose rows of words hold `elements`, in fp32."""
    if len(elements) == 1:
        return tl.reshape(elements[0], shape)
    elif len(elements) == 2:
        return tl.reshape(tl.join(elements[0], elements[1]), shape)
    else:
        even, odd = tl.join(elements[0], elements[2]), tl.join(elements[1], elements[3])
        return tl.reshape(tl.join(even, odd), shape)


@triton.jit
def of_rank(found, peer: tl.constexpr, rank):
    """What is of `peer` in what was `found` of `rank`, the rank after it, and so on."""
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
    """The sum over ranks of tile `number` of TILES, in fp32, rounded to DTYPE before.

    With a SHARE, element number `first` and those after it along dimension DIM, of a tensor of which each rank gets so many:
    nothing else is added on this rank than what belongs to it. With GATHER each rank adds an equal share of the words, and
    sends the sums, rounded to DTYPE, to all.
    """
    own = tile_data(tile, DTYPE, NUMBERED)
    SIZE: tl.constexpr = own.shape[0]
    ROW: tl.constexpr = SIZE // tile.shape[0]
    SENDER: tl.constexpr = TILES * SIZE  # words of one
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
        there = words + rank * SENDER + place  # what is for no peer goes to a place here that nobody reads
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
    # in one order on all ranks: where each of them adds, all have the same bits
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
    """`out` = `source` of every rank, WORDS words of data each; `calls` numbers the calls, for each program by itself."""
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
    """`words_gather` by all programs of a kernel, none of which goes on before all have done their blocks: `gathered` counts
    these, in all calls."""
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
    """`out` = the sum over ranks of `source`, WORDS words of data; with SCATTER, of the part of it that is this rank's; with
    GATHER as well, of every rank's part, sent by the rank that has added it."""
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
        # in one order on all ranks: where each of them adds, all have the same bits
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
