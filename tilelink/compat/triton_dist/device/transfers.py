"""How bytes and signals of `libshmem_device` move over peer addresses: the program's threads copy, thread 0 signals.

A put is done when the call returns, as far as this program's own fences are concerned: `quiet` and `fence` are a fence at
system scope by every thread. `_nbi`, `_warp` and per-thread variants are the same copy by the whole program.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from tilelink.compat.triton_dist.device import peers, words

SIGNAL_ADD = tl.constexpr(10)
WORDS_AT_ONCE = tl.constexpr(1024)  # of 8 bytes, by one round of the program's threads
HOST_SLOT = tl.constexpr(0)  # meetings that the host launches
DEVICE_SLOT = tl.constexpr(1)  # meetings of kernels
GRID_SLOT = tl.constexpr(2)
SLOT_WORDS = tl.constexpr(128)  # a word for each rank, then the number of the last meeting
LAST_MEETING = tl.constexpr(127)


@triton.jit
def _copy_words(dest, source, num_bytes):
    """All three multiples of 16: 16 bytes a thread."""
    count = tl.multiple_of(num_bytes // 8, 2)
    into = tl.multiple_of(dest.to(tl.pointer_type(tl.int64)), 16)
    out_of = tl.multiple_of(source.to(tl.pointer_type(tl.int64)), 16)
    lanes = tl.arange(0, WORDS_AT_ONCE)
    for start in range(0, count, WORDS_AT_ONCE):
        mask = start + lanes < count
        tl.store(into + start + lanes, tl.load(out_of + start + lanes, mask=mask), mask=mask)


@triton.jit
def _copy_bytes(dest, source, num_bytes):
    lanes = tl.arange(0, WORDS_AT_ONCE)
    into = dest.to(tl.pointer_type(tl.int8))
    out_of = source.to(tl.pointer_type(tl.int8))
    for start in range(0, num_bytes, WORDS_AT_ONCE):
        mask = start + lanes < num_bytes
        tl.store(into + start + lanes, tl.load(out_of + start + lanes, mask=mask), mask=mask)


@triton.jit
def copy(dest, source, num_bytes):
    """`num_bytes` from address `source` to address `dest` (int64), 16 bytes a thread where all three allow it."""
    if ((dest | source | num_bytes) & 15) == 0:
        _copy_words(dest, source, num_bytes)
    else:
        _copy_bytes(dest, source, num_bytes)


@triton.jit
def address_of(ptr):
    """A pointer, or an address as an integer, as int64."""
    return ptr.to(tl.int64)


@triton.jit
def put(dest, source, num_bytes, pe):
    """Copy to `dest` at `pe`."""
    copy(peers.address_at(address_of(dest), pe), address_of(source), tl.full((), num_bytes, tl.int64))


@triton.jit
def get(dest, source, num_bytes, pe):
    """Copy from `source` at `pe`; all threads meet, so that each sees what the others copied."""
    copy(address_of(dest), peers.address_at(address_of(source), pe), tl.full((), num_bytes, tl.int64))
    words.meet()


@triton.jit
def raise_signal(sig_addr, signal, sig_op, pe):
    """Thread 0: a fence at system scope, then the 64-bit word at `pe` is set, or added to; no CTA barrier before."""
    word = peers.address_at(address_of(sig_addr), pe).to(tl.pointer_type(tl.int64))
    if sig_op == SIGNAL_ADD:
        words.notify(word, signal, "add", "intra_node")
    else:
        words.notify(word, signal, "set", "intra_node")


@triton.jit
def put_with_signal(dest, source, num_bytes, sig_addr, signal, sig_op, pe):
    """Copy to `pe`, then raise the signal there, behind the copies of all threads."""
    put(dest, source, num_bytes, pe)
    words.meet()
    raise_signal(sig_addr, signal, sig_op, pe)


@triton.jit
def meeting_words(slot):
    return (peers.state(peers.MEETING_WORDS)).to(tl.pointer_type(tl.int64)) + slot * SLOT_WORDS


@triton.jit
def meet_ranks(slot):
    """One program of each rank meets those of all others; what was stored before it can be loaded behind it.

    Rank r's word of a slot holds the number of the meeting that r has come to. The numbers only grow and are kept in device
    memory, so nothing is reset and nothing is baked into a CUDA graph.
    """
    words.meet()
    own = meeting_words(slot)
    rank, num_ranks = peers.this_rank(), peers.count_ranks()
    meeting = words.load(own + LAST_MEETING, "gpu", "relaxed") + 1
    for step in range(0, num_ranks):
        peer = (rank + step) % num_ranks
        words.notify(peers.pointer_at(own, peer) + rank, meeting, "set", "intra_node")
    for peer in range(0, num_ranks):
        words.until(own + peer, meeting, "sys", 5)
    words.meet()
    words.store(own + LAST_MEETING, meeting, "gpu", "relaxed")
    words.meet()


@triton.jit
def broadcast(dest, source, num_bytes, root):
    """`num_bytes` of the root's `source` to `dest` on every rank; all ranks meet behind it."""
    if peers.this_rank() == root:
        for peer in range(0, peers.count_ranks()):
            put(dest, source, num_bytes, peer)
    meet_ranks(DEVICE_SLOT)


@triton.jit
def collect(dest, source, num_bytes):
    """`num_bytes` of each rank's `source` one behind the other to `dest` on every rank; all ranks meet behind it."""
    rank = peers.this_rank()
    here = address_of(dest) + rank.to(tl.int64) * num_bytes
    for peer in range(0, peers.count_ranks()):
        put(here, source, num_bytes, peer)
    meet_ranks(DEVICE_SLOT)
