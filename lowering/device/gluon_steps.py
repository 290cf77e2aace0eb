"""What kernels of steps in Gluon use beside turns and pieces: helpers with explicit layouts, stores in pieces at all ranks."""

# mypy: ignore-errors
from __future__ import annotations

import triton.experimental.gluon.language as gl
from triton.experimental import gluon
from triton.experimental.gluon.language.nvidia.hopper import tma

from lowering.device.pieces import send_piece, slice_leaves, until
from lowering.device.turns import each_of, program_barrier


@gluon.jit
def slice_rows(first, ROWS: gl.constexpr, LAYOUT: gl.constexpr):
    """Numbers of ROWS rows from `first` on, as a column of a slice in LAYOUT."""
    return (first + gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT)))[:, None]


@gluon.jit
def slice_cols(first, COLS: gl.constexpr, LAYOUT: gl.constexpr):
    """Numbers of COLS columns from `first` on, as a row of a slice in LAYOUT."""
    return (first + gl.arange(0, COLS, gl.SliceLayout(0, LAYOUT)))[None, :]


@gluon.jit
def wait_ranks(signals, value, STRIDE: gl.constexpr, NUM_RANKS: gl.constexpr):
    """Block until every rank, this one included, has raised its word to `value`; the word of rank r is `signals + r * STRIDE`.

    All data that the raising programs had stored or acquired may be loaded afterwards.
    """
    ranks = each_of(NUM_RANKS)
    late = gl.to_tensor(1)
    while late > 0:
        raised = gl.atomic_add(
            signals + ranks * STRIDE, gl.zeros_like(ranks), mask=ranks < NUM_RANKS, sem="acquire", scope="sys"
        )
        late = gl.max(gl.where(ranks < NUM_RANKS, value - raised, 0), axis=0)
    program_barrier()  # one thread has acquired each word; now all threads may load


@gluon.jit
def store_at_ranks(peer_numbers, place, value, NUM_RANKS: gl.constexpr):
    """Store a number of 64 bits at every rank, as element `place` of a buffer; `peer_numbers` is its table of addresses."""
    ranks = each_of(NUM_RANKS)
    there = gl.load(peer_numbers + ranks, mask=ranks < NUM_RANKS).to(gl.pointer_type(gl.int64))
    gl.store(there + place, value, mask=ranks < NUM_RANKS)


@gluon.jit
def notify_peers(peer_words, word, value, rank, NUM_RANKS: gl.constexpr):
    """Raise word `word` of every peer to `value`: publishes all stores of this warpgroup and all data it has acquired."""
    ranks = each_of(NUM_RANKS)
    peers = (ranks < NUM_RANKS) & (ranks != rank)
    there = gl.load(peer_words + ranks, mask=peers).to(gl.pointer_type(gl.int32))
    program_barrier()
    gl.atomic_xchg(there + word, gl.full_like(ranks, value), mask=peers, sem="release", scope="sys")


@gluon.jit
def send_slice_to_ranks(
    value,
    leaving,
    there,
    rank,
    row,
    col,
    begun,
    number,
    clocks,
    GROUP: gl.constexpr,
    RANKS: gl.constexpr,
    places=None,
):
    """Store slice `number` of a tile at every rank, this one included, one piece every `clocks` clocks from time `begun` on.

    Each piece goes to all ranks, in an order rotated by the own rank. For outputs in a pool, `there` has one descriptor
    for each place of each rank, and element r of `places` is the number of the place on rank r.
    """
    PIECES: gl.constexpr = value.shape[0] // leaving.shape[1]
    slice_leaves(value, leaving, GROUP)
    for piece in range(PIECES):
        until(begun, (number * PIECES + piece) * clocks)
        for step in range(RANKS):
            peer = (rank + step) % RANKS
            if places is not None:
                peer += gl.load(places + peer).to(gl.int32) * RANKS
            send_piece(there, peer, row + piece * leaving.shape[1], col, leaving.index(GROUP * PIECES + piece))
        tma.store_wait(0)  # the piece has left the SM


@gluon.jit
def clear_counts(counts, NUM_COUNTS: gl.constexpr, BLOCK: gl.constexpr):
    """Set the counts of this rank to 0 for the next call; every other program of the call has ended."""
    offsets = each_of(BLOCK)
    gl.store(counts + offsets, gl.zeros_like(offsets), mask=offsets < NUM_COUNTS)


@gluon.jit
def take_off(words, each, WORDS: gl.constexpr, BLOCK: gl.constexpr):
    """Take off WORDS words what a call adds to each of them; nobody waits for them any more in this call."""
    offsets = each_of(BLOCK)
    gl.atomic_add(words + offsets, gl.zeros_like(offsets) - each, mask=offsets < WORDS, sem="relaxed", scope="sys")
