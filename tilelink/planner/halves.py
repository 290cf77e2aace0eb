"""Halves of tiles: what is left for the last round of a tile loop, shared by twice as many programs.

With T tiles for P programs the last round has T mod P tiles, and takes as long as a full one. Halves of few enough tiles
fill it better. That is stream-K's aim with less: no program adds what another one has computed, so that nothing waits.
On H200 a round of 128 x 64 takes 0.63 to 0.74 of one of 128 x 128, as long as halves of the reduction with their exchange
of sums (`lab/experiments.md`).
"""

from __future__ import annotations

from tilelink.ir.nodes import ComputeRole
from tilelink.ir.steps import SMALLEST_DOT, IfOwn, MatmulBody, Notify, SlotNotify, SlotWait, SumPackets, Wait
from tilelink.planner.layout import Illegal


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
    for step in role.body:
        match step:
            case Notify() | IfOwn() | SlotNotify() | SlotWait() | SumPackets():
                return "they are counted, or add what others have made"
            case Wait(rows=rows) if rows == minor:
                return f"they wait for chunks along {minor}"
            case _:
                pass
    return ""
