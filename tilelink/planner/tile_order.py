"""Group -> tile space and the order of its tiles: how axes are cut into segments, and which tiles come first."""

from __future__ import annotations

import math
from dataclasses import replace

from tilelink.ir.choices import NONE, TritonLoop
from tilelink.ir.graph import Relation, TileOp
from tilelink.ir.nodes import Kind, TileShape
from tilelink.ir.ops.elementwise import Elementwise
from tilelink.ir.order import Nest, RankOrder, TileOrder
from tilelink.ir.spec import Attend, Matmul
from tilelink.planner.access import Space, reads_whole, slot_axis
from tilelink.planner.group import Group
from tilelink.planner.layout import Problem, make_exchange, rank_order
from tilelink.planner.memo import remembered
from tilelink.planner.rails import groups_of
from tilelink.planner.structure import Structure, group_of


def tile_space(problem: Problem, group: Group, loop: TritonLoop) -> Space:
    """Axes of the anchor; those along which parts lie are cut in one segment a rank."""
    anchor = group.anchor
    segments = {axis.name: 1 for axis in anchor.axes}
    for op, rename in renamed(group):
        for read in op.reads:
            relation = problem.graph.relation(read.value)
            in_parts = relation is not None and relation.kind is not Kind.SHIFT and not relation.plain
            if relation is not None and in_parts and not reads_whole(op, read, relation):
                axis = slot_axis(op, read, relation)
                segments[rename.get(axis, axis)] = problem.num_ranks
        for relation in sends(problem, op):
            if problem.structure.source_in_parts(relation):
                axis = op.write.axis_of(relation.dim)
                segments[rename.get(axis, axis)] = problem.num_ranks
    written = [axis.name for axis in anchor.axes if not axis.reduction]
    if isinstance(anchor.operation, Attend):  # no tile has rows of two sequences
        segments[written[0]] = anchor.operation.sequences
        if anchor.operation.sequences > 1 or anchor.operation.zigzag:  # of all a part has some tokens
            segments["k"] = anchor.operation.parts
    tiles = {axis.name: 0 for axis in anchor.axes}
    tiles |= dict(zip(written, (loop.tile.m, loop.tile.n), strict=False))
    if isinstance(anchor.operation, Matmul | Attend):
        tiles["k"] = loop.tile.k
    if isinstance(anchor.operation, Attend):
        tiles["d"] = anchor.operation.width
    extents = {axis.name: axis.extent // segments[axis.name] for axis in anchor.axes}
    masked = isinstance(anchor.operation, Attend) and anchor.operation.causal
    descending = frozenset(written[:1]) if masked else frozenset[str]()
    space = Space(extents, segments, tiles, own_first=loop.own_first, descending=descending)
    return replace(space, inwards=frozenset(written[:1])) if _inwards(problem, group, space, loop) else space


def _inwards(problem: Problem, group: Group, space: Space, loop: TritonLoop) -> bool:
    """Whether the last tile of rows is shifted inwards, where it would stick out of its segment. A descriptor fills rows that do
    not exist at a fraction of the rate at which it loads others, and has none that end within a matrix."""
    rows = next(axis for axis in group.anchor.axes if not axis.reduction)
    if not isinstance(group.anchor.operation, Matmul) or any(axis.routed for axis in group.anchor.axes):
        return False
    shifts = space.ragged(rows.name) and space.extents[rows.name] > space.tiles[rows.name]
    plain = all(isinstance(op.operation, Matmul | Elementwise) for op in group.ops) and loop.tile.warpgroups == 1
    if not shifts or not plain or not problem.topology.gpu.tensor_descriptors:
        return False
    known = [relation for op in group.ops for relation in sends(problem, op)]
    known += [one for op in group.ops for read in op.reads if (one := problem.graph.relation(read.value)) is not None]
    return not any(one.in_tiles or one.kind in (Kind.SHIFT, Kind.RETURN) for one in known)


def renamed(group: Group) -> list[tuple[TileOp, dict[str, str]]]:
    """Each op of the group with the mapping of its axes to the anchor's: written dimensions correspond by position."""
    written = [group.anchor.write.axis_of(dim) for dim in range(len(group.anchor.write.index))]
    return [
        (op, {op.write.axis_of(dim): axis for dim, axis in enumerate(written)} if op is not group.anchor else {})
        for op in group.ops
    ]


def sends(problem: Problem, op: TileOp) -> list[Relation]:
    """Relations that tiles of `op` feed one by one; a SHIFT takes the value when it is complete."""
    found = problem.graph.relations()
    return [relation for relation in found if relation.source == op.name and relation.kind is not Kind.SHIFT]


def tile_order(problem: Problem, group: Group, space: Space, loop: TritonLoop, summed: Relation | None) -> TileOrder:
    """Segments in the order of their arrival (own first), or so that what leaves is made first (own last).

    If the parts of `summed` are added in the epilogue, its segments come in its order, whatever else arrives or leaves: own
    tiles wait for what peers make, so that in any other order they could come before tiles that peers wait for.
    """
    written = [axis.name for axis in group.anchor.axes if not axis.reduction]
    attends = isinstance(
        group.anchor.operation, Attend
    )  # heads of queries that share keys go through all rows together
    major = next((name for name in written if space.segments[name] > 1), written[-1 if attends else 0])
    if summed is not None:
        major = written[summed.dim]
    minor = next((name for name in written if name != major), "")
    arriving, leaving = _along(problem, group, major)
    first = 1 if summed is not None or (leaving and not arriving) else 0
    nest, tiles = Nest.RANK_MAJOR, loop.group
    if arriving or leaving:
        relation = summed or (*arriving, *leaving)[0]
        nest = problem.choice(relation).nest
        chunk = max(1, make_exchange(problem, relation).chunk_rows // max(1, space.tiles[major]))
        # a group never spans chunks: its first tiles would wait for rows that only its last ones need
        tiles = chunk if nest is Nest.CHUNK_MAJOR else min(tiles, chunk)
    groups, rest = divmod(-(-space.extents[major] // space.tiles[major]), tiles) if space.tiles[major] else (1, 0)
    late = summed is not None and nest is Nest.CHUNK_MAJOR and groups > 1 and rest == 0
    along = (*arriving, *leaving, *([summed] if summed is not None else []))
    found = (groups_of(problem.topology, problem.choice(one).mover) for one in along)
    groups_ = min(found, key=lambda one: (one.node, -one.half), default=None)
    ranks = rank_order(problem.topology, first, groups=groups_)
    minor_ranks = rank_order(problem.topology, 0, groups=groups_)
    if isinstance(group.anchor.operation, Attend) and group.anchor.operation.sequences > 1:
        ranks = RankOrder(group.anchor.operation.sequences, group.anchor.operation.sequences, 0, 1)
    return TileOrder(major, minor, ranks, minor_ranks, nest, tiles, late)


def _along(problem: Problem, group: Group, axis: str) -> tuple[list[Relation], list[Relation]]:
    """Relations whose parts arrive, and whose parts leave, along `axis` of the group's tile space."""
    arriving, leaving = [], []
    for op, rename in renamed(group):
        for read in op.reads:
            relation = problem.graph.relation(read.value)
            if relation is not None and not relation.library and relation.kind is not Kind.SHIFT:
                slot = slot_axis(op, read, relation)
                if rename.get(slot, slot) == axis:
                    arriving.append(relation)
        for relation in sends(problem, op):
            if relation.kind is Kind.SCATTER and not relation.library:
                slot = op.write.axis_of(relation.dim)
                if rename.get(slot, slot) == axis:
                    leaving.append(relation)
    return arriving, leaving


@remembered
def num_tiles(structure: Structure, name: str, m: int, n: int) -> int:
    """Tiles of m x n of a loop: none crosses from one part into the next. Of a routed one, as many as are likely."""
    group = group_of(structure, name)
    space = tile_space(Problem(structure, NONE), group, TritonLoop(TileShape(m, n, 64, 4, 1), 1, False))
    written = [axis for axis in group.anchor.axes if not axis.reduction]
    return math.prod(
        axis.routed.likely_tiles(space.tiles[axis.name])
        if axis.routed is not None
        else space.segments[axis.name] * -(-space.extents[axis.name] // (space.tiles[axis.name] or 1))
        for axis in written
    )
