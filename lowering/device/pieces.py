"""Paced stores to peers. A tile leaves in pieces, spread over the time of one product. A burst of stores would fill the link
and stall the loads of the same SM, on which the other consumer warpgroup depends.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton.experimental.gluon.language as gl
from triton.experimental import gluon
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, tma

from lowering.device.turns import cycles


@gluon.jit
def slice_rows(first, ROWS: gl.constexpr, LAYOUT: gl.constexpr):
    """Numbers of ROWS rows from `first` on, as a column of a slice in LAYOUT."""
    return (first + gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT)))[:, None]


@gluon.jit
def slice_cols(first, COLS: gl.constexpr, LAYOUT: gl.constexpr):
    """Numbers of COLS columns from `first` on, as a row of a slice in LAYOUT."""
    return (first + gl.arange(0, COLS, gl.SliceLayout(0, LAYOUT)))[None, :]


@gluon.jit
def until(begun, clocks):
    """Wait until `clocks` clocks have passed since `begun`."""
    while cycles() - begun < clocks:
        gl.inline_asm_elementwise("nanosleep.u32 40; mov.u32 $0, 0;", "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def slice_leaves(value, leaving, GROUP: gl.constexpr):
    """Store a slice into the staging buffer of this warpgroup, once the pieces of the slice before have left it.

    value [rows, cols]; leaving [pieces of all warpgroups, rows of a piece, cols] in shared memory.
    """
    gl.thread_barrier()  # the sending thread has waited for its stores; the others wait for that thread
    GROUPS: gl.constexpr = leaving.shape[0] * leaving.shape[1] // value.shape[0]
    slices = leaving._reinterpret(leaving.dtype, [GROUPS, value.shape[0], leaving.shape[2]], leaving.layout)
    slices.index(GROUP).store(value.to(leaving.dtype))
    fence_async_shared()
    gl.thread_barrier()


@gluon.jit
def send_piece(there, number, row, col, piece):
    """Store a piece through descriptor `number` of the tuple `there`."""
    for one in gl.static_range(len(there)):
        if number == one:
            tma.async_copy_shared_to_global(there[one], [row, col], piece)


@gluon.jit
def send_slice(value, leaving, there, peer, row, col, begun, number, clocks, GROUP: gl.constexpr):
    """Store slice `number` of a tile at `peer`, one piece every `clocks` clocks from time `begun` on."""
    PIECES: gl.constexpr = value.shape[0] // leaving.shape[1]
    slice_leaves(value, leaving, GROUP)
    for piece in range(PIECES):
        until(begun, (number * PIECES + piece) * clocks)
        send_piece(there, peer, row + piece * leaving.shape[1], col, leaving.index(GROUP * PIECES + piece))
        tma.store_wait(0)  # the piece has left the SM


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
