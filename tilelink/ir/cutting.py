"""Bounds of slices: what `y[a:b]`, `chunk` and `split` mean, as expressions of sizes. Nothing here knows placements."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NoReturn, Protocol

import sympy

from tilelink.errors import BadDim, BadSlice
from tilelink.ir.location import Location

Bounds = tuple[sympy.Expr, sympy.Expr]  # [start, stop)


class Shaped(Protocol):
    """What of a tensor is needed here."""

    shape: tuple[sympy.Expr, ...]
    name: str


def index_bounds(tensor: Shaped, index: object, location: Location) -> Iterator[tuple[int, Bounds]]:
    """(dim, bounds) of each dimension that `tensor[index]` cuts. Raises BadSlice."""
    items = index if isinstance(index, tuple) else (index,)
    rank = len(tensor.shape)
    places = [at for at, item in enumerate(items) if item is Ellipsis]
    if len(items) - len(places) > rank or len(places) > 1:
        _refuse(tensor, _shown(items), f"it has more places than {tensor.name} has dimensions", location)
    if places:
        whole = (slice(None),) * (rank - len(items) + 1)
        items = (*items[: places[0]], *whole, *items[places[0] + 1 :])
    for dim, item in enumerate(items):
        if not isinstance(item, slice):
            reason = "an index that is no slice takes a dimension away, and results here keep theirs"
            _refuse(tensor, _shown(items), reason, location)
        if item.step not in (None, 1):
            _refuse(tensor, _shown(items), "elements with gaps between them are no tile in memory", location)
        if item.start is not None or item.stop is not None:
            yield dim, _bounds(tensor, item, dim, _shown(items), location)


def chunk_bounds(tensor: Shaped, chunks: int, dim: int, location: Location) -> tuple[int, list[Bounds]]:
    """The dimension, counted from the first one, and the bounds of `chunks` equal pieces. Raises BadDim, BadSlice."""
    dim = _dim(tensor, "chunk", dim, location)
    text, extent = f".chunk({chunks}, dim={dim})", tensor.shape[dim]
    if isinstance(chunks, bool) or not isinstance(chunks, int) or chunks < 1:
        _refuse(tensor, text, "the number of pieces is a positive integer", location)
    size = extent / chunks
    if size.is_number and not size.is_integer:
        _refuse(
            tensor, text, f"{extent} elements are not {chunks} equal pieces; .split([…]) takes unequal ones", location
        )
    return dim, [(size * at, size * (at + 1)) for at in range(chunks)]


def split_bounds(
    tensor: Shaped, sizes: int | sympy.Expr | Sequence[int | sympy.Expr], dim: int, location: Location
) -> tuple[int, list[Bounds]]:
    """The dimension, counted from the first one, and the bounds of pieces of `sizes`. Raises BadDim, BadSlice."""
    dim = _dim(tensor, "split", dim, location)
    text, extent = f".split({sizes}, dim={dim})", tensor.shape[dim]
    if isinstance(sizes, Sequence) and not isinstance(sizes, str):
        pieces = [_bound(tensor, size, text, location) for size in sizes]
        if sympy.simplify(sum(pieces) - extent) != 0:
            _refuse(tensor, text, f"the pieces have {sum(pieces)} elements in all, not {extent}", location)
    else:
        size = _bound(tensor, sizes, text, location)
        count = sympy.simplify(extent / size) if size != 0 else size
        if not count.is_Integer or count < 1:
            _refuse(tensor, text, f"{extent} elements are no known number of pieces of {size}", location)
        pieces = [size] * int(count)
    starts = [sum(pieces[:at], sympy.Integer(0)) for at in range(len(pieces) + 1)]
    bounds = list(pairwise(starts))
    for start, stop in bounds:
        _check_not_empty(tensor, start, stop, text, location)
    return dim, bounds


def _dim(tensor: Shaped, function: str, dim: object, location: Location) -> int:
    rank = len(tensor.shape)
    if not isinstance(dim, int) or dim not in range(-rank, rank):
        legal, shape = ", ".join(map(str, range(rank))), ", ".join(map(str, tensor.shape))
        raise BadDim(location, collective=function, dim=dim, tensor=tensor.name, shape=shape, legal=legal)
    return dim % rank


def _bounds(tensor: Shaped, item: slice, dim: int, text: str, location: Location) -> Bounds:
    extent = tensor.shape[dim]

    def end(bound: object, default: sympy.Expr) -> sympy.Expr:
        found = default if bound is None else _bound(tensor, bound, text, location)
        return extent + found if found.is_negative else found

    start, stop = end(item.start, sympy.Integer(0)), end(item.stop, extent)
    if (stop - extent).is_positive or start.is_negative:
        reason = f"dimension {dim} has {extent} elements (a slice here is not shortened to what is there)"
        _refuse(tensor, text, reason, location)
    _check_not_empty(tensor, start, stop, text, location)
    return start, stop


def _check_not_empty(tensor: Shaped, start: sympy.Expr, stop: sympy.Expr, text: str, location: Location) -> None:
    if sympy.simplify(stop - start).is_nonpositive:
        _refuse(tensor, text, "it has no elements", location)


def _bound(tensor: Shaped, bound: object, text: str, location: Location) -> sympy.Expr:
    if isinstance(bound, sympy.Expr):
        return bound
    try:
        return sympy.Integer(operator.index(bound))  # type: ignore[arg-type]
    except TypeError:
        return _refuse(tensor, text, f"{bound!r} is no position", location)


def _shown(items: tuple[object, ...]) -> str:
    return f"[{', '.join(map(_item, items))}]"


def _item(item: object) -> str:
    if not isinstance(item, slice):
        return "..." if item is Ellipsis else str(item)
    ends = ["" if end is None else str(end) for end in (item.start, item.stop)]
    return ":".join([*ends, *([] if item.step is None else [str(item.step)])])


def _refuse(tensor: Shaped, text: str, reason: str, location: Location) -> NoReturn:
    raise BadSlice(location, tensor=tensor.name, index=text, reason=reason)
