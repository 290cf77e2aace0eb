"""Operands of tiles and parts of exchanges as regions of buffers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from tilelink.elaborate.positions import new_name, segment_name, tile_name
from tilelink.ir import nodes
from tilelink.ir.nodes import ComputeRole, Exchange, Kind
from tilelink.ir.order import Cut
from tilelink.ir.routed import Follows, Routed, Tables
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import Access, Operand
from tilelink.schedule import memory
from tilelink.schedule.index import Index, Number, greatest, least, rank
from tilelink.schedule.memory import Region

LANE = Index("lane")
Box = tuple[tuple[Number, Number], tuple[Number, Number]]  # (first, how many) rows and columns

_ACCESS = {
    Access.POINTER: memory.Access.POINTER,
    Access.DESCRIPTOR: memory.Access.DESCRIPTOR,
    Access.PARTS: memory.Access.PARTS,
    Access.PIECES: memory.Access.PACED,
}


@dataclass(frozen=True)
class Tiles:
    """A role as its steps see it. `own` are the axes whose segment is the own one here. `cut`: which of how many slices of
    columns of a tile. `own_rows`: rows that a routing finds are those of own tokens. `split`: of the reduction of a tile, what
    one of several programs has. `new`: of a tile that is shifted inwards, what the tile before has not."""

    schedule: Schedule
    role: ComputeRole
    own: tuple[str, ...] = ()
    halves: bool = False
    cut: tuple[Number, int] = (0, 1)
    own_rows: bool = False
    split: bool = False
    new: bool = False

    @cached_property
    def written(self) -> tuple[nodes.Axis, ...]:
        return tuple(axis for axis in self.role.axes if not axis.reduction)

    def axis(self, name: str) -> nodes.Axis:
        return self.role.axis(name)

    def in_own(self, *axes: str) -> Tiles:
        return replace(self, own=(*self.own, *axes))

    @property
    def columns(self) -> str:
        """The axis along which slices lie."""
        return self.written[-1].name

    def width(self, name: str) -> int:
        """Elements of a tile along an axis; of one that is not tiled, of a segment."""
        axis = self.axis(name)
        half = self.halves and name == self.role.order.minor
        width = (axis.tile // 2 if half else axis.tile) or axis.extent
        return width // self.cut[1] if name == self.columns else width

    def span(self, name: str) -> tuple[Number, Number]:
        """(first element, elements) of the tile in its segment."""
        axis, width = self.axis(name), self.width(name)
        if not axis.tile:
            return 0, axis.extent
        if axis.inwards:
            return self._span_inwards(name, width)
        first = Index(name) + (self.cut[0] * width if name == self.columns else 0)
        even = axis.extent % axis.tile == 0
        return first, width if even else least(width, axis.extent - first)

    def _span_inwards(self, name: str, width: int) -> tuple[Number, Number]:
        """Of an axis whose last tile ends with its segment: a whole tile, or what is new in it."""
        if not self.new:
            return Index(name), width
        first = Index(new_name(name))
        return first, least(width, self.axis(name).extent - first)

    @property
    def shifted(self) -> str:
        """The axis of rows whose last tile is shifted inwards, if it is."""
        return next((axis.name for axis in self.written if axis.inwards), "")

    def segment(self, name: str) -> Number:
        """The segment of the tile along an axis; along one that only parts lie on, of the part that a loop is at."""
        if name in self.own:
            return rank
        axis = next((axis for axis in self.role.axes if axis.name == name), None)
        looped = axis is None or axis.segments > 1 or (axis.reduction and not axis.tile)
        return Index(segment_name(name)) if looped else 0


def box(tiles: Tiles, operand: Operand) -> tuple[list[Number], list[Number]]:
    """(start, extent) along each dimension of the operand's index, in a part if there are parts."""
    starts: list[Number] = []
    extents: list[Number] = []
    for dim, name in enumerate(operand.index):
        if not name:
            starts.append(operand.first[dim])
            extents.append(1)
            continue
        axis = tiles.axis(name)
        start, extent = tiles.span(name)
        if operand.along and (how := operand.along[dim]) is not None:
            start, extent = _by_routing(tiles, name, how)
            starts.append(start)
            extents.append(extent)
            continue
        if name == operand.item:
            start = 0
        elif name == operand.cut:
            start = (
                start + tiles.segment(name) * axis.extent - rank * (axis.extent * axis.segments // operand.own_slots)
            )
        elif name != operand.slot and name not in operand.local:
            if not axis.tile:
                extent = axis.extent * axis.segments
            start = (tiles.segment(name) * axis.extent if axis.tile else 0) + start
        starts.append(start + operand.first[dim])
        extents.append(extent)
    return starts, extents


def own_experts(routed: Routed) -> tuple[Number, Number]:
    """(first, how many) of this rank."""
    first = rank * routed.experts if routed.parts > 1 else 0
    return first, routed.experts if not routed.missing else greatest(least(routed.experts, routed.every - first), 0)


def tables_of(axis: nodes.Axis) -> Tables:
    """Tables of the routing that a routed axis follows."""
    assert axis.routed is not None, axis.name
    return Tables(axis.routed.name, int(axis.tile))


def _by_routing(tiles: Tiles, name: str, how: Follows) -> tuple[Number, Number]:
    """(start, extent) along a dimension that follows an axis by a routing: of each row, or of the expert of a tile."""
    axis, place, number = tiles.axis(name), Index(name), Index(tile_name(name))
    if how is Follows.CHOICES:
        first, extent = tiles.span(name)
        segment = tiles.segment(name) * axis.extent
        return (segment + first + LANE) * Index("choices") + Index("choice"), extent
    tables = tables_of(axis)
    if how is Follows.PLACE:  # whole tiles, of which rows that nobody has are never stored
        return place, axis.tile
    if how is Follows.EXPERT:
        return Index(tables.experts, (number,)), 1
    found = tables.tokens if how is Follows.TOKEN else tables.rows
    return Index(found, (place + LANE,)), Index(tables.here, (number,))


def region(tiles: Tiles, operand: Operand) -> Region:
    """What the tile reads of `operand.buffer`, or writes: in the part of its segment, if there are parts, at its owner if the
    operand is remote."""
    starts, extents = box(tiles, operand)
    if operand.item:
        return part(tiles.schedule, operand.buffer, Index("slot"), starts, extents, access=operand.access)
    if not operand.slot:
        return part(tiles.schedule, operand.buffer, None, starts, extents, access=operand.access)
    segment = tiles.segment(operand.slot)
    if not operand.remote:
        return part(tiles.schedule, operand.buffer, segment, starts, extents, access=operand.access)
    number: Number | None = rank if operand.own_slots > 1 else None
    return part(tiles.schedule, operand.buffer, number, starts, extents, at=segment, access=operand.access)


def own_region(tiles: Tiles, operand: Operand) -> Region:
    """What the tile reads of `operand.own`, which holds the own part."""
    starts, extents = box(tiles, operand)
    if any(operand.along):  # tokens count from the first one of all ranks
        starts[0] = starts[0] - rank * tiles.schedule.buffer(operand.own).shape[0]
    number: Number | None = rank if operand.own_slots > 1 else None
    return part(tiles.schedule, operand.own, number, starts, extents, access=operand.access)


def whole_region(schedule: Schedule, buffer: str) -> Region:
    shape = schedule.buffer(buffer).shape
    return Region(buffer, tuple(0 for _ in shape), shape)


def part(
    schedule: Schedule,
    buffer: str,
    number: Number | None,
    starts: list[Number],
    extents: list[Number],
    *,
    at: Number = rank,
    access: Access = Access.POINTER,
) -> Region:
    """A box in part `number` of `buffer`; without a number, in the buffer, or in all its parts where the box has no dimension for
    them. Of a buffer without a dimension for parts, they lie behind each other."""
    shape = schedule.buffer(buffer).shape
    more = len(shape) - len(starts)
    if more == 0 and number is not None:
        rows = _rows(schedule, buffer, shape[0] // schedule.num_ranks)
        starts = [number * rows + starts[0], *starts[1:]]
    elif more and number is None:
        return _through_parts(schedule, buffer, starts, extents, at, access)
    elif more:
        starts, extents = [number or 0, *starts], [1, *extents]
    return Region(buffer, tuple(starts), tuple(extents), at, _ACCESS[access])


def _rows(schedule: Schedule, buffer: str, rows: int) -> int:
    """`rows` of a part of a buffer, with the name that they have in an exchange."""
    of = [one.rows for one in schedule.exchanges if buffer in (one.source, one.target)]
    return next((named for named in of if named == rows), rows)


def _through_parts(
    schedule: Schedule, buffer: str, starts: list[Number], extents: list[Number], at: Number, access: Access
) -> Region:
    """A box that counts rows through all parts: all of them, or some in one part."""
    parts, rows = schedule.buffer(buffer).shape[:2]
    rows = _rows(schedule, buffer, rows)
    if extents[0] == parts * rows:
        return Region(buffer, (0, *starts), (parts, rows, *extents[1:]), at, _ACCESS[access])
    number = starts[0] // rows
    return Region(buffer, (number, starts[0] - number * rows, *starts[1:]), (1, *extents), at, _ACCESS[access])


def chunk_rows(exchange: Exchange, chunk: Number) -> tuple[Number, Number]:
    """(first row, rows) of a chunk in its part."""
    first, size = chunk * exchange.chunk_rows, exchange.chunk_rows
    return first, size if exchange.rows % size == 0 else least(size, exchange.rows - first)


def chunk_box(exchange: Exchange, chunk: Number) -> Box:
    """A chunk in its part."""
    if exchange.cut is Cut.COLUMNS:
        return ((0, exchange.rows), (chunk * exchange.chunk_cols, exchange.chunk_cols))
    return (chunk_rows(exchange, chunk), (0, exchange.cols))


def rows_box(exchange: Exchange, rows: tuple[Number, Number]) -> Box:
    """Whole rows of a part."""
    return (rows, (0, exchange.cols))


def chunk_region(
    schedule: Schedule, buffer: str, exchange: Exchange, number: Number | None, inside: Box, at: Number = rank
) -> Region:
    """What is `inside` of part `number` of a buffer of `exchange`."""
    dims = inside[: part_dims(schedule, exchange)]
    return part(schedule, buffer, number, [first for first, _ in dims], [count for _, count in dims], at=at)


def part_dims(schedule: Schedule, exchange: Exchange) -> int:
    """Dimensions of a part of `exchange`."""
    if exchange.kind is Kind.GATHER and exchange.source not in ("", exchange.target):
        return len(schedule.buffer(exchange.source).shape)  # its parts may lie behind each other in the target
    if exchange.target:
        return len(schedule.buffer(exchange.target).shape) - (exchange.kind is not Kind.RETURN)
    return len(schedule.buffer(exchange.source).shape) - (1 if exchange.kind is Kind.SCATTER else 0)


def source_part(schedule: Schedule, exchange: Exchange, peer: Number) -> Number | None:
    """Which part of the source goes to `peer`."""
    if exchange.kind is Kind.SCATTER:
        return peer
    return rank if exchange.source == exchange.target else None
