"""What a user's function makes of tiles: it counts along axes from the addresses and to the ends that it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilelink.ir.ops.user_op import WHOLE, UserOp
from tilelink.ir.spec import BoundNode
from tilelink.proof.contents.tile import Held, Term, Tile
from tilelink.proof.contents.values import Mismatch, Values
from tilelink.schedule.index import Ints


def user_tile(
    values: Values,
    node: BoundNode,
    operands: Sequence[str | float | Ints],
    held: Mapping[str, Held],
    ranks: Ints,
) -> Tile:
    """The tile that the function of `node` makes of what it is given. Raises Mismatch."""
    reasons = list[Mismatch]()
    for other in values.spec.nodes:
        if isinstance(other.operation, UserOp) and other.operation == node.operation:
            try:
                return _made(values, other, other.operation, operands, held, ranks)
            except Mismatch as mismatch:
                reasons.append(mismatch)
    raise reasons[0]


def _made(
    values: Values,
    node: BoundNode,
    op: UserOp,
    operands: Sequence[str | float | Ints],
    held: Mapping[str, Held],
    ranks: Ints,
) -> Tile:
    given = dict(zip(op.parameters, operands, strict=True))
    starts: dict[str, Ints] = {}
    extents: dict[str, Ints] = {}
    known = np.ones(len(ranks), bool)
    for (tensor, _), value in zip(op.reads, node.inputs, strict=True):
        tile = held.get(str(given[tensor]))
        if not isinstance(tile, Tile) or tile.offset is None:
            raise Mismatch(getattr(tile, "why", "") or f"{tensor} is no address")
        part = values.part(tile, value)
        if (wrong := tile.some & ~part.on(ranks)).any():
            raise Mismatch(f"it is {value} of another rank", wrong)
        if (wrong := tile.some & np.logical_or.reduce([one > 0 for one in tile.skip])).any():
            raise Mismatch(f"{tensor} begins before {value}", wrong)
        known = known & tile.known
        index = op.read_index(tensor)
        for at, (dim, axis) in enumerate(zip(range(len(index)), index, strict=True)):
            lies = at - len(index) + len(tile.axes)
            if lies < 0:
                continue
            if axis.endswith(WHOLE) or axis not in op.writes:
                _whole(values, value, dim, part.start[dim], part.extent[dim], tile)
                continue
            first = _column(given.get(axis), ranks)
            if (wrong := tile.some & (tile.offset[lies] != first)).any():
                raise Mismatch(f"{tensor} is not where it counts from along {axis}", wrong)
            _reaches(given, axis, first, part.extent[dim], ranks, tile)
            before = starts.setdefault(axis, part.start[dim])
            if (wrong := tile.some & (before != part.start[dim])).any():
                raise Mismatch(f"its operands lie at other places along {axis}", wrong)
            extents[axis] = np.minimum(extents.get(axis, part.extent[dim]), part.extent[dim])
    for axis, size in zip(op.writes, values.shapes[node.output.name], strict=True):
        if axis not in starts:
            starts[axis], extents[axis] = _counted(given, axis, size, ranks)
    start, extent = (tuple(of[axis] for axis in op.writes) for of in (starts, extents))
    skip = tuple(one * 0 for one in start)
    return Tile(Term(node.output.name), tuple(range(len(start))), ranks, start, extent, skip, known)


def _column(one: str | float | Ints | None, ranks: Ints) -> Ints:
    if isinstance(one, np.ndarray):
        return one
    return np.full(len(ranks), int(float(one)) if one is not None else 0)


def _whole(values: Values, value: str, dim: int, start: Ints, extent: Ints, tile: Tile) -> None:
    """Along an axis that a tile runs over, all of the value is there."""
    size = values.shapes[value][dim]
    if (wrong := tile.some & ((start != 0) | (extent != size))).any():
        raise Mismatch(f"it is given a part of {value}, and runs over all of it", wrong)


def _counted(given: Mapping[str, str | float | Ints], axis: str, size: int, ranks: Ints) -> tuple[Ints, Ints]:
    """(start, extent) along an axis of which no operand is a part: the function makes the elements that it counts to. Such an
    axis lies on one rank, so that it counts from the first element of the value."""
    if axis not in given or f"TILE_{axis.upper()}" not in given:
        raise Mismatch(f"neither an operand nor a number says where it is along {axis}")
    first, width = _column(given[axis], ranks), _column(given[f"TILE_{axis.upper()}"], ranks)
    end = _column(given.get(f"num_{axis}", float(size)), ranks)
    if (wrong := end != size).any():
        raise Mismatch(f"along {axis} it goes on to another end than that of {size} elements", wrong)
    return first, np.minimum(width, end - first)


def _reaches(
    given: Mapping[str, str | float | Ints], axis: str, first: Ints, extent: Ints, ranks: Ints, tile: Tile
) -> None:
    """What the function does not mask along `axis` is there: it goes on to the end that it is given, or to that of the tile."""
    if f"num_{axis}" not in given or f"TILE_{axis.upper()}" not in given:
        return
    width, end = (_column(given[name], ranks) for name in (f"TILE_{axis.upper()}", f"num_{axis}"))
    reach = np.where(width > 0, np.minimum(width, end - first), end - first)
    if (wrong := tile.some & (reach != extent)).any():
        raise Mismatch(f"along {axis} it makes another number of elements than it is given", wrong)
