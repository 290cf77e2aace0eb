"""Steps of attention, and whether two warpgroups can share the rows of each of its tiles, fed by a third one that waits and
loads (cooperative, as CUTLASS calls it): tensor cores multiply for one of them while the other one computes weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilelink.ir.choices import TritonLoop
from tilelink.ir.enums import Tail
from tilelink.ir.graph import TileOp
from tilelink.ir.nodes import PIECE_ROWS, CommRole, ComputeRole, Exchange
from tilelink.ir.ops.attention import Attend
from tilelink.ir.spec import DTYPE_BYTES
from tilelink.ir.steps import Access, AttendBody, Operand, Place, Step, Store, Wait
from tilelink.ir.warpgroups import GROUP_WARPS, MOVED_ROWS, SHARED_ROWS, TURN_DTYPES
from tilelink.planner.access import Space
from tilelink.planner.layout import Illegal, Problem
from tilelink.planner.rules import NO_WARP_BESIDE
from topologies.topology import Gpu

_CLOCKS_OF_US = 1750.0  # of an SM under load (H100 and H200)


def attend_steps(
    op: TileOp, how: Attend, operands: tuple[Operand, ...], waits: Sequence[Wait], space: Space
) -> list[Step]:
    """The fold of `op`, behind those of its waits that are for no keys or values."""
    q, k, v = operands
    axis = op.reads[1].axes[0]
    if how.sequences > 1 and space.ragged(axis):  # behind the last key lies another sequence
        k, v = (replace(one, access=Access.POINTER) for one in (k, v))
    block = space.extents[op.axes[0].name] // 2
    if how.zigzag and (block % space.tiles[op.axes[0].name] or block % space.tiles[axis]):
        raise Illegal(f"blocks of {block} tokens are no whole tiles of {op.name}: tokens in zigzag come so")
    along = tuple(wait for wait in waits if wait.slot == axis)
    return [*(one for one in waits if one not in along), AttendBody(op.name, q, k, v, axis, how, along)]


def cooperative(role: ComputeRole, loop: TritonLoop, gpu: Gpu, dtype: str) -> ComputeRole:
    """The role, computed so. Raises Illegal for what it cannot be."""
    role = _described(role)
    reason = _of_machine(loop, gpu, dtype) or _of_tiles(role) or _of_body(role)
    if reason:
        raise Illegal(f"two warpgroups cannot share tiles of {role.name}: {reason}")
    return replace(role, cooperative=True)


def _described(role: ComputeRole) -> ComputeRole:
    """With descriptors of parts of keys and values that end within a tile, which have zeros behind."""
    steps = list[Step]()
    for step in role.body:
        if (
            isinstance(step, AttendBody)
            and step.how.sequences == 1
            and role.axis(step.axis).extent % role.axis(step.axis).tile
        ):
            keys, values = (
                replace(one, access=Access.PARTS) if one.slot == step.axis else one for one in (step.keys, step.values)
            )
            step = replace(step, keys=keys, values=values)
        steps.append(step)
    return replace(role, body=tuple(steps))


def beside_tiles(problem: Problem, role: ComputeRole, exchanges: Sequence[Exchange]) -> tuple[CommRole, ...]:
    """What warps of the programs of `role` move at once, and how fast: all of them together no faster than the link carries,
    since loads of tiles would stand behind what waits for it. Raises Illegal."""
    if exchanges and not role.cooperative:
        raise Illegal(f"{exchanges[0].name}: {NO_WARP_BESIDE}, and those of {role.name} do not")
    found = []
    for one in exchanges:
        rows = next((rows for rows in MOVED_ROWS if not one.rows % rows), MOVED_ROWS[0])
        piece = PIECE_ROWS * one.chunk_cols * DTYPE_BYTES[problem.graph.values[one.name].dtype]
        us = len(exchanges) * piece * role.programs / problem.topology.link_gb_per_s(0, 1) / 1e3
        found.append(CommRole(one.name, role.programs, rows, 100 * round(us * _CLOCKS_OF_US / 100)))
    return tuple(found)


def _of_machine(loop: TritonLoop, gpu: Gpu, dtype: str) -> str:
    if not gpu.arch.startswith("sm_9") or not gpu.tensor_descriptors:
        return f"the matrix products of warpgroups are those of sm_90, and this is {gpu.arch}"
    if dtype not in TURN_DTYPES:
        return f"operands are {dtype}, not {' or '.join(TURN_DTYPES)}"
    if (loop.tile.m, loop.tile.warps, loop.tile.per_sm) != (SHARED_ROWS, GROUP_WARPS, 1) or loop.tail is not Tail.WHOLE:
        return f"a tile has {SHARED_ROWS} rows, each group {GROUP_WARPS} warps, and programs are alone on an SM"
    return ""


def _of_body(role: ComputeRole) -> str:
    *before, fold, store = role.body
    if not isinstance(fold, AttendBody) or not isinstance(store, Store) or store.place is not Place.HERE:
        return "something else than a store comes behind the fold"
    if not all(isinstance(step, Wait) for step in before):
        return "something else than waits comes before the fold"
    operands = fold.queries, fold.keys, fold.values, store.operand
    if any(one.access not in (Access.DESCRIPTOR, Access.PARTS) or one.remote for one in operands):
        return "operands and results are not moved through descriptors"
    return ""


def _of_tiles(role: ComputeRole) -> str:
    fold = next(step for step in role.body if isinstance(step, AttendBody))
    rows, keys, how = role.axes[0], role.axis(fold.axis), fold.how
    ragged = rows.extent % rows.tile or keys.extent % keys.tile
    if ragged and how.causal and (rows.extent != keys.extent or rows.tile != keys.tile):
        return f"{rows.extent} rows and {keys.extent} keys are no whole tiles that a causal mask cuts alike"
    if how.window:
        return "tiles behind a window may have no first tile of keys that they all see"
    if how.causal and (rows.tile % keys.tile or (keys.segments > 1 and not (how.apart and rows.extent == keys.extent))):
        return "a causal mask cuts tiles elsewhere than where they end"
    return ""
