"""Launch positions -> Triton: the rank at a position of an order, and where the tile at a position lies."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from lowering.operands import TileScope
from lowering.source import Source
from tilelink.ir.nodes import Axis
from tilelink.ir.order import Nest, RankOrder


def rank_at(order: RankOrder, position: str, ranks: str, *, on_host: bool = False) -> str:
    """Expression for the rank at `position` of an order; `ranks` is what the number of ranks is called there."""
    nodes = order.num_ranks // order.ranks_per_node
    if nodes > 1 and on_host:
        size, sign = order.ranks_per_node, "+" if order.direction > 0 else "-"
        node = f"(rank // {size} {sign} ({order.first} + {position} // {size})) % {nodes}"
        return f"{node} * {size} + (rank % {size} {sign} ({order.first} + {position} % {size})) % {size}"
    if nodes > 1:
        return f"node_major(rank, {position}, {order.ranks_per_node}, {nodes}, {order.first}, {order.direction})"
    if order.direction > 0:
        first = f" + {order.first}" if order.first else ""
        return f"(rank{first} + {position}) % {ranks}"
    start = f"({ranks} - {order.first})" if order.first else ranks
    return f"(rank + {start} - {position}) % {ranks}"


def print_order(out: Source, scope: TileScope, named: Container[str] | None = None) -> None:
    """Where the tile at position `tile` lies: its segment and its first element along each axis, or what of this is `named`
    behind this."""
    role, order = scope.role, scope.role.order
    major = role.axis(order.major)
    minor = role.axis(order.minor) if order.minor else None
    half = ""
    if scope.in_halves and minor is not None:  # `tile` counts whole tiles
        half, minor = f" + half % 2 * {scope.tile(minor.name)}", replace(minor, tile=2 * minor.tile)
    numbers = scope.numbers
    width = numbers.tile(role, minor) if minor else ""
    minor_tiles = numbers.all_tiles(role, minor) if minor else "1"
    sizes = f"{numbers.tiles(role, major)}, {minor_tiles}, {numbers.group(role)}"
    names = f"{major.name}_place, {major.name}_tile, {minor.name + '_tile' if minor else '_'}"
    match order.nest:
        case Nest.RANK_MAJOR:
            out.line(f"{names} = rank_major(tile, {sizes})")
        case Nest.CHUNK_MAJOR:
            function = "last_late" if order.late else "chunk_major"
            out.line(f"{names} = {function}(tile, {sizes}, {numbers.segments(role, major)})")
    _print_segment(out, scope, major, f"{major.name}_place", order.ranks, named)
    if minor is not None and minor.segments > 1:
        if named is None or f"{minor.name}_segment" in named:
            out.line(f"{minor.name}_place = {minor.name}_tile // {numbers.tiles(role, minor)}")
        _print_segment(out, scope, minor, f"{minor.name}_place", order.minor_ranks, named)
    if minor is not None and (named is None or minor.name in named):
        inside = f" % {numbers.tiles(role, minor)}" if minor.segments > 1 else ""
        out.line(f"{minor.name} = {minor.name}_tile{inside} * {width}{half}")
    if named is None or major.name in named:
        out.line(f"{major.name} = {major.name}_tile * {scope.tile(major.name)}")


def _print_segment(
    out: Source, scope: TileScope, axis: Axis, place: str, order: RankOrder, named: Container[str] | None
) -> None:
    if axis.segments > 1 and (named is None or f"{axis.name}_segment" in named):
        scope.need("rank")
        out.line(f"{axis.name}_segment = {rank_at(order, place, scope.numbers.ranks())}")
