"""Times of the last tiles of a loop where several programs have a piece of each: halves, or shares of their reductions."""

from __future__ import annotations

import math

from tilelink.elaborate.splits import adders
from tilelink.planner.last_round import share_rounds
from tilelink.planner.tile_cost import TileCost
from tilelink.planner.tile_work import softly

_START_US = 2.5  # the loop over shares begins with an empty pipeline, as that over halves does
# fitted to 5 rows of 1,000 to 3,000 tokens (2 x H200): until another program has been told, and what one program stores or loads
_SUM_US, _SUM_GB_PER_S = 5.0, 60.0
_NEXT_GB_PER_S = (
    20.0  # the same for shares of further rounds: 17 loops of 63 to 537 rows, two to five rounds (2 x H200)
)
_SUM_BYTES = 4


def pieces_of(cost: TileCost) -> tuple[int, int, float]:
    """(tiles, pieces of each, time of the piece that ends last)."""
    role = cost.role
    if role.split:
        return role.split, role.splits, _split_us(cost)
    return role.halved, 2, _piece_us(cost, cost.half_computed_us()) if role.halved else 0.0


def _split_us(cost: TileCost) -> float:
    """A share, with its part of what the programs take that add what others have stored."""
    role = cost.role
    steps = min(axis.tiles for axis in role.axes if axis.reduction)
    share = -(-steps // role.splits) / steps
    sums = math.prod(axis.tile for axis in role.axes if not axis.reduction) * _SUM_BYTES
    rounds = share_rounds(role.programs, role.split, role.splits)
    first = sums * (1 + role.splits / adders(role)) / _SUM_GB_PER_S  # a share is stored, and a slice of each loaded
    others = (rounds - 1) * 2 * sums / _NEXT_GB_PER_S
    return _piece_us(cost, share * cost.parts_us.computed, rounds) + (_SUM_US + (first + others) / 1e3) / rounds


def _piece_us(cost: TileCost, computed: float, rounds: int = 1) -> float:
    """A piece for which an SM computes so long, while memory brings what those of a round need."""
    role, parts = cost.role, cost.parts_us
    memory = cost.memory_us * (role.split or role.halved) / role.programs / rounds
    rest = cost.tile_us - parts.computed - parts.memory
    return rest + max(memory, softly(computed, memory)) + _START_US
