"""What two schedules differ in: the innermost places, with what stands there in either."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from itertools import pairwise
from typing import TypeVar

from tilelink.ir.order import ChunkOrder, Die, RankOrder, TileOrder
from tilelink.ir.schedule import Schedule

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Difference:
    """`before` became `after` in field `field` of the last of `ancestors` (nodes of the original, outermost first).

    Orders are compared as a whole, tuples element by element if just one of equally many differs.
    """

    field: str
    ancestors: tuple[object, ...]
    before: object
    after: object

    @property
    def owner(self) -> object:
        """The node whose field it is, or that holds the tuple."""
        return self.ancestors[-1] if self.ancestors else None

    def within(self, kind: type[T]) -> T | None:
        """The innermost ancestor of that class."""
        return next((node for node in reversed(self.ancestors) if isinstance(node, kind)), None)


def differences(before: Schedule, after: Schedule) -> tuple[Difference, ...]:
    return tuple(_compare("", (), before, after))


def _compare(field: str, ancestors: tuple[object, ...], before: object, after: object) -> Iterator[Difference]:
    if before == after:
        return
    order = isinstance(before, ChunkOrder | TileOrder | RankOrder | Die)
    if is_dataclass(before) and not isinstance(before, type) and type(before) is type(after) and not order:
        for inner in fields(before):
            name = inner.name
            yield from _compare(name, (*ancestors, before), getattr(before, name), getattr(after, name))
        return
    if isinstance(before, tuple) and isinstance(after, tuple) and len(before) == len(after):
        changed = [(one, other) for one, other in zip(before, after, strict=True) if one != other]
        if len(changed) == 1:
            yield from _compare(field, ancestors, *changed[0])
            return
    yield Difference(field, ancestors, before, after)


def repeated(before: tuple[object, ...], after: tuple[object, ...]) -> object:
    """The element that `after` has twice in a row and `before` once, all else equal; None if it is otherwise."""
    for position, node in enumerate(before):
        if after == (*before[:position], node, *before[position:]):
            return node
    return None


def swapped(before: tuple[object, ...], after: tuple[object, ...]) -> tuple[object, object] | None:
    """The neighbours that changed places, all else equal."""
    for position, (one, other) in enumerate(pairwise(before)):
        if after == (*before[:position], other, one, *before[position + 2 :]):
            return one, other
    return None
