"""What a tile of attention takes. Constants are fitted to 2 x H100 and 2 x H200, heads of 128 elements."""

from __future__ import annotations

from math import log2

import numpy as np

from tilelink.ir.nodes import ComputeRole
from tilelink.ir.spec import DTYPE_BYTES
from tilelink.ir.steps import AttendBody
from tilelink.planner.loop import Positions, Times
from tilelink.planner.tile_work import START_US, TileParts
from topologies.topology import Gpu

# of the peak, of heads of 128: by warpgroups that share rows, by one group in steps of 64 keys, in steps of more
_COOPERATIVE, _ATTENDS, _ATTENDS_WIDE, _FEW_KEYS = 0.65, 0.5, 0.43, 64
# of these by warpgroups: with a causal mask; more for each doubling beyond so many
_MASKED, _FAR, _MANY_KEYS = 0.97, 0.05, 8192
# heads that are walked together read keys and values beside each other: more for each doubling beyond this part of the L2
# (23 rows and orders of heads, 2 x H200)
_APART, _HELD = 0.05, 1 / 3
_BESIDE_WIDTH = 96  # weights of a key take as long as so many elements of its head (heads of 64 and 128)
_STEP_US = 0.7  # a tile of keys takes at least this long, however small it is
# more for one that a mask cuts, by 128 queries, whose loads no loop hides, but by warpgroups (10 drawn rows, 2 x H200)
_CUT_US = 1.8


def fold_of(role: ComputeRole) -> AttendBody | None:
    """The attention that tiles of a role compute, if they do."""
    return next((step for step in role.body if isinstance(step, AttendBody)), None)


def attend_us(role: ComputeRole, fold: AttendBody, dtype: str, gpu: Gpu) -> float:
    """What an SM does for a tile, keys and values coming from the L2: two products for each pair of a query and a key that it
    sees. With a causal mask the last rank sees most: all keys, but for half of its own."""
    rows, keys = role.axis(fold.queries.index[0]), role.axis(fold.axis)
    how, seen = fold.how, keys.segments * keys.extent - (rows.extent / 2 if fold.how.causal else 0)
    if how.zigzag:  # all ranks see as much
        seen = keys.segments * keys.extent / 2
    if how.window:  # and of its keys whole tiles
        seen = min(seen, how.window + rows.tile)
    share = _COOPERATIVE if role.cooperative else _ATTENDS if keys.tile <= _FEW_KEYS else _ATTENDS_WIDE
    width = (how.width + _BESIDE_WIDTH) * 128 / (128 + _BESIDE_WIDTH)
    us = 4 * rows.tile * width * seen / (gpu.tflops(dtype) * share / gpu.num_sms) / 1e6
    if role.cooperative:  # clocks sink under long loads
        us *= (_MASKED if how.causal else 1.0) * (1 + _FAR * max(0.0, log2(keys.segments * keys.extent / _MANY_KEYS)))
    together = role.order.group // how.shared if role.order.major != rows.name else 1
    if together > 1:
        held = together * min(seen, keys.segments * keys.extent) * how.width * 2 * DTYPE_BYTES[dtype]
        us *= 1 + _APART * max(0.0, log2(held / (_HELD * gpu.l2_bytes)))
    us = max(us, seen / keys.tile * _STEP_US)
    if not role.cooperative:
        ends = keys.segments if keys.extent % keys.tile else 0
        us += _CUT_US * rows.tile / 128 * (ends + (max(1, rows.tile // keys.tile) if how.causal else 0))
    return us


def seen_shares(role: ComputeRole, fold: AttendBody, at: Positions) -> Times | None:
    """What each tile multiplies, of the mean; None where all see as many keys. The rank is the one that sees most keys, and of a
    zigzag, whose ranks see as many, the first one."""
    if not fold.how.causal:
        return None
    rows, keys = role.axis(fold.queries.index[0]), role.axis(fold.axis)
    tile = (at.first_row // rows.tile if role.order.major == rows.name else at.column) % rows.tiles
    first = (rows.tiles - 1 - tile if rows.descending else tile) * rows.tile
    seen = (first + np.minimum(first + rows.tile, rows.extent)) / 2
    if fold.how.zigzag:
        seen += (2 * first >= rows.extent) * (keys.segments - 1) * rows.extent
    else:
        seen += (keys.segments - 1) * keys.extent
    if fold.how.window:
        seen = np.minimum(seen, fold.how.window + rows.tile)
    return np.asarray(seen / seen.mean())


def attended(us: float, remote_us: float, drag: float, counts_us: float) -> TileParts:
    """The parts of a tile that multiplies for `us`: keys and values that come from peers take more than that hides."""
    remote = max(0.0, remote_us - us)
    return TileParts(us, 0.0, remote, 0.0, 0.0, us * drag, START_US, 0.0, counts_us, 0.0)
