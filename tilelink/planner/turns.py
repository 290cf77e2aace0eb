"""Whether two warpgroups can compute the tiles of a role in turns, fed by a third one that loads (ping-pong, as CUTLASS calls
it): what is behind the matmul of a tile then costs nothing, as long as it takes no longer than the matmul of the next one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilelink.ir.choices import TritonLoop
from tilelink.ir.enums import Tail
from tilelink.ir.nodes import Buffer, ComputeRole, turn_cols
from tilelink.ir.spec import DTYPE_BYTES
from tilelink.ir.steps import Access, IfOwn, Place, Step, Store, in_pieces
from tilelink.ir.warpgroups import TURN_DTYPES, why_no_pieces, why_no_turns
from tilelink.planner.layout import Illegal
from tilelink.planner.tiles import Held, why_not
from topologies.topology import Gpu


def in_turns(role: ComputeRole, loop: TritonLoop, gpu: Gpu, dtype: str, at_peers: Mapping[str, Buffer]) -> ComputeRole:
    """The role with the warpgroups of `loop`, for operands of `dtype`; what it stores `at_peers` leaves in pieces wherever it
    can. Raises Illegal for what only a whole program can do."""
    reason = why_no_turns(role)
    if not gpu.arch.startswith("sm_9") or not gpu.tensor_descriptors:
        reason = f"the matrix products of warpgroups are those of sm_90, and this is {gpu.arch}"
    elif loop.tail is not Tail.WHOLE or loop.late:
        reason = "they are not computed in halves, nor by several programs, and are counted at once"
    elif dtype not in TURN_DTYPES:
        reason = f"operands are {dtype}, not {' or '.join(TURN_DTYPES)}"
    if reason:
        raise Illegal(f"tiles of {role.name} cannot be computed by warpgroups in turns: {reason}")
    role = replace(role, warpgroups=loop.tile.warpgroups)
    if why_not(loop.tile, dtype, gpu, Held(pieces=True)):
        return role
    return replace(role, body=tuple(_in_pieces(role, step, at_peers) for step in role.body))


def _in_pieces(role: ComputeRole, step: Step, at_peers: Mapping[str, Buffer]) -> Step:
    """The step, with stores at peers in pieces; own tiles in slices of as many columns as pieces have."""
    match step:
        case IfOwn(own=own, others=others):
            changed = tuple(_in_pieces(role, one, at_peers) for one in own)
            others = tuple(_in_pieces(role, one, at_peers) for one in others)
            for one in changed:
                if isinstance(one, Store) and in_pieces(one):
                    cols = [axis for axis in role.axes if not axis.reduction][-1].tile
                    slices = cols // turn_cols(cols, DTYPE_BYTES[at_peers[one.operand.buffer].dtype])
                    if slices > 1:  # one slice would be a tile that is stored as a whole
                        return replace(step, own=changed, others=others, slices=slices)
            return replace(step, others=others)
        case Store(operand=operand, place=Place.PEER | Place.EVERY_PEER) if operand.buffer in at_peers:
            if not why_no_pieces(role, operand, at_peers[operand.buffer]):
                return replace(step, operand=replace(operand, access=Access.PIECES))
    return step
