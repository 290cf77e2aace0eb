"""Spelling of operands: where in memory the tile of a buffer lies, with masks or descriptors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

from lowering.constants import POOL_PLACES, Group
from lowering.dialect import Dialect
from lowering.names import TRITON, element, element_bytes, is_wide, plus, pointer, times
from lowering.numbers import Numbers
from lowering.source import Source
from tilelink.ir.nodes import PIECE_ROWS, Axis, ComputeRole, Memory, turn_cols
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import Access, Operand, cut_axes


@dataclass(slots=True)
class LoopScope:
    """What the printer of a role knows: the schedule, names of its numbers, and the parameters of the function, collected on
    the way."""

    schedule: Schedule
    dialect: Dialect
    numbers: Numbers
    parameters: dict[str, None] = field(default_factory=dict, kw_only=True)
    awaited: dict[str, str] = field(default_factory=dict, kw_only=True)  # pointer or descriptor -> what took the token

    @contextmanager
    def inside(self) -> Iterator[None]:
        """A branch or loop: what takes tokens in it is not known behind it."""
        outer = dict(self.awaited)
        yield
        self.awaited = outer

    def taken(self, name: str) -> str:
        """The pointer or descriptor `name`, as it is after the waits so far."""
        return self.awaited.get(name, name)

    def need(self, *names: str) -> None:
        self.parameters.update(dict.fromkeys(names))

    def dtype(self, buffer: str) -> str:
        return self.schedule.buffer(buffer).dtype

    def elements(self, buffer: str) -> int:
        return part_size(self.schedule.buffer(buffer).shape)


class Described(NamedTuple):
    """What a descriptor is for: tiles of `block` elements of a buffer along axes."""

    buffer: str
    axes: tuple[str, ...]
    block: tuple[int, ...]
    sizes: tuple[str, ...]  # what those of the block are called
    peer: int = -1  # whose memory it is of: there it is of the part of this rank
    place: int = -1  # of a pool: the place in it


@dataclass(slots=True)
class TileScope(LoopScope):
    """The scope of a loop over tiles. `own_axes` are the axes whose segment is known to be the own one at this place."""

    role: ComputeRole
    own_axes: tuple[str, ...] = field(default=(), kw_only=True)
    descriptors: dict[str, Described] = field(default_factory=dict, kw_only=True)
    tuples: dict[str, list[str]] = field(
        default_factory=dict, kw_only=True
    )  # of descriptors, by the parameter that has them
    functions: list[str] = field(default_factory=list, kw_only=True)  # texts of what the loop calls
    declared: str = field(default="", kw_only=True)  # what takes tokens in an open loop, printed before it
    in_halves: bool = field(default=False, kw_only=True)  # tiles are halves, and `role` is as wide as they are

    def axis(self, name: str) -> Axis:
        return self.role.axis(name)

    def tile(self, name: str) -> str:
        """What the extent of a tile along an axis is called."""
        half = self.in_halves and name == self.role.order.minor
        return self.numbers.tile(self.role, self.axis(name), half=half)

    def descriptor(self, buffer: str, index: tuple[str, ...]) -> str:
        """Name of the descriptor of `buffer` whose block spans the tiles of `index`."""
        half = "_half" if self.in_halves and self.role.order.minor in index else ""
        name = f"{buffer}{half}_desc"
        sizes = tuple(self.tile(axis) for axis in index)
        described = Described(buffer, index, tuple(self.axis(axis).tile for axis in index), sizes)
        if self.descriptors.setdefault(name, described) != described:
            name = f"{buffer}_{''.join(index)}{half}_desc"
            self.descriptors[name] = described
        self.need(name)
        return name

    def needs_of(self, inner: TileScope) -> None:
        """What a function needs that is printed for `inner` and called here."""
        self.need(*inner.parameters)
        self.descriptors |= inner.descriptors
        self.tuples |= inner.tuples
        self.functions += inner.functions

    def at_peers(self, operand: Operand) -> str:
        """Name of the tuple of descriptors of pieces of `operand` at each rank, and of a pool in each place of each."""
        buffer, name = operand.buffer, f"{operand.buffer}_there"
        cols = self.axis(operand.index[1])
        block = PIECE_ROWS, turn_cols(cols.tile, element_bytes(self.dtype(buffer)))
        sizes = self.piece_rows(), self.slice(cols, block[1])
        pooled = self.schedule.buffer(buffer).memory is Memory.POOL
        self.tuples[name] = []
        for place, peer in product(range(POOL_PLACES) if pooled else (-1,), range(self.schedule.num_ranks)):
            described = f"{buffer}_at_{peer}{f'_in_{place}' if pooled else ''}_desc"
            self.descriptors[described] = Described(buffer, operand.index, block, sizes, peer, place)
            self.tuples[name].append(described)
        self.need(name)
        return name

    def slice(self, cols: Axis, width: int, *, sums: bool = False) -> str:
        """What the columns of a slice of a tile are called; `sums`: of one to which parts are added."""
        numbers, slices = self.numbers, cols.tile // width
        name = numbers.of_role(self.role, f"{'SUM_' if sums else ''}SLICE_{cols.name}")
        why = f"extent along {cols.name} of a slice of a tile{' to which parts are added' if sums else ''}"
        found = numbers.name(name, width, why, Group.LOOPS, f"{self.tile(cols.name)} // {slices}")
        numbers.require(f"{self.tile(cols.name)} == {slices} * {found}", f"a tile has {slices} slices")
        return found

    def piece_rows(self) -> str:
        """What the rows of a piece that leaves for a peer are called."""
        return self.numbers.name(
            "PIECE_ROWS", PIECE_ROWS, "rows of a slice that one store sends to a peer", Group.CHOSEN
        )

    def each(self, count: str, first: int = 0) -> str:
        """The range of a loop inside a tile; unrolled where the loop over k is the only one that tiles may contain."""
        span = f"{first}, {count}" if first else f"{count}"
        return f"tl.static_range({span})" if self.role.prefetch else f"range({span})"

    def decorator(self) -> str:
        """Of a function of the role."""
        return "@gluon.jit" if self.role.warpgroups > 1 else self.dialect.decorator()

    def segment(self, axis: str) -> str:
        return f"{axis}_segment"


def print_origin(out: Source, scope: TileScope, result: str) -> None:
    """The user's line that makes `result`."""
    for node in scope.schedule.spec.nodes:
        if node.output.name == result:
            out.comment(f"src[{node.line}] {result}")


def part_vector(scope: TileScope, extent: str, dim: int) -> str:
    """The numbers up to `extent`, as a vector along dimension `dim` of a tile, or of a slice of it."""
    layout = f", gl.SliceLayout({1 - dim}, SLICE)" if scope.role.warpgroups > 1 else ""
    return f"{'gl' if layout else 'tl'}.arange(0, {extent}{layout})"


def part_shape(scope: TileScope, operand: Operand) -> tuple[int, ...]:
    """Shape of the tensor that the operand's index runs over: one part, or the whole buffer."""
    shape = scope.schedule.buffer(operand.buffer).shape
    return shape[-len(operand.index) :]


def part_name(scope: TileScope, operand: Operand) -> str:
    """What the elements of one part are called."""
    return scope.numbers.part(operand.buffer, part_shape(scope, operand))


def part_size(shape: tuple[int, ...]) -> int:
    size = 1
    for extent in shape:
        size *= extent
    return size


def is_local(operand: Operand, axis: str) -> bool:
    """Whether positions along `axis` count from the start of the segment."""
    return axis == operand.slot or axis in operand.local


def start(scope: TileScope, operand: Operand, axis: str) -> str:
    """First element of the tile along `axis` in the operand's coordinates."""
    if not axis:
        return "0"
    found = scope.axis(axis)
    if found.segments == 1 or is_local(operand, axis):
        return axis
    return f"{scope.segment(axis)} * {scope.numbers.size(scope.role, found)} + {axis}"


def offsets(scope: TileScope, operand: Operand, axis: str) -> str:
    """All elements of the tile along `axis`, as a vector."""
    found = scope.axis(axis)
    if axis == operand.item:
        return f"tl.arange(0, {scope.tile(axis)})"
    if axis == operand.cut:
        return f"({axis}_offsets - rank * {share(scope, operand)})"
    if found.segments == 1 or is_local(operand, axis):
        return f"{axis}_offsets"
    return f"({scope.segment(axis)} * {scope.numbers.size(scope.role, found)} + {axis}_offsets)"


def share(scope: TileScope, operand: Operand) -> str:
    """Elements along the axis that is cut of which the buffer has a place."""
    found, numbers = scope.axis(operand.cut), scope.numbers
    value = found.extent * found.segments // operand.own_slots
    name, why = f"{operand.buffer}_SHARE", f"share of a rank of {operand.buffer} along {found.name}"
    return numbers.name(name, value, why, Group.SIZES, f"{numbers.size(scope.role, found)} // {numbers.ranks()}")


def mask_term(scope: TileScope, axis: Axis) -> str:
    """Elements of the tile that exist, empty if all do. Of two halves the second one may have none."""
    half = scope.in_halves and axis.name == scope.role.order.minor
    width = 2 * axis.tile if half else axis.tile
    if width and axis.extent % width == 0:
        scope.numbers.whole(scope.role, axis, half=half)
        return ""
    return f"{axis.name}_offsets < {scope.numbers.size(scope.role, axis)}"


def address(scope: TileScope, operand: Operand, base: str) -> tuple[str, str]:
    """(pointer expression, mask expression or empty) of the tile of `operand`, from the pointer `base`."""
    wide = is_wide(scope.elements(operand.buffer))
    terms, masks = [], []
    column_only = len(operand.index) == 1 and len(_written(scope)) == 2
    for dim, axis in enumerate(operand.index):
        if not axis:
            continue
        stride = stride_of(scope, operand, dim)
        vector = offsets(scope, operand, axis)
        if wide:
            vector = f"{vector}.to(tl.int64)"
        sides = _sides(dim, len(operand.index), column_only)
        terms.append(times(f"{vector}{sides}", stride))
        mask = mask_term(scope, scope.axis(axis))
        if axis == operand.cut:
            scope.need("rank")
            mask = f"{axis}_offsets // {share(scope, operand)} == rank"
        if mask:
            masks.append(f"({mask}){sides}" if sides else mask)
    terms += [times(first(scope, operand, dim), stride_of(scope, operand, dim)) for dim in range(len(operand.index))]
    return plus(base, *terms), " & ".join(masks)


def first(scope: TileScope, operand: Operand, dim: int) -> str:
    """Where position 0 along dimension `dim` is."""
    value = operand.first[dim]
    return scope.numbers.first(operand.buffer, dim, len(operand.index), value) if value else "0"


def stride_of(scope: TileScope, operand: Operand, dim: int) -> str:
    """Elements from one position along dimension `dim` of the operand's index to the next."""
    shape = part_shape(scope, operand)[dim + 1 :]
    if part_size(shape) == 1:
        return "1"
    return (
        scope.numbers.cols(operand.buffer, shape[0]) if len(shape) == 1 else scope.numbers.part(operand.buffer, shape)
    )


def _written(scope: TileScope) -> list[Axis]:
    return [axis for axis in scope.role.axes if not axis.reduction]


def _sides(dim: int, dims: int, row: bool) -> str:
    if row:
        return "[None, :]"
    if dims == 1:
        return ""
    return "[:, None]" if dim == 0 else "[None, :]"


def segment_of(scope: TileScope, operand: Operand) -> str:
    return scope.segment(operand.slot)


def print_base(out: Source, scope: TileScope, operand: Operand, name: str) -> str:
    """Print the choice of the part that the tile lies in; returns the pointer variable (`name`) or expression."""
    elements = scope.elements(operand.buffer)
    if operand.item:
        size = part_name(scope, operand)
        scope.need(pointer(operand.buffer))
        out.line(f"{operand.buffer}_slot = {scope.taken(pointer(operand.buffer))} + {element('slot', size, elements)}")
        return f"{operand.buffer}_slot"
    if not operand.slot:
        scope.need(pointer(operand.buffer))
        return scope.taken(pointer(operand.buffer))
    segment = segment_of(scope, operand)
    if operand.remote:
        parameter = scope.dialect.peers(operand.buffer)
        scope.need(parameter, "rank")
        own_slot = element("rank", part_name(scope, operand), elements) if operand.own_slots > 1 else "0"
        there = scope.dialect.at_peer(scope.taken(parameter), segment, TRITON[scope.dtype(operand.buffer)])
        out.line(f"{name} = {plus(there, own_slot)}")
        return name
    scope.need(pointer(operand.buffer))
    size = part_name(scope, operand)
    out.line(f"{name} = {scope.taken(pointer(operand.buffer))} + {element(segment, size, elements)}")
    if operand.own:
        scope.need(pointer(operand.own), "rank")
        own_slot = element("rank", size, scope.elements(operand.own)) if operand.own_slots > 1 else "0"
        with out.block(f"if {segment} == rank:"):
            out.line(f"{name} = {plus(pointer(operand.own), own_slot)}")
    return name


def print_descriptor(out: Source, scope: TileScope, operand: Operand, name: str) -> tuple[str, str, str]:
    """Print the choice of descriptor and row; returns (descriptor, first row, first column) expressions."""
    assert operand.access is Access.DESCRIPTOR, "pointers have no descriptor"
    row_axis, col_axis = operand.index
    at = (start(scope, operand, row_axis), start(scope, operand, col_axis))
    row, col = (plus(position, first(scope, operand, dim)) for dim, position in enumerate(at))
    for axis in cut_axes(operand.index, part_shape(scope, operand), operand.window):
        scope.numbers.whole(scope.role, scope.axis(axis))
    whole = scope.taken(scope.descriptor(operand.buffer, operand.index))
    if not operand.slot:
        return whole, row, col
    rows = scope.numbers.part_rows(operand.buffer, part_shape(scope, operand)[0])
    out.line(f"{name} = {whole}")
    out.line(f"{name}_first = {segment_of(scope, operand)} * {rows}")
    if operand.own:
        scope.need("rank")
        with out.block(f"if {segment_of(scope, operand)} == rank:"):
            out.line(f"{name} = {scope.descriptor(operand.own, operand.index)}")
            out.line(f"{name}_first = {f'rank * {rows}' if operand.own_slots > 1 else '0'}")
    return name, plus(f"{name}_first", row), col
