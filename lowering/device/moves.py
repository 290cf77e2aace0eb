"""A warp beside groups that compute pushes rows to peers through shared memory. It does so in small pieces: loads of the same SM
stand behind its stores, and a burst of stores would hold them up until the link has carried it."""

# mypy: ignore-errors
from __future__ import annotations

import triton.experimental.gluon.language as gl
from triton.experimental import gluon
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

from lowering.device.pieces import send_piece, until
from lowering.device.turns import cycles


@gluon.jit
def piece_barrier():
    """The barrier at which a piece arrives."""
    loaded = gl.allocate_shared_memory(gl.int64, [1, 1], mbarrier.MBarrierLayout())
    mbarrier.init(loaded.index(0), count=1)
    fence_async_shared()  # asynchronous loads arrive there
    return loaded


@gluon.jit
def move_rows(
    desc, row, col, there, peer, row_there, col_there, pieces, loaded, number, ROWS: gl.constexpr, PACE: gl.constexpr
):
    """Move ROWS rows from `row` on to `peer`, a piece every PACE clocks; `number` times as many have been moved before.

    pieces [rows of a piece, columns] in shared memory. A flush has to follow before anybody is told.
    """
    PIECE: gl.constexpr = pieces.shape[0]
    COUNT: gl.constexpr = ROWS // PIECE
    for piece in gl.static_range(COUNT):
        begun = cycles()
        tma.store_wait(0)  # the piece before has left the SM
        gl.thread_barrier()  # for the thread that loads, too
        mbarrier.expect(loaded.index(0), pieces.numel * pieces.dtype.primitive_bitwidth // 8)
        tma.async_copy_global_to_shared(desc, [row + piece * PIECE, col], loaded.index(0), pieces)
        mbarrier.wait(loaded.index(0), (number * COUNT + piece) % 2)
        send_piece(there, peer, row_there + piece * PIECE, col_there, pieces)
        until(begun, PACE)
