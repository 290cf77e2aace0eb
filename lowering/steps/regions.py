"""Regions as kernels address them: pointers to the elements of a tile, and which of them exist."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from types import MappingProxyType
from typing import TypeGuard

from lowering.source import Chain
from lowering.steps.constants import Group
from lowering.steps.dtypes import stored
from lowering.steps.errors import NotPrinted, TileOfManyDimensions, UnboundedExtent
from lowering.steps.indices import Spelling
from lowering.steps.packets import LINE_WORDS, has_lines
from tilelink.schedule.index import Index, Number, difference, less, names_in, rank
from tilelink.schedule.known import Known
from tilelink.schedule.memory import Buffer, Region
from tilelink.schedule.printing import region_text


@dataclass(frozen=True, slots=True)
class Run:
    """So many `elements` of a row take so many `places` in registers: those of a line have a gap, two words of it are one."""

    elements: int = 1
    places: int = 1

    @property
    def plain(self) -> bool:
        return self.elements == self.places

    def most(self, extent: int) -> int:
        """Places for so many elements, a power of two."""
        return (1 << (-(-extent // self.elements) - 1).bit_length()) * self.places


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a tile: `most` places, a power of two called `name`, for elements of which `extent` exist."""

    start: Number
    extent: Number
    most: int
    name: str
    run: Run = Run()

    @property
    def ragged(self) -> bool:
        return self.extent != self.elements

    @property
    def elements(self) -> int:
        return self.most if self.run.plain else self.most // self.run.places * self.run.elements

    @property
    def by_lane(self) -> bool:
        """Whether each element has a start of its own."""
        return "lane" in names_in(self.start)


@dataclass(frozen=True, slots=True)
class Place:
    """`lines` before the access, the pointers of the tile, and the mask, without parts if all elements exist."""

    lines: tuple[str, ...]
    pointers: Chain
    mask: Chain
    leads: bool = False  # whether the mask has conditions for dimensions in front of the tile's

    @property
    def masks(self) -> list[str | Chain]:
        """The mask as an argument, where there is one."""
        return [self.mask] if self.mask.parts else []


PLAIN, _PIECE = Run(), Run(2, 1)


class Regions:
    """What regions of a schedule are in the kernel of a role."""

    def __init__(
        self, spell: Spelling, needs: dict[str, str], in_packet: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        self.spell, self.needs, self.in_packet = spell, needs, in_packet
        self.line = 0  # elements in a line, in phases whose tiles go through lines
        self.everywhere = ""  # the first element of the region at hand, on all ranks of the node at once
        self.scope, self.schedule = spell.scope, spell.schedule
        self.buffers = {buffer.name: buffer for buffer in self.schedule.buffers}
        self.places: dict[
            str, tuple[str, Number]
        ] = {}  # by buffer of places: the value that was loaded last, and of whom
        self.remote: dict[tuple[str, Number], tuple[str, str]] = {}  # names of first elements at peers, and their texts

    def shape(self, value: str, extents: tuple[Number, ...]) -> tuple[tuple[int, str], ...]:
        """The size of a tile along each of its dimensions, and what it is called."""
        return self._shape(value, extents, self._gaps(1))

    def _shape(self, value: str, extents: tuple[Number, ...], run: Run) -> tuple[tuple[int, str], ...]:
        rows = (self._size(value, "rows", extent) for extent in extents[:-1])
        return (*rows, self._size(value, "pieces" if run == _PIECE else "columns", extents[-1], run))

    def _size(self, value: str, kind: str, extent: Number, run: Run = PLAIN) -> tuple[int, str]:
        high = self.whole(extent)
        if high == inf:
            raise UnboundedExtent(extent=extent, role=self.scope.role)
        most = run.most(int(high))
        if isinstance(high, Known) and not run.plain:
            high = high // run.elements * run.places
        if isinstance(high, Known) and most == high:
            most = high
        if most == 1:
            return 1, "1"
        base = f"{value}_{'cols' if kind == 'columns' else kind}"
        return most, self.spell.number(base, most, f"{kind} of tile {value}" + (", at most" * (extent != most)))

    def whole(self, extent: Number) -> float:
        """The extent of a tile that is not cut: the number in `min(number, ...)`, or the largest that there may be."""
        numbers = [one for one in extent.args if isinstance(one, int)] if _is_min(extent) else []
        return min(numbers) if numbers else self.scope.range(extent).high

    def sides(self, value: str, region: Region) -> tuple[Side, ...]:
        """The sides of a tile: of the last two dimensions, or of the only one. Raises TileOfManyDimensions."""
        if any(extent != 1 for extent in region.extent[:-2]):
            raise TileOfManyDimensions(region=region_text(region), role=self.scope.role)
        run = self._run(region.buffer)
        sizes = self._shape(value, region.extent[-2:], run)
        shape = self.schedule.shapes[region.buffer][-2:]
        runs = (*(PLAIN for _ in sizes[1:]), run)
        given = zip(region.start[-2:], region.extent[-2:], sizes, shape, runs, strict=True)
        found = [(Side(start, extent, most, name, one), size) for start, extent, (most, name), size, one in given]
        return tuple(
            replace(side, extent=side.elements) if _cut_by(side.extent, side.elements, size - side.start) else side
            for side, size in found
        )

    def _run(self, buffer: str) -> Run:
        """How the elements of a buffer lie in registers."""
        if has_lines(self.buffers[buffer]):
            return _PIECE
        return self._gaps(self.in_packet.get(buffer, 1))

    def _gaps(self, in_packet: int) -> Run:
        """Of what goes through lines, so many elements of which are one: the last word of a line is none."""
        line = self.line // in_packet
        return Run(line, line // (LINE_WORDS - 1) * LINE_WORDS) if line else PLAIN

    def base(self, region: Region) -> str:
        buffer = self.buffers[region.buffer]
        if region.at == rank:
            self.needs[buffer.name] = ""
            return buffer.name
        if buffer.places:
            return self._in_pool(buffer, region)
        if (buffer.name, region.at) in self.remote:
            return self.remote[buffer.name, region.at][0]
        self.needs[f"{buffer.name}_peers"] = ""
        return f"on_peer({buffer.name}_peers, {self.spell(region.at)}, tl.{stored(buffer)})"

    def on_every_rank(self, buffer: Buffer) -> str:
        """The first element of a buffer on all ranks of the node at once."""
        address = f"{buffer.name}_multicast"
        self.needs[address] = ""
        return f"on_every_rank({address}, tl.{stored(buffer)})"

    def _in_pool(self, buffer: Buffer, region: Region) -> str:
        """The first element of a buffer at a peer, in the place that it has told."""
        place, owner = self.places.get(buffer.places or "", ("", rank))
        if owner != region.at:
            raise NotPrinted(
                what="a place that has not been loaded",
                role=self.scope.role,
                step=region_text(region),
                legal=f"a load of {buffer.places}[{region.at}] in front of it",
            )
        self.needs[f"{buffer.name}_pool"] = ""
        return self.in_pool(buffer, place, region.at)

    def in_pool(self, buffer: Buffer, place: str, at: Number) -> str:
        """The first element of place `place` of the pool at rank `at`."""
        number = f"{place} * {self.spell.ranks()} + {self.spell(at, 1)}"
        return f"on_peer({buffer.name}_pool, {number}, tl.{stored(buffer)})"

    def place(self, value: str, region: Region) -> Place:
        """Where the elements of `region` are, as a tile of two dimensions."""
        buffer = self.buffers[region.buffer]
        sides = self.sides(value, region)
        lead = self.spell.flat(region.start, buffer.name, len(sides))
        terms, masks = [self.everywhere or self.base(region), *lead], self._lead_masks(buffer, region, len(sides))
        lines: list[str] = []
        leads = bool(masks)
        for number, side in enumerate(sides):
            dim = len(region.start) - len(sides) + number
            column = number == len(sides) - 1
            limit = self._limit(side, "cols" if column else "rows", lines)
            if side.by_lane:
                offsets, mask = self._lanes(side, "cols" if column else "rows", limit, lines)
                if less(side.start)[1] != 0:  # else lanes that exist are in the buffer
                    mask += self._outside(buffer, dim, side.start, 1, offsets)
            else:
                offsets, mask = self._side(buffer, side, dim, column, limit)
            if side.most > 1 or side.start != 0 or column:
                terms.append(self.spell.times(offsets, buffer.name, dim))
                masks += mask
        return Place(tuple(lines), Chain(tuple(terms)), Chain(tuple(_bracketed(masks)), "&", "mask="), leads)

    def at_ranks(self, value: str, region: Region) -> Place:
        """Where rows of a tile are, each at its rank; they are looked up, and counted through all ranks."""
        buffer = self.buffers[region.buffer]
        rows, cols = self.sides(value, region)
        lines: list[str] = []
        _, masks = self._lanes(rows, "rows", self._limit(rows, "rows", lines), lines)
        columns, more = self._side(buffer, cols, 1, True, self._limit(cols, "cols", lines))
        what = f"rows of {buffer.name}"
        each = self.spell.number(f"{buffer.name}_rows", self.schedule.shapes[buffer.name][0], what, Group.BUFFERS)
        self.needs[f"{buffer.name}_peers"] = ""
        base = f"on_ranks({buffer.name}_peers, rows_of_lanes // {each}, tl.{stored(buffer)})"
        row = self.spell.times(f"(rows_of_lanes % {each})[:, None]", buffer.name, 0)
        terms = (base, row, self.spell.times(columns, buffer.name, 1))
        return Place(tuple(lines), Chain(terms), Chain(tuple(_bracketed([*masks, *more])), "&", "mask="))

    def _limit(self, side: Side, kind: str, lines: list[str]) -> str:
        """How many elements exist along a ragged side, as a variable; empty if all do."""
        if not side.ragged:
            return ""
        text = self.spell(side.extent, 0, (side.most, side.name))
        if isinstance(side.extent, int):
            return text
        lines.append(f"{kind}_left = {text}")
        return f"{kind}_left"

    def _side(self, buffer: Buffer, side: Side, dim: int, column: bool, limit: str) -> tuple[str, list[str]]:
        """Places along a dimension, and conditions for those that exist."""
        unit = (side.most, side.name) if side.most > 1 else (0, "")
        offsets = self._numbers(column, self.spell(side.start, 0, unit), side)
        if side.most == 1 and not column:
            offsets = self.spell(side.start, 2)
        masks = [f"{self._numbers(column, '0', side)} < {limit}"] if limit else []
        if side.run.places > side.run.elements:
            masks.append(f"holds_data({side.name}, {self._of_run(side.run)})")
        return offsets, [*masks, *self._outside(buffer, dim, side.start, side.extent, offsets)]

    def _numbers(self, column: bool, first: str, side: Side) -> str:
        """Of the elements that the places along a side stand for, from `first` on."""
        if side.run.plain:
            return self.vector(column, first, side.name)
        return f"cols_in_lines({first}, {side.name}, {self._of_run(side.run)})"

    def _of_run(self, run: Run) -> str:
        places = self.spell.number("places_of_line", run.places, "places in registers for a line of a tile")
        return f"{self.spell(run.elements)}, {places if run.places > 1 else 1}"

    def vector(self, column: bool, first: str, size: str) -> str:
        """`size` numbers from `first` on, as a row for columns, else as a column."""
        return f"{'cols_from' if column else 'rows_from'}({first}, {size})"

    def _lanes(self, side: Side, kind: str, limit: str, lines: list[str]) -> tuple[str, list[str]]:
        """Places that are looked up one by one: only those that exist may be."""
        there = "[None, :]" if kind == "cols" else "[:, None]"
        self.spell.lanes = f"lane < {limit}" if limit else ""
        lines.append(f"lane = tl.arange(0, {side.name})")
        lines.append(f"{kind}_of_lanes = {self.spell(side.start)}")
        self.spell.lanes = ""
        return f"{kind}_of_lanes{there}", [f"(lane < {limit}){there}"] if limit else []

    def _lead_masks(self, buffer: Buffer, region: Region, sides: int) -> list[str]:
        """Conditions for the dimensions that select, where ranges do not show that they are met."""
        found: list[str] = []
        for dim, start in enumerate(region.start[:-sides]):
            found += self._outside(buffer, dim, start, 1, self.spell(start, 1))
        return found

    def _outside(self, buffer: Buffer, dim: int, start: Number, extent: Number, offsets: str) -> list[str]:
        """Conditions that keep an access inside of its buffer along a dimension, where it could stick out."""
        size = self.schedule.shapes[buffer.name][dim]
        found = []
        if self.scope.range(start).low < 0:
            found.append(f"{offsets} >= 0")
        if self.scope.range(start + extent).high > size:
            what = {1: "columns", 2: "rows"}.get(len(buffer.shape) - dim, f"places along dimension {dim}")
            name = {"columns": "cols", "rows": "rows"}.get(what, f"size_{dim}")
            limit = self.spell.number(f"{buffer.name}_{name}", size, f"{what} of {buffer.name}", Group.BUFFERS)
            found.append(f"{offsets} < {limit}")
        return found


def _is_min(index: Number) -> TypeGuard[Index]:
    return isinstance(index, Index) and index.op == "min"


def _cut_by(extent: Number, most: int, left: Number) -> bool:
    """Whether a tile is ragged only where it sticks out of its buffer, of which so many elements are `left`."""
    return _is_min(extent) and set(extent.args) == {most, left}


def end_of(side: Side) -> int | None:
    """The place from which on a ragged tile has no elements, wherever it begins; None where that is not one place."""
    if not _is_min(side.extent) or side.most not in side.extent.args:
        return None
    others = [one for one in side.extent.args if one != side.most]
    return difference(others[0], 0 - side.start) if others else None


def _bracketed(masks: list[str]) -> list[str]:
    return [f"({mask})" for mask in masks] if len(masks) > 1 else masks
