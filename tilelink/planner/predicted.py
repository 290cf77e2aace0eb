"""The predicted time of choices, or as much as is needed to know that it is too long.

What is known without tile loops comes first (`bounds.least_us`, of which a search has asked before), then a draft of all
launches, what its tile loops take by themselves, and the course of a call.
"""

from __future__ import annotations

from tilelink.planner.build import Builder
from tilelink.planner.cost import draft_us
from tilelink.planner.layout import Problem


def time_us(problem: Problem, limit: float) -> tuple[float, bool]:
    """The predicted time of the schedule of `problem` in us, and True; or, if it is `limit` at least, such a number and False.
    Raises Illegal."""
    builder = Builder(problem)
    us = round(draft_us(builder.draft(), problem.topology, builder.loops(), limit), 3)
    return us, us < limit
