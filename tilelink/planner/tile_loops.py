"""Tile loops that are known: each is costed once for all schedules of a search that have it in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tilelink.ir.choices import Choices, ExchangeChoice
from tilelink.ir.nodes import Kernel, Launch
from tilelink.planner.draft import Parts
from tilelink.planner.layout import Problem, make_buffers, make_exchange
from tilelink.planner.memo import remembered
from tilelink.planner.roles import compute_role
from tilelink.planner.structure import Structure
from tilelink.planner.tile_run import TileLoop, in_two_parts, tile_loop
from tilelink.planner.tile_work import Programs, programs_of


def known_loops(kernels: Iterable[tuple[int, Problem, Kernel]], launches: Sequence[Launch]) -> dict[str, TileLoop]:
    """Tile loops by kernel, each of which computes a group of a problem that is `seen_by` it. Raises Illegal."""
    return {
        kernel.name: known_loop(
            seen, index, role.programs, programs_of(kernel), role.first, in_two_parts(launches, role)
        )
        for index, seen, kernel in kernels
        if (role := kernel.compute) is not None
    }


@remembered
def known_loop(problem: Problem, index: int, programs: int, on: Programs, first: int, two_parts: bool) -> TileLoop:
    """The tile loop of group `index`, of a problem that is `seen_by` it, on so many programs, which have had `first` tiles of
    other loops before; `two_parts` as in `tile_loop`. Raises Illegal."""
    role = replace(compute_role(problem, index, programs), programs=programs, first=first)
    return tile_loop(
        parts_of(problem.structure, problem.choices.exchanges), problem.topology, role, on, two_parts=two_parts
    )


@remembered
def parts_of(structure: Structure, choices: tuple[tuple[str, ExchangeChoice], ...]) -> Parts:
    """What the cost model reads of buffers and of exchanges, which are carried out so. Raises Illegal."""
    graph, problem = structure.graph, Problem(structure, Choices((), choices, ()))
    exchanges = {one.name: make_exchange(problem, one) for one in map(graph.relation, dict(choices)) if one is not None}
    buffers = {buffer.name: buffer for buffer in make_buffers(problem, exchanges)}
    return Parts(graph.values[graph.inputs[0]].dtype, exchanges, buffers)
