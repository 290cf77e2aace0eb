"""Packets to all ranks by one store, which the switch carries out at each of them (`multimem` of PTX).

A packet is a scalar of 64 bits, so that each rank gets it whole: PTX takes the elements of a vector for accesses of their own.
A packet tells of itself alone, whenever it comes to a rank.

Packets are loaded and cleared at the own address of their buffer, which is another one for the same memory. That a packet is
cleared before the next one comes to its place, which is sent when later packets have told of that, is taken for granted, as it
is of stores to peers. PTX has a fence between accesses by two addresses (`fence.proxy.alias`), which nothing here uses. No GPU
has run these stores.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from lowering.device.packets import data_of_tile, packets_of


@triton.jit
def on_every_rank(address, DTYPE: tl.constexpr):
    """First element of a symmetric buffer on all ranks at once, for the stores below; `address` holds its multicast address."""
    return tl.multiple_of(tl.load(address).to(tl.pointer_type(DTYPE)), 16)


@triton.jit
def multicast_words(words, packets):
    """Store whole words on all ranks."""
    tl.inline_asm_elementwise(
        "multimem.st.relaxed.sys.global.b64 [$1], $2; mov.u32 $0, 0;",
        "=r,l,l",
        [words.to(tl.int64), packets],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def multicast_words_where(words, packets, mask):
    """Store those of the words whose `mask` is set on all ranks."""
    tl.inline_asm_elementwise(
        "{ .reg .pred there; setp.ne.s32 there, $3, 0; @there multimem.st.relaxed.sys.global.b64 [$1], $2; "
        "mov.u32 $0, 0; }",
        "=r,l,l,r",
        [words.to(tl.int64), packets, mask.to(tl.int32)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def multicast_packets(words, tile, call, DTYPE: tl.constexpr, COUNT: tl.constexpr, NUMBERED: tl.constexpr, mask=None):
    """Store a tile of elements of DTYPE, COUNT in a packet, at the same place of all ranks, this one too."""
    packets = packets_of(data_of_tile(tile, DTYPE, COUNT), call, NUMBERED)
    if mask is None:
        multicast_words(words, packets)
    else:
        multicast_words_where(words, packets, mask)
