"""Whether two warpgroups can compute the tiles of a role in turns, fed by a third one that loads (ping-pong, as CUTLASS calls
it): what is behind the matmul of a tile then costs nothing, as long as it takes no longer than the matmul of the next one."""

from __future__ import annotations

from dataclasses import replace

from tilelink.ir.nodes import ComputeRole
from tilelink.planner.choices import TritonLoop
from tilelink.planner.layout import Illegal
from tilelink.proof.turns import why_no_turns
from topologies.topology import Gpu

_DTYPES = ("bf16", "fp16")


def in_turns(role: ComputeRole, loop: TritonLoop, gpu: Gpu, dtype: str) -> ComputeRole:
    """The role with the warpgroups of `loop`, for operands of `dtype`. Raises Illegal for what only a whole program can do."""
    reason = why_no_turns(role)
    if not gpu.arch.startswith("sm_9") or not gpu.tensor_descriptors:
        reason = f"the matrix products of warpgroups are those of sm_90, and this is {gpu.arch}"
    elif loop.halves or loop.late:
        reason = "they are not computed in halves, and are counted at once"
    elif dtype not in _DTYPES:
        reason = f"operands are {dtype}, not {' or '.join(_DTYPES)}"
    if reason:
        raise Illegal(f"tiles of {role.name} cannot be computed by warpgroups in turns: {reason}")
    return replace(role, warpgroups=loop.tile.warpgroups)
