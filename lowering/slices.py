"""A tile slice by slice: a function that does some of its steps on so many columns, and a call of it for each slice."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lowering.names import TRITON, element_bytes, value_name
from lowering.operands import TileScope, part_vector
from lowering.pieces import OF_A_TILE, clocks_of_piece, leaves_in_pieces
from lowering.source import Source
from tilelink.ir.nodes import Axis
from tilelink.ir.steps import Access, Step, Store, SumParts

PrintStep = Callable[[Source, TileScope, Step], None]


def print_sliced(
    out: Source, scope: TileScope, steps: Sequence[Step], value: str, width: int, print_step: PrintStep, own: str = ""
) -> None:
    """Do `steps` on each slice of `width` columns of the tile in `value`. `own`: the axis along which its segment is the own
    one, so that parts of peers are added to it."""
    cols = _written(scope)[-1]
    name, arguments = _slice_function(scope, steps, value, width, print_step, own)
    in_pieces = scope.role.warpgroups > 1 and leaves_in_pieces(steps)
    if in_pieces:
        out.line(f"clocks = {clocks_of_piece(scope, cols.tile // width)}")
    for number, one in enumerate(_print_slices(out, value_name(value), cols.tile, width)):
        start = _first_column(scope, cols, number, width, bool(own))
        given = {cols.name: start, "number": str(number)}
        out.call(f"{name}(", [one, *(given.get(argument) or scope.taken(argument) for argument in arguments)])
    if in_pieces:
        out.line("pieces_sent()")


def _first_column(scope: TileScope, cols: Axis, number: int, width: int, sums: bool) -> str:
    """Expression for the first column of slice `number`."""
    if not number:
        return cols.name
    slice_cols = scope.slice(cols, width, sums=sums)
    return f"{cols.name} + {slice_cols if number == 1 else f'{number} * {slice_cols}'}"


def _written(scope: TileScope) -> list[Axis]:
    return [axis for axis in scope.role.axes if not axis.reduction]


def _print_slices(out: Source, value: str, cols: int, width: int) -> list[str]:
    """Names of the slices of `width` columns, from left to right: by the columns that they hold."""
    names, size = [value], cols
    while size > width:
        size //= 2
        halves = [f"{value}_{first}_{first + size}" for first in range(0, cols, size)]
        for number, name in enumerate(names):
            out.line(f"{halves[2 * number]}, {halves[2 * number + 1]} = halves({name})")
        names = halves
    return names


def _slice_function(
    scope: TileScope, steps: Sequence[Step], value: str, width: int, print_step: PrintStep, own: str
) -> tuple[str, list[str]]:
    """Print the function that does `steps` on a slice; its name, and its arguments after the slice."""
    inner = TileScope(scope.schedule, scope.dialect, scope.numbers, scope.role, own_axes=scope.own_axes)
    printed = Source()
    for step in steps:
        print_step(printed, inner, step)
    text, head, axes = printed.text(), Source(), _written(scope)
    if scope.role.warpgroups > 1 and any(map(_by_pointer, steps)):
        _print_layout(head, scope, steps, value, width)
    arguments = []
    extents = scope.tile(axes[0].name), scope.slice(axes[1], width, sums=bool(own))
    for number, (axis, extent) in enumerate(zip(axes, extents, strict=True)):
        arguments.append(axis.name)
        if f"{axis.name}_segment" in text and axis.name != own:
            arguments.append(f"{axis.name}_segment")
        elif f"{axis.name}_segment" in text:
            inner.need("rank")
            head.line(f"{axis.name}_segment = rank")
        if f"{axis.name}_offsets" in text:
            head.line(f"{axis.name}_offsets = {axis.name} + {part_vector(scope, extent, number)}")
    scope.needs_of(inner)
    arguments += inner.parameters
    arguments += OF_A_TILE if scope.role.warpgroups > 1 and leaves_in_pieces(steps) else ()
    sums = next((step.result for step in steps if isinstance(step, SumParts)), "")
    name, out = f"{sums or value}_slice", Source()
    out.line(scope.decorator())
    given = [f"{argument}: gl.constexpr" if argument == "GROUP" else argument for argument in arguments]
    if sums:
        what = f"Epilogue of an own tile, one slice of columns: add the peers' parts of {sums} to the own summand."
    else:
        what = f"Store one slice of columns of a tile of {value}."
    with out.function(name, [value_name(value), *given], what):
        if head.text().strip():
            out.lines(head.text())
        out.lines(text)
    scope.functions.append(out.text())
    return name, arguments


def _by_pointer(step: Step) -> bool:
    return isinstance(step, SumParts) or (isinstance(step, Store) and step.operand.access is Access.POINTER)


def _print_layout(out: Source, scope: TileScope, steps: Sequence[Step], value: str, width: int) -> None:
    """The layout in which a warpgroup goes through memory: 16 bytes a thread of what it stores, a row after the other. What the
    tensor cores have made comes into it as what it is stored as, or, if parts are added to it, as it is."""
    stored = next(step.operand.buffer for step in steps if isinstance(step, Store))
    dtype = scope.dtype(stored)
    each = 16 // element_bytes(dtype)
    lanes = min(32, width // each)
    out.comment("16 bytes a thread, threads along a row")
    out.line(f"SLICE: gl.constexpr = gl.BlockedLayout([1, {each}], [{32 // lanes}, {lanes}], [4, 1], [1, 0])")
    added = any(isinstance(step, SumParts) for step in steps)
    name = value_name(value)
    out.line(f"{name} = gl.convert_layout({name if added else f'{name}.to({TRITON[dtype]})'}, SLICE)")
