"""Whether two warpgroups can compute the tiles of a role in turns, fed by a third one that loads (ping-pong, as CUTLASS calls
it): what is behind the matmul of a tile then costs nothing, as long as it takes no longer than the matmul of the next one."""

from __future__ import annotations

from dataclasses import replace

from tilelink.ir.nodes import ComputeRole
from tilelink.ir.steps import Access, IfOwn, MatmulBody, Notify, Place, Step, Store, Wait
from tilelink.planner.choices import TritonLoop
from tilelink.planner.layout import Illegal
from topologies.topology import Gpu

_DTYPES = ("bf16", "fp16")
_ROWS, _MOST_COLS = 64, 256  # of a product that one instruction computes (PTX ISA, wgmma)


def in_turns(role: ComputeRole, loop: TritonLoop, gpu: Gpu, dtype: str) -> ComputeRole:
    """The role with the warpgroups of `loop`, for operands of `dtype`. Raises Illegal for what only a whole program can do."""
    reason = _why_not(role, loop, gpu, dtype)
    if reason:
        raise Illegal(f"tiles of {role.name} cannot be computed by warpgroups in turns: {reason}")
    return replace(role, warpgroups=loop.tile.warpgroups)


def _why_not(role: ComputeRole, loop: TritonLoop, gpu: Gpu, dtype: str) -> str:
    if not gpu.arch.startswith("sm_9") or not gpu.tensor_descriptors:
        return f"the matrix products of warpgroups are those of sm_90, and this is {gpu.arch}"
    if loop.halves or loop.late:
        return "they are not computed in halves, and are counted at once"
    matmuls = [step for step in role.body if isinstance(step, MatmulBody)]
    if len(matmuls) != 1:
        return f"{len(matmuls)} matmuls share their loop"
    if dtype not in _DTYPES:
        return f"operands are {dtype}, not {' or '.join(_DTYPES)}"
    matmul, at = matmuls[0], role.body.index(matmuls[0])
    operands = matmul.left, matmul.right
    if any(operand.access is not Access.DESCRIPTOR or operand.remote for operand in operands):
        return "their operands are not loaded through descriptors"
    if role.axis(matmul.axis).segments > 1:
        return f"parts along {matmul.axis} arrive one after the other"
    if loop.tile.m % _ROWS or not 16 <= loop.tile.n <= _MOST_COLS:
        return f"a product has a multiple of {_ROWS} rows and 16 to {_MOST_COLS} columns, not {loop.tile.m} x {loop.tile.n}"
    if not all(isinstance(step, Wait) for step in role.body[:at]):
        return "something else than waits comes before their matmul"
    return "" if all(map(_behind, role.body[at + 1 :])) else "what comes behind the matmul needs the whole tile at once"


def _behind(step: Step) -> bool:
    """Whether the step can be done slice by slice, or needs nothing of the tile."""
    match step:
        case Store(place=place):
            return place is not Place.OWN
        case Notify():
            return True
        case IfOwn(slices=slices, others=others):
            return slices > 1 and all(map(_behind, others))
        case _:
            return False
