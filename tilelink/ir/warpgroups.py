"""Warpgroups that take turns: what a kernel has to be like for it, which its lowering counts on.

One group loads the operands of a matmul behind the waits for them, the others multiply tile by tile, and do what follows slice
by slice. That order allows for more than that of tiles one after the other does, which is what the rest of the proof is about: a
load waits for no end of a tile, what follows a product for no later load, and no buffer is free before all groups have ended.
"""

from __future__ import annotations

from tilelink.ir.dtype import DTYPE_BYTES, DTYPES
from tilelink.ir.nodes import PIECE_ROWS, TURN_SLICE_BYTES, Buffer, ComputeRole, Memory
from tilelink.ir.steps import Access, IfOwn, MatmulBody, Notify, Operand, Place, Step, Store, Wait, in_pieces

TURN_DTYPES = tuple(row.name for row in DTYPES.values() if row.tensor_cores)  # of operands
SHARED_ROWS = 128  # of a tile that two groups share: 64 for each, as an instruction of Hopper's tensor cores computes
GROUP_WARPS = 4  # which issue the matrix products of Hopper together (PTX ISA, wgmma)
# of a chunk that a warp beside groups moves before it tells of them: as many as divide a part, or else the first of these
MOVED_ROWS = (128, 64, 32)
_ROWS, _LEAST_COLS, _MOST_COLS = 64, 16, 256  # of a product that one instruction computes
_ROW_BYTES = 16  # of a matrix that a descriptor is of: a multiple of them (CUDA driver API, cuTensorMapEncodeTiled)


def why_no_turns(role: ComputeRole) -> str:
    """Why warpgroups cannot compute the tiles of `role` in turns, or nothing."""
    if role.prefetch or role.halved or role.split or role.counts_late:
        return "tiles are loaded ahead, computed in halves or counted late, as those of one group are"
    matmuls = [step for step in role.body if isinstance(step, MatmulBody)]
    if len(matmuls) != 1:
        return f"{len(matmuls)} matmuls share their loop"
    matmul, at = matmuls[0], role.body.index(matmuls[0])
    if any(operand.access is not Access.DESCRIPTOR or operand.remote for operand in (matmul.left, matmul.right)):
        return "their operands are not loaded through descriptors"
    if role.axis(matmul.axis).segments > 1:
        return f"parts along {matmul.axis} arrive one after the other"
    rows, cols = (axis.tile for axis in role.axes if not axis.reduction)
    if rows % _ROWS or not _LEAST_COLS <= cols <= _MOST_COLS:
        return (
            f"a product has a multiple of {_ROWS} rows and {_LEAST_COLS} to {_MOST_COLS} columns, not {rows} x {cols}"
        )
    if not all(isinstance(step, Wait) for step in role.body[:at]):
        return "something else than waits comes before their matmul"
    return "" if all(map(_behind, role.body[at + 1 :])) else "what comes behind the matmul needs the whole tile at once"


def why_no_pieces(role: ComputeRole, operand: Operand, buffer: Buffer) -> str:
    """Why tiles cannot be stored to `operand`, of `buffer` at peers, in pieces, or nothing."""
    rows, cols = (axis for axis in role.axes if not axis.reduction)
    size = DTYPE_BYTES[buffer.dtype]
    if buffer.memory not in (Memory.SYMMETRIC, Memory.POOL):
        return f"{buffer.name} lies in no memory of peers"
    if operand.index != (rows.name, cols.name):
        return f"{buffer.name} is indexed by {', '.join(operand.index)}, not by {rows.name}, {cols.name}"
    if rows.extent % rows.tile or cols.extent % cols.tile or rows.tile % PIECE_ROWS:
        return f"tiles of {rows.tile} x {cols.tile} are no whole pieces of {rows.extent} x {cols.extent}"
    if cols.tile * size % TURN_SLICE_BYTES or buffer.shape[-1] * size % _ROW_BYTES:
        return f"rows of {cols.tile} of {buffer.shape[-1]} elements of {buffer.dtype} are no whole rows of pieces"
    return ""


def _behind(step: Step) -> bool:
    """Whether the step can be done slice by slice, or needs nothing of the tile."""
    match step:
        case Store(place=place, operand=operand) if in_pieces(step):
            return place in (Place.PEER, Place.EVERY_PEER)
        case Store(place=place, operand=operand):
            return place is not Place.OWN and operand.access is Access.POINTER
        case Notify():
            return True
        case IfOwn(slices=slices, others=others):
            return slices > 1 and all(map(_behind, others))
        case _:
            return False
