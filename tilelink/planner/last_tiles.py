"""Times of the last tiles of a loop where several programs have a piece of each: halves, or shares of their reductions."""

from __future__ import annotations

import math

from tilelink.planner.tile_cost import TileCost

_START_US = 2.5  # the loop over shares begins with an empty pipeline, as that over halves does
# fitted to 5 rows of 1,000 to 3,000 tokens (2 x H200): until another program has been told, and what one program stores or loads
_SUM_US, _SUM_GB_PER_S = 5.0, 60.0
_SUM_BYTES = 4


def pieces_of(cost: TileCost) -> tuple[int, int, float]:
    """(tiles, pieces of each, time of the piece that ends last)."""
    role = cost.role
    if role.split:
        return role.split, role.splits, _split_us(cost)
    return role.halved, 2, cost.half_us if role.halved else 0.0


def _split_us(cost: TileCost) -> float:
    """The share of the first program, which then adds what all others have stored."""
    role, parts = cost.role, cost.parts_us
    steps = min(axis.tiles for axis in role.axes if axis.reduction)
    share = -(-steps // role.splits) / steps
    whole = cost.tile_us - (1.0 - share) * (parts.computed + parts.memory)
    sums = math.prod(axis.tile for axis in role.axes if not axis.reduction) * _SUM_BYTES
    return whole + _START_US + _SUM_US + role.splits * sums / _SUM_GB_PER_S / 1e3
