"""Launch positions -> Triton: the rank at a position of an order, and where the tile at a position lies."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from lowering.operands import TileScope
from lowering.source import Source
from tilelink.ir.nodes import Axis, ComputeRole
from tilelink.ir.order import Nest, RankOrder


def rank_at(order: RankOrder, position: str, *, on_host: bool = False) -> str:
    """Expression for the rank at `position` of an order."""
    nodes = order.num_ranks // order.ranks_per_node
    if nodes > 1 and on_host:
        size, sign = order.ranks_per_node, "+" if order.direction > 0 else "-"
        node = f"(rank // {size} {sign} ({order.first} + {position} // {size})) % {nodes}"
        return f"{node} * {size} + (rank % {size} {sign} ({order.first} + {position} % {size})) % {size}"
    if nodes > 1:
        return f"node_major(rank, {position}, {order.ranks_per_node}, {nodes}, {order.first}, {order.direction})"
    if order.direction > 0:
        first = f" + {order.first}" if order.first else ""
        return f"(rank{first} + {position}) % {order.num_ranks}"
    return f"(rank + {order.num_ranks - order.first} - {position}) % {order.num_ranks}"


def print_extents(out: Source, role: ComputeRole, named: Container[str] | None = None) -> None:
    """Extents of a tile along all axes, or those whose first element is `named` behind this."""
    for axis in role.axes:
        if axis.tile and (named is None or axis.name in named):
            what = f"{axis.segments} segments of {axis.extent}" if axis.segments > 1 else f"{axis.extent}"
            out.line(f"TILE_{axis.name.upper()}: tl.constexpr = {axis.tile}  # {axis.name}: {what}")


def print_order(out: Source, scope: TileScope, named: Container[str] | None = None) -> None:
    """Where the tile at position `tile` lies: its segment and its first element along each axis, or what of this is `named`
    behind this."""
    role, order = scope.role, scope.role.order
    major = role.axis(order.major)
    minor = role.axis(order.minor) if order.minor else None
    half = ""
    if scope.in_halves and minor is not None:  # `tile` counts whole tiles
        half, minor = f" + half % 2 * TILE_{minor.name.upper()}", replace(minor, tile=2 * minor.tile)
    width = str(minor.tile) if half and minor else f"TILE_{order.minor.upper()}"
    minor_tiles = minor.segments * minor.tiles if minor else 1
    names = f"{major.name}_place, {major.name}_tile, {minor.name + '_tile' if minor else '_'}"
    match order.nest:
        case Nest.RANK_MAJOR:
            out.line(f"{names} = rank_major(tile, {major.tiles}, {minor_tiles}, {order.group})")
        case Nest.CHUNK_MAJOR:
            function = "last_late" if order.late else "chunk_major"
            out.line(f"{names} = {function}(tile, {major.tiles}, {minor_tiles}, {order.group}, {major.segments})")
    _print_segment(out, scope, major, f"{major.name}_place", order.ranks, named)
    if minor is not None and minor.segments > 1:
        if named is None or f"{minor.name}_segment" in named:
            out.line(f"{minor.name}_place = {minor.name}_tile // {minor.tiles}")
        _print_segment(out, scope, minor, f"{minor.name}_place", order.minor_ranks, named)
    if minor is not None and (named is None or minor.name in named):
        inside = f" % {minor.tiles}" if minor.segments > 1 else ""
        out.line(f"{minor.name} = {minor.name}_tile{inside} * {width}{half}")
    if named is None or major.name in named:
        out.line(f"{major.name} = {major.name}_tile * TILE_{major.name.upper()}")


def _print_segment(
    out: Source, scope: TileScope, axis: Axis, place: str, order: RankOrder, named: Container[str] | None
) -> None:
    if axis.segments > 1 and (named is None or f"{axis.name}_segment" in named):
        scope.need("rank")
        out.line(f"{axis.name}_segment = {rank_at(order, place)}")
