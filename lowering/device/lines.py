"""Lines: packets of 128 bytes, 15 words of data and one with the number of the call, which arrive together.

Eight threads of a warp store a line by one instruction, 16 bytes each, and load it so. PTX promises no more than each word.
NVIDIA GPUs and NVLink take a line for one access, which is what NCCL's protocol of this name relies on. That the threads of
a line are those of one warp, and follow each other, is checked where a kernel is compiled (`tilelink/compiled/lines.py`).

Registers hold 16 words for each line, of which the last one is no data: so tiles that go through lines have gaps.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from lowering.device.packets import data_of_tile, tile_of_data


@triton.jit
def cols_in_lines(first, SIZE: tl.constexpr, ELEMENTS: tl.constexpr, PLACES: tl.constexpr):
    """Numbers of the columns that SIZE places stand for, from `first` on, as a row: PLACES have ELEMENTS. Where these are fewer,
    the last ones have those behind."""
    place = tl.arange(0, SIZE)
    return first + (place // PLACES * ELEMENTS + place % PLACES)[None, :]


@triton.jit
def holds_data(SIZE: tl.constexpr, ELEMENTS: tl.constexpr, PLACES: tl.constexpr):
    """Whether a place is no gap, as a row."""
    return (tl.arange(0, SIZE) % PLACES < ELEMENTS)[None, :]


@triton.jit
def halves_of(words):
    """Even and odd ones of the words of each row."""
    return tl.split(tl.reshape(words, (words.shape[0], words.shape[1] // 2, 2)))


@triton.jit
def put_pieces(pieces, low, high):
    """Store pieces of 16 bytes, on this rank or a peer."""
    tl.inline_asm_elementwise(
        "st.relaxed.sys.global.v2.b64 [$1], {$2, $3}; mov.u32 $0, 0;",
        "=r,l,l,l",
        [pieces.to(tl.int64), low, high],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def put_pieces_where(pieces, low, high, mask):
    """Store those of the pieces whose `mask` is set."""
    tl.inline_asm_elementwise(
        "{ .reg .pred there; setp.ne.s32 there, $4, 0; @there st.relaxed.sys.global.v2.b64 [$1], {$2, $3}; "
        "mov.u32 $0, 0; }",
        "=r,l,l,l,r",
        [pieces.to(tl.int64), low, high, mask.to(tl.int32)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def get_pieces(pieces, mask):
    """Low and high words of pieces of 16 bytes: those that exist."""
    if mask is None:
        return tl.inline_asm_elementwise(
            "ld.relaxed.sys.global.v2.b64 {$0, $1}, [$2];",
            "=l,=l,l",
            [pieces.to(tl.int64)],
            dtype=(tl.int64, tl.int64),
            is_pure=False,
            pack=1,
        )
    else:
        return tl.inline_asm_elementwise(
            "{ .reg .pred there; setp.ne.s32 there, $3, 0; mov.u64 $0, 0; mov.u64 $1, 0; "
            "@there ld.relaxed.sys.global.v2.b64 {$0, $1}, [$2]; }",
            "=&l,=&l,l,r",
            [pieces.to(tl.int64), mask.to(tl.int32)],
            dtype=(tl.int64, tl.int64),
            is_pure=False,
            pack=1,
        )


@triton.jit
def is_last(pieces):
    """Whether pieces are the last ones of their lines, whose high word is no data."""
    return (tl.arange(0, pieces.shape[1]) % 8 == 7)[None, :]


@triton.jit
def put_lines(pieces, tile, call, DTYPE: tl.constexpr, COUNT: tl.constexpr, mask=None):
    """Store a tile of elements of DTYPE, COUNT in a word, with gaps, in lines."""
    low, high = halves_of(data_of_tile(tile, DTYPE, COUNT))
    high = tl.where(is_last(high), tl.full(high.shape, 0, tl.int64) + call, high)
    if mask is None:
        put_pieces(pieces, low, high)
    else:
        put_pieces_where(pieces, low, high, mask)


@triton.jit
def take_lines(pieces, call, DTYPE: tl.constexpr, COUNT: tl.constexpr, mask=None):
    """The tile of elements in `pieces`, with gaps, after a wait until all lines have arrived in this call; gaps hold anything."""
    low, high = take_pieces(pieces, call, mask)
    return tile_of_data(words_of(low, high), DTYPE, COUNT)


@triton.jit
def own_or_lines(own, is_own, pieces, call, DTYPE: tl.constexpr, COUNT: tl.constexpr, mask=None):
    """The tile `own`, rounded to DTYPE, if `is_own`; else the tile in `pieces`, after a wait until all of it has arrived."""
    others = tl.full(pieces.shape, 1, tl.int1) & (is_own == 0)  # no branch: the compiler fails on it
    taken = take_pieces(pieces, call, others if mask is None else others & mask)
    low, high = halves_of(data_of_tile(own, DTYPE, COUNT))
    low, high = tl.where(is_own, low, taken[0]), tl.where(is_own, high, taken[1])
    return tile_of_data(words_of(low, high), DTYPE, COUNT)


@triton.jit
def words_of(low, high):
    """Words of each row, which are even and odd ones in turn."""
    return tl.reshape(tl.join(low, high), (low.shape[0], low.shape[1] * 2))


@triton.jit
def take_pieces(pieces, call, mask):
    """Low and high words, after a wait until all lines have arrived in this call."""
    low, high = get_pieces(pieces, mask)
    while lines_missing(high, call, mask) > 0:
        low, high = get_pieces(pieces, mask)
    return low, high


@triton.jit
def lines_missing(high, call, mask):
    """1 if one of the lines that exist has not arrived in call number `call`, else 0."""
    missing = is_last(high) & (high != call)
    return tl.max((missing if mask is None else missing & mask).to(tl.int32))
