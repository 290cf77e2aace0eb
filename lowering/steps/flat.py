"""Regions whose elements follow each other in memory: programs copy them block by block, whatever their shape is."""

from __future__ import annotations

from functools import reduce
from operator import mul

from lowering.steps.indices import Scope
from tilelink.ir.enums import Protocol
from tilelink.schedule.index import Number, names_in
from tilelink.schedule.memory import Region
from tilelink.schedule.steps import Move


def is_flat(scope: Scope, step: Move, *, packets: bool = False) -> bool:
    """Whether each part of a move is a run of elements on both sides, inside of its buffers wherever the step may stand.
    `packets`: or its one part a run of packets, which stay what they are."""
    regions = (*step.source, *step.target)
    kinds = {one.name: one.protocol for one in scope.schedule.buffers}
    moved = {kinds[one.buffer] for one in regions}
    if moved != {Protocol.SIMPLE} and not (packets and len(moved) == 1 and len(regions) == 2):
        return False
    return all(run(scope, one) is not None for one in regions)


def run(scope: Scope, region: Region) -> tuple[Number, Number] | None:
    """How many elements of a region follow each other, if all do and none sticks out of the buffer: so many times so many. Rows
    that are looked up lie anywhere."""
    if any("lane" in names_in(start) for start in region.start):
        return None
    shape = scope.schedule.shapes[region.buffer]
    for start, extent, size in zip(region.start, region.extent, shape, strict=True):
        if scope.range(start).low < 0 or scope.range(start + extent).high > size:
            return None
    if not contiguous(scope, region):
        return None
    first, one = _first(region), 1
    return region.extent[first], reduce(mul, shape[first + 1 :], one)


def contiguous(scope: Scope, region: Region) -> bool:
    """Whether a region is whole along every dimension behind the first one with an extent above 1."""
    behind = slice(_first(region) + 1, None)
    rest = zip(region.start[behind], region.extent[behind], scope.schedule.shapes[region.buffer][behind], strict=True)
    return all(start == 0 and scope.range(extent).low == size for start, extent, size in rest)


def is_matrix(region: Region) -> bool:
    """Whether a region has two dimensions, beside those of which it has one element: rows that lie at one distance."""
    return len(region.extent) > 1 and all(extent == 1 for extent in region.extent[:-2])


def _first(region: Region) -> int:
    """The first dimension with an extent above 1, or else the last one."""
    return next((dim for dim, extent in enumerate(region.extent) if extent != 1), len(region.extent) - 1)
