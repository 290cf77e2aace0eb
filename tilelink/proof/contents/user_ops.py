"""What a user's function makes of tiles: it counts along axes from the addresses and to the ends that it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from tilelink.ir.ops.user_op import WHOLE, UserOp
from tilelink.ir.spec import BoundNode
from tilelink.proof.contents.tile import Held, Tile
from tilelink.proof.contents.values import Mismatch, Values, first_made
from tilelink.schedule.index import Ints


def user_tile(
    values: Values,
    node: BoundNode,
    operands: Sequence[str | float | Ints],
    held: Mapping[str, Held],
    ranks: Ints,
    name: str,
) -> Tile:
    """The tile, called `name`, that the function of `node` makes of what it is given. Raises Mismatch."""
    same = [(one, node.operation) for one in values.nodes(name) if one.operation == node.operation]
    return first_made(partial(made_of_user, values, operands, held, ranks), same, f"the spec has no {name}")


def made_of_user(
    values: Values,
    operands: Sequence[str | float | Ints],
    held: Mapping[str, Held],
    ranks: Ints,
    node: BoundNode,
    op: UserOp,
) -> Tile:
    """The tile that `op`, of the operands of `node`, makes of what it is given. Raises Mismatch."""
    given = dict(zip(op.parameters, operands, strict=True))
    starts: dict[str, Ints] = {}
    extents: dict[str, Ints] = {}
    run_over: dict[str, int] = {}  # axes along which an operand is there as a whole
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
                size = _whole(values, value, dim, part.start[dim], part.extent[dim], tile)
                _from_its_beginning(given, axis.removesuffix(WHOLE), size, tile, tile.offset[lies], ranks)
                if axis.endswith(WHOLE):
                    run_over[axis.removesuffix(WHOLE)] = size
                continue
            first = column(given.get(axis), ranks)
            if (wrong := tile.some & (tile.offset[lies] != first)).any():
                raise Mismatch(f"{tensor} is not where it counts from along {axis}", wrong)
            reach = np.minimum(part.extent[dim], _reach(given, axis, first, ranks))
            before = starts.setdefault(axis, part.start[dim])
            if (wrong := tile.some & (before != part.start[dim])).any():
                raise Mismatch(f"its operands lie at other places along {axis}", wrong)
            extents[axis] = np.minimum(extents.get(axis, reach), reach)
    for axis, size in run_over.items():  # the function counts along all of it
        if axis not in given:
            continue
        first = column(given[axis], ranks)
        if (wrong := known & (starts.setdefault(axis, first) != first)).any():
            raise Mismatch(f"it counts from elsewhere along {axis} than the operand of which it is given all", wrong)
        reach = np.minimum(_reach(given, axis, first, ranks), size - first)
        extents[axis] = np.minimum(extents.get(axis, reach), reach)
    missing = [axis for axis in op.writes if axis not in starts]
    if missing:
        raise Mismatch(f"no operand says where it is along {', '.join(missing)}")
    start, extent = (tuple(of[axis] for axis in op.writes) for of in (starts, extents))
    skip = tuple(one * 0 for one in start)
    axes = tuple(range(len(start)))
    return Tile(values.term(node), axes, ranks, start, extent, skip, known, shape=_registers(op, given))


def _registers(op: UserOp, given: Mapping[str, str | float | Ints]) -> tuple[int, ...] | None:
    """The shape of the tile that is made, if the function is given all of it as numbers."""
    wide = [given.get(f"TILE_{axis.upper()}") for axis in op.writes]
    numbers = [int(one.flat[0]) if isinstance(one, np.ndarray) else int(float(one)) for one in wide if one is not None]
    return tuple(numbers) if len(numbers) == len(wide) and all(numbers) else None


def column(one: str | float | Ints | None, ranks: Ints) -> Ints:
    if isinstance(one, np.ndarray):
        return one
    return np.full(len(ranks), int(float(one)) if one is not None else 0)


def _whole(values: Values, value: str, dim: int, start: Ints, extent: Ints, tile: Tile) -> int:
    """How long the axis is that a tile runs over: all of the value is there."""
    size = values.shapes[value][dim]
    if (wrong := tile.known & ((start != 0) | (extent != size))).any():
        raise Mismatch(f"it is given a part of {value}, and runs over all of it", wrong)
    return size


def _from_its_beginning(
    given: Mapping[str, str | float | Ints], axis: str, size: int, tile: Tile, offset: Ints, ranks: Ints
) -> None:
    """A tile runs from the address that it is given over as many elements as it is told."""
    if (wrong := tile.some & (offset != 0)).any():
        raise Mismatch(f"the address does not begin where {tile.term} does along {axis}", wrong)
    if f"num_{axis}" in given and (wrong := tile.some & (column(given[f"num_{axis}"], ranks) != size)).any():
        raise Mismatch(f"it runs over another number of elements along {axis} than there are", wrong)


def _reach(given: Mapping[str, str | float | Ints], axis: str, first: Ints, ranks: Ints) -> Ints:
    """How many elements the function makes along `axis`: a tile of them, up to the end that it is given.

    It may load more than there is. Elements of an axis are computed apart, and those of which nothing is there are not stored.
    """
    most = np.full(len(ranks), np.iinfo(np.int64).max)
    if (width := f"TILE_{axis.upper()}") in given:
        tile = column(given[width], ranks)  # 0: all there is
        most = np.where(tile > 0, tile, most)
    if (end := f"num_{axis}") in given:
        most = np.minimum(most, column(given[end], ranks) - first)
    return most
