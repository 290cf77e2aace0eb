"""Stores at peers in pieces, which the warpgroup that does not multiply spreads over as long as its own product took."""

from __future__ import annotations

from collections.abc import Sequence

from lowering.constants import Group
from lowering.operands import TileScope, start
from lowering.signalling import word
from lowering.source import Source
from tilelink.ir.nodes import PIECE_ROWS, PIECES_SPREAD, Memory
from tilelink.ir.steps import Place, Step, Store, in_pieces

# what a slice needs of its tile: where pieces leave from, when the product was done, which slice it is, clocks of a piece
OF_A_TILE = ("leaving", "begun", "number", "clocks", "GROUP")


def leaves_in_pieces(steps: Sequence[Step]) -> bool:
    """Whether some of `steps` store at peers in pieces."""
    return any(map(in_pieces, steps))


def clocks_of_piece(scope: TileScope, slices: int) -> str:
    """Of `took` clocks of a product, those from one piece to the next, where a tile is stored in so many `slices`."""
    rows = next(axis for axis in scope.role.axes if not axis.reduction).tile
    pieces = slices * rows // PIECE_ROWS
    why = f"pieces in the time of a product: the {pieces} of a tile take {PIECES_SPREAD:.0%} of it"
    name = scope.numbers.of_role(scope.role, "PIECES_PER_PRODUCT")
    return f"took // {scope.numbers.name(name, round(pieces / PIECES_SPREAD), why, Group.CHOSEN)}"


def print_pieces(out: Source, scope: TileScope, step: Store, value: str) -> None:
    """Send the slice `value` to one peer, or to every rank."""
    operand = step.operand
    there = scope.at_peers(operand)
    row, col = (start(scope, operand, axis) for axis in operand.index)
    if step.place is Place.PEER:
        out.call("send_slice(", [value, "leaving", there, f"{operand.slot}_segment", row, col, *OF_A_TILE[1:]])
        return
    scope.need("rank")
    words = []
    if scope.schedule.buffer(operand.buffer).memory is Memory.POOL:  # peers have told where it lies
        exchange = next(found for found in scope.schedule.exchanges if found.target == operand.buffer)
        words = [f"places={word(scope, f'{exchange.name}_place', '0')}"]
    ranks = f"RANKS={scope.numbers.ranks()}"
    out.call("send_slice_to_all(", [value, "leaving", there, "rank", row, col, *OF_A_TILE[1:], ranks, *words])
