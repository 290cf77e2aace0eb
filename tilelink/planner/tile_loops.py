"""Tile loops that are known: each is costed once for all schedules of a search that have it in common."""

from __future__ import annotations

from dataclasses import replace

from tilelink.ir.choices import Choices, ExchangeChoice
from tilelink.planner.draft import Parts
from tilelink.planner.layout import Problem, make_buffers, make_exchange
from tilelink.planner.memo import remembered
from tilelink.planner.roles import compute_role
from tilelink.planner.structure import Structure
from tilelink.planner.tile_run import TileLoop, tile_loop
from tilelink.planner.tile_work import Programs


@remembered
def known_loop(problem: Problem, index: int, programs: int, on: Programs, first: int) -> TileLoop:
    """The tile loop of group `index`, of a problem that is `seen_by` it, on so many programs, which have had `first` tiles of
    other loops before. Raises Illegal."""
    role = replace(compute_role(problem, index, programs), programs=programs, first=first)
    return tile_loop(parts_of(problem.structure, problem.choices.exchanges), problem.topology, role, on)


@remembered
def parts_of(structure: Structure, choices: tuple[tuple[str, ExchangeChoice], ...]) -> Parts:
    """What the cost model reads of buffers and of exchanges, which are carried out so. Raises Illegal."""
    graph, problem = structure.graph, Problem(structure, Choices((), choices, ()))
    exchanges = {one.name: make_exchange(problem, one) for one in map(graph.relation, dict(choices)) if one is not None}
    buffers = {buffer.name: buffer for buffer in make_buffers(problem, exchanges)}
    return Parts(graph.values[graph.inputs[0]].dtype, exchanges, buffers)
