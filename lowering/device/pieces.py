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
