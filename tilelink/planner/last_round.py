"""What is left for the last round of a tile loop, shared by more programs than it has tiles.

With T tiles for P programs the last round has T mod P tiles, and takes as long as a full one. That is mended in two ways:

- *halves*: each is two tiles of half the width. No program adds what another one has computed, so that nothing waits. On H200 a
  round of 128 x 64 takes 0.63 to 0.74 of one of 128 x 128 (`lab/experiments.md`).
- *split-k*: programs share the reduction of each, as in stream-K (Osama et al., 2023) with whole tiles first. Some of them
  add what all have stored, a slice each, always in the same order. Shares may be more than programs: 84 tiles for 132 programs
  are two rounds of 252 thirds. Where there are fewer tiles than programs, they are all of the last round.
"""

from __future__ import annotations

from dataclasses import replace

from tilelink.ir.enums import Tail
from tilelink.ir.nodes import ComputeRole
from tilelink.ir.steps import SMALLEST_DOT, IfOwn, MatmulBody, Notify, SlotNotify, SlotWait, SumPackets, Wait
from tilelink.planner.layout import Illegal

MOST_SPLITS = 8  # programs that share a tile: a slice of it is loaded from each
_SHARE_COSTS = 0.02  # of a tile, that each share of it adds: a start, and sums that are stored and loaded
_WORTH = 0.85  # of a whole round, that shares take at most


def with_tail(role: ComputeRole, tail: Tail, programs: int) -> ComputeRole:
    """The role with what becomes of its last tiles, where there is room for `programs`. Raises Illegal."""
    match tail:
        case Tail.WHOLE:
            return role
        case Tail.HALVES:
            return replace(role, halved=tiles_to_halve(role))
        case Tail.SPLIT_K:
            role = replace(role, programs=programs)  # where tiles are fewer, all of them are shared
            split, splits = tiles_to_split(role)
            programs = min(programs, split * splits) if split == role.num_tiles else programs
            return replace(role, programs=programs, split=split, splits=splits)


def tiles_to_split(role: ComputeRole) -> tuple[int, int]:
    """Tiles of the last round, and how many programs share each. Raises Illegal where these are not several, or where one
    program must compute a tile."""
    reason = _why_by_one(role)
    if reason:
        raise Illegal(f"tiles of {role.name} cannot be split along k: {reason}")
    left = role.num_tiles % role.programs
    steps = min(axis.tiles for axis in role.axes if axis.reduction)
    legal = [one for one in range(2, min(steps, MOST_SPLITS) + 1) if left and _round(role, left, one) <= _WORTH]
    if not legal:
        raise Illegal(
            f"{left} tiles of {role.name} are left for {role.programs} programs, and have {steps} steps along k: shares of them "
            "would take as long as whole tiles"
        )
    return left, min(legal, key=lambda splits: _round(role, left, splits) + _SHARE_COSTS * splits)


def share_rounds(programs: int, tiles: int, splits: int) -> int:
    """Rounds of the shares of so many tiles."""
    return -(-tiles * splits // programs)


def _round(role: ComputeRole, left: int, splits: int) -> float:
    """How long shares of the last tiles take, where a round of whole tiles is 1."""
    return share_rounds(role.programs, left, splits) / splits


def _why_by_one(role: ComputeRole) -> str:
    matmuls = [step for step in role.body if isinstance(step, MatmulBody)]
    if len(matmuls) != 1:
        return "they are not those of one matmul"
    if any(axis.routed is not None for axis in role.axes):
        return "only the device knows how many there are"
    if any(axis.segments > 1 for axis in role.axes if axis.reduction) or matmuls[0].waits:
        return "their reduction goes through parts of all ranks as they come"
    if any(isinstance(step, IfOwn | SlotNotify | SlotWait | SumPackets) for step in role.body):
        return "they add what others have made, or go through slots"
    return ""


def tiles_to_halve(role: ComputeRole) -> int:
    """Tiles of the last round. Raises Illegal where halves do not fit in one, or where tiles must stay whole."""
    reason = _why_whole(role)
    if reason:
        raise Illegal(f"tiles of {role.name} cannot be halved: {reason}")
    left = role.num_tiles % role.programs
    if not 0 < 2 * left <= role.programs:
        raise Illegal(f"{left} tiles of {role.name} are left for {role.programs} programs: halves would not end sooner")
    return left


def _why_whole(role: ComputeRole) -> str:
    minor = role.order.minor
    if not minor or role.axis(minor).tile < 2 * SMALLEST_DOT:
        return f"they are not at least {2 * SMALLEST_DOT} elements wide along a minor axis"
    if not any(isinstance(step, MatmulBody) for step in role.body):
        return "they are no tiles of a matmul"
    if role.axis(minor).inwards:
        return f"the last one along {minor} is shifted inwards"
    for step in role.body:
        match step:
            case Notify() | IfOwn() | SlotNotify() | SlotWait() | SumPackets():
                return "they are counted, or add what others have made"
            case Wait(rows=rows) if rows == minor:
                return f"they wait for chunks along {minor}"
            case _:
                pass
    return ""
