"""Regions whose elements follow each other in memory: programs copy them block by block, whatever their shape is."""

from __future__ import annotations

from functools import reduce

from lowering.steps.indices import Scope
from tilelink.schedule.index import Number
from tilelink.schedule.memory import Protocol, Region
from tilelink.schedule.steps import Move


def is_flat(scope: Scope, step: Move) -> bool:
    """Whether each part of a move is a run of elements on both sides, inside of its buffers wherever the step may stand."""
    regions = (*step.source, *step.target)
    simple = {one.name for one in scope.schedule.buffers if one.protocol is Protocol.SIMPLE}
    return all(one.buffer in simple and run(scope, one) is not None for one in regions)


def run(scope: Scope, region: Region) -> tuple[Number, Number] | None:
    """How many elements of a region follow each other, if all do and none sticks out of the buffer: so many times so many."""
    shape = scope.schedule.shapes[region.buffer]
    first = next((dim for dim, extent in enumerate(region.extent) if extent != 1), len(shape) - 1)
    for dim, (start, extent, size) in enumerate(zip(region.start, region.extent, shape, strict=True)):
        if scope.range(start).low < 0 or scope.range(start + extent).high > size:
            return None
        if dim > first and (start != 0 or scope.range(extent).low != size):
            return None
    one: Number = 1
    return region.extent[first], reduce(lambda total, size: total * size, shape[first + 1 :], one)
