"""Tiles that leave for peers in pieces, spread over as long as a product takes: stores that fill a link hold up the loads of the
SM that issues them, by which the other warpgroup computes; those that the link takes as they come do not."""

# mypy: ignore-errors
from __future__ import annotations

import triton.experimental.gluon.language as gl
from triton.experimental import gluon
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, tma

from lowering.device.places import told_place
from lowering.device.turns import cycles


@gluon.jit
def until(begun, clocks):
    """Let `clocks` clocks pass since `begun`."""
    while cycles() - begun < clocks:
        gl.inline_asm_elementwise("nanosleep.u32 40; mov.u32 $0, 0;", "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def slice_leaves(value, leaving, GROUP: gl.constexpr):
    """Put a slice where the warpgroup's pieces leave from, once those of the slice before have left.

    value [rows, cols]; `leaving` [pieces of all groups, rows of a piece, cols]."""
    gl.thread_barrier()  # the thread that sends has waited for them, and the others for it
    GROUPS: gl.constexpr = leaving.shape[0] * leaving.shape[1] // value.shape[0]
    slices = leaving._reinterpret(leaving.dtype, [GROUPS, value.shape[0], leaving.shape[2]], leaving.layout)
    slices.index(GROUP).store(value.to(leaving.dtype))
    fence_async_shared()
    gl.thread_barrier()


@gluon.jit
def send_piece(there, number, row, col, piece):
    """Store a piece through descriptor `number` of `there`."""
    for one in gl.static_range(len(there)):
        if number == one:
            tma.async_copy_shared_to_global(there[one], [row, col], piece)


@gluon.jit
def send_slice(value, leaving, there, peer, row, col, begun, number, clocks, GROUP: gl.constexpr):
    """Store slice `number` of a tile at `peer`, a piece each `clocks` clocks, counted from when the tile was `begun`."""
    PIECES: gl.constexpr = value.shape[0] // leaving.shape[1]
    slice_leaves(value, leaving, GROUP)
    for piece in range(PIECES):
        until(begun, (number * PIECES + piece) * clocks)
        send_piece(there, peer, row + piece * leaving.shape[1], col, leaving.index(GROUP * PIECES + piece))
        tma.store_wait(0)  # it has left the SM


@gluon.jit
def send_slice_to_all(
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
    """`send_slice` at every rank, this one too, each piece at all of them: not all ranks begin with the same one. Of pools,
    `there` has a descriptor for each place of each rank, and `places` are the words that tell in which one."""
    PIECES: gl.constexpr = value.shape[0] // leaving.shape[1]
    slice_leaves(value, leaving, GROUP)
    for piece in range(PIECES):
        until(begun, (number * PIECES + piece) * clocks)
        for step in range(RANKS):
            peer = (rank + step) % RANKS
            if places is not None:
                peer += told_place(places + peer) * RANKS
            send_piece(there, peer, row + piece * leaving.shape[1], col, leaving.index(GROUP * PIECES + piece))
        tma.store_wait(0)  # it has left the SM


@gluon.jit
def pieces_sent():
    """All pieces that the warpgroup has sent are where they belong."""
    gl.inline_asm_elementwise(
        "cp.async.bulk.wait_group 0; mov.u32 $0, 0;", "=r", [], dtype=gl.int32, is_pure=False, pack=1
    )
