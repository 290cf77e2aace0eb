"""Which rank a kernel runs on, and where peers have what it has: read from the table of its process.

The table holds int64 words: rank, num_ranks, first byte and size of this rank's heap, its multicast address or 0, the
address of the words for barriers; from word `FIRST_SHIFT` on, for each rank, how many bytes its heap is behind this one's.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from tilelink.compat.triton_dist.kernels import state_address

RANK = tl.constexpr(0)
NUM_RANKS = tl.constexpr(1)
HEAP = tl.constexpr(2)
HEAP_BYTES = tl.constexpr(3)
MULTICAST = tl.constexpr(4)
MEETING_WORDS = tl.constexpr(5)
FIRST_SHIFT = tl.constexpr(8)


@triton.jit
def state(word):
    """A word of the table, int64."""
    return tl.load(state_address().to(tl.pointer_type(tl.int64)) + word)


@triton.jit
def this_rank():
    return state(RANK).to(tl.int32)


@triton.jit
def count_ranks():
    return state(NUM_RANKS).to(tl.int32)


@triton.jit
def in_heap(address):
    """Whether an int64 address lies in this rank's heap."""
    start = state(HEAP)
    return (address >= start) & (address < start + state(HEAP_BYTES))


@triton.jit
def address_at(address, rank):
    """An int64 address of this rank's heap on `rank`; 0 for one that is not in the heap."""
    return tl.where(in_heap(address), address + state(FIRST_SHIFT + rank), 0)


@triton.jit
def pointer_at(ptr, rank):
    """`ptr` on `rank`, as aligned as it is here; the null pointer for one that is not in the heap."""
    size: tl.constexpr = ptr.dtype.element_ty.primitive_bitwidth // 8
    here = ptr.to(tl.int64)
    shift = tl.where(in_heap(here), state(FIRST_SHIFT + rank), -here) // size
    return ptr + tl.multiple_of(shift, 16)  # heaps begin at multiples of far more than 16 elements


@triton.jit
def multicast_address(address):
    """The multicast address of an int64 address of the heap; 0 without multicast."""
    multicast = state(MULTICAST)
    return tl.where(in_heap(address) & (multicast != 0), address - state(HEAP) + multicast, 0)
