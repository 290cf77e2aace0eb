"""Tile loops that are known: each is costed once for all schedules of a search that have it in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilelink.ir.nodes import Exchange
from tilelink.planner.draft import Parts
from tilelink.planner.layout import Problem, make_buffers, make_exchange
from tilelink.planner.memo import remembered
from tilelink.planner.roles import compute_role
from tilelink.planner.tile_run import TileLoop, tile_loop
from tilelink.planner.tile_work import Programs


@remembered
def known_loop(problem: Problem, index: int, programs: int, on: Programs, first: int) -> TileLoop:
    """The tile loop of group `index`, of a problem that is `seen_by` it, on so many programs, which have had `first` tiles of
    other loops before. Raises Illegal."""
    known = {name for name, _ in problem.choices.exchanges}
    exchanges = {one.name: make_exchange(problem, one) for one in problem.structure.relations if one.name in known}
    role = replace(compute_role(problem, index, programs), programs=programs, first=first)
    return tile_loop(parts_of(problem, exchanges), problem.topology, role, on)


def parts_of(problem: Problem, exchanges: Mapping[str, Exchange]) -> Parts:
    """What the cost model reads of buffers and of these exchanges."""
    graph = problem.graph
    buffers = {buffer.name: buffer for buffer in make_buffers(problem, exchanges)}
    return Parts(graph.values[graph.inputs[0]].dtype, exchanges, buffers)
