"""The predicted time of choices, or as much as is needed to know that it is too long.

What is known of single decisions comes first (`bounds.least_us`, of which a search has asked before), then what the tile loops
take by themselves, then a draft of all launches and the course of a call.
"""

from __future__ import annotations

from tilelink.ir.nodes import CopyEngine
from tilelink.planner.bounds import library_least_us
from tilelink.planner.build import Builder
from tilelink.planner.cost import draft_us, drag_us, most_boost_us
from tilelink.planner.layout import Problem
from tilelink.planner.tile_loops import known_loop
from tilelink.planner.tile_work import programs_of

_SHORTER_US = 1.0  # at most, a loop takes less than by itself where its programs go on from those before
_ROUNDED = 1e-3


def time_us(problem: Problem, limit: float) -> tuple[float, bool]:
    """The predicted time of the schedule of `problem` in us, and True; or, if it is `limit` at least, such a number and False.
    Raises Illegal."""
    builder = Builder(problem)
    least = loops_us(builder, limit)
    if least >= limit:
        return least, False
    us = round(draft_us(builder.draft(), problem.topology, builder.loops(), limit), 3)
    return us, us < limit


def loops_us(builder: Builder, limit: float) -> float:
    """What all tile loops and the library take at least, or those that together take `limit` or more. Raises Illegal."""
    problem = builder.problem
    total, tensor = library_least_us(problem.structure)
    total += drag_us(problem.topology, (x for x in builder.exchanges if isinstance(x.mover, CopyEngine))) - _ROUNDED
    for index in range(len(problem.groups)):
        if problem.host(index) == index and not problem.structure.is_library(index):
            seen, kernel = builder.kernel(index)
            assert kernel.compute is not None
            loop = known_loop(seen, index, kernel.compute.programs, programs_of(kernel))
            total += loop.least_us - _SHORTER_US
            tensor += loop.cost.tensor_us
            if total - most_boost_us(total, tensor) >= limit:
                break
    return total - most_boost_us(total, tensor)
