"""Kernels that are timed: a copy to or from peers by some programs, and two programs that pass a word to and fro."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def copy_parts(local, peers, blocks, PEERS: tl.constexpr, PUSH: tl.constexpr, BLOCK: tl.constexpr):
    """Copy a part of `blocks` blocks to each of PEERS peers, or from each; programs take blocks in turn, a peer after the other.

    `local` [PEERS * blocks * BLOCK] int32 is this rank's side, `peers` [PEERS] int64 the addresses of the others', in the order
    of ranks behind this one. A part has the place PEERS - 1 - p on the side of peer p: there, too, each peer has one of its own.
    """
    for block in range(tl.program_id(0), blocks * PEERS, tl.num_programs(0)):
        part = block % PEERS
        peer = tl.multiple_of(tl.load(peers + part).to(tl.pointer_type(tl.int32)), 16)
        offsets = tl.arange(0, BLOCK)
        here = local + (part * blocks + block // PEERS) * BLOCK + offsets
        there = peer + ((PEERS - 1 - part) * blocks + block // PEERS) * BLOCK + offsets
        if PUSH:
            tl.store(there, tl.load(here))
        else:
            tl.store(here, tl.load(there))


@triton.jit
def _raise(word, value, ATOMIC: tl.constexpr):
    """Set a word of the peer, which carries nothing but itself."""
    if ATOMIC:
        tl.atomic_xchg(word, value, sem="release", scope="sys")
    else:  # links without atomics carry plain stores; the barrier keeps this one in front of the polls
        tl.store(word, value)
        tl.debug_barrier()


@triton.jit(do_not_specialize=["rounds", "polls"])
def ping_pong(own, pointers, peer, state, rounds, polls, FIRST: tl.constexpr, ATOMIC: tl.constexpr):
    """Pass a word to `peer` and back, `rounds` times; one program on each of both ranks, FIRST on one of them.

    `own` is the word that the peer raises, `pointers` [ranks] int64 the addresses of such words on all ranks. `state` [2] int32
    is kept between launches: rounds that were begun, and 1 once a word did not come within `polls` polls. From then on this and
    all later launches end at once.
    """
    far = tl.load(pointers + peer).to(tl.pointer_type(tl.int32))
    begun = tl.load(state)
    lost = tl.load(state + 1)
    turn = tl.full((), 0, tl.int32)
    while (turn < rounds) & (lost == 0):
        turn += 1
        if FIRST:
            _raise(far, begun + turn, ATOMIC)
        missing = tl.full((), 1, tl.int32)
        left = polls
        while (missing > 0) & (left > 0):
            # a signed difference: words may wrap around
            missing = begun + turn - tl.atomic_add(own, 0, sem="acquire", scope="sys")
            left -= 1
        lost = (missing > 0).to(tl.int32)
        if not FIRST:  # noqa: SIM102  # decided by the compiler
            if lost == 0:
                _raise(far, begun + turn, ATOMIC)
    tl.store(state, begun + rounds)
    tl.store(state + 1, lost)
