"""What the library computes -> its launch: matmuls whole, or chunk by chunk of an exchange; attention whole, or part by part."""

from __future__ import annotations

from dataclasses import replace

from tilelink.ir.calls import LibraryOp
from tilelink.ir.graph import Map, Relation, TileOp
from tilelink.ir.nodes import Kind
from tilelink.ir.order import RankOrder
from tilelink.ir.spec import Attend, Matmul
from tilelink.ir.steps import Access, Operand, Wait
from tilelink.planner.access import Space, read_operand, read_wait
from tilelink.planner.group import Group
from tilelink.planner.in_library import attends_to_parts, why_not_in_library
from tilelink.planner.layout import Illegal, Problem, logs_of_parts, rank_order, source_of
from tilelink.planner.rails import groups_of
from tilelink.planner.tile_order import sends


def library_op(problem: Problem, group: Group) -> LibraryOp:
    """The launch that computes `group`. Raises Illegal."""
    op, how = group.anchor, group.anchor.operation
    if not isinstance(how, Matmul | Attend) or len(group.ops) > 1:
        raise Illegal(f"{group.name} is no plain matmul or attention, so the library does not compute it")
    outs = [op.name] if problem.structure.is_kept(op.name) else []
    targets = sends(problem, op)
    if len(outs) + len(targets) != 1:
        raise Illegal(f"{op.name} has several destinations, and a call of the library writes one")
    space = Space(
        {axis.name: axis.extent for axis in op.axes},
        {axis.name: 1 for axis in op.axes},
        {axis.name: 0 for axis in op.axes},
    )
    operands = tuple(read_operand(problem, op, read, space, {}) for read in op.reads)
    made = LibraryOp(Operand("", ("m", "n"), Access.POINTER), how, operands, rank_order(problem.topology, 0))
    if isinstance(how, Attend):
        made = _attention(problem, op, made)
    else:
        wait, split = _left(problem, op.reads[0], operands[0])
        if operands[1].slot or operands[1].remote:
            raise Illegal(f"{op.reads[1].value} lies in parts, which the library cannot read as one matrix")
        made = replace(made, wait=wait, split=split, order=_arrival(problem, split) if split else made.order)
    return _into(problem, targets[0], made) if targets else replace(made, out=replace(made.out, buffer=op.name))


def _attention(problem: Problem, op: TileOp, made: LibraryOp) -> LibraryOp:
    """Attention in one call, or in one for each part."""
    if reason := why_not_in_library(problem.graph, op, problem.topology.gpu):
        raise Illegal(reason)
    assert isinstance(op.operation, Attend), "it attends"
    if not attends_to_parts(problem.graph, op):
        return replace(made, logs=op.operation.logs)
    for read, operand in zip(op.reads[1:], made.operands[1:], strict=True):
        if operand.remote:
            raise Illegal(f"parts of {read.value} lie at their owners, where the library cannot read them")
    return replace(
        made, split=tuple(read.value for read in op.reads[1:]), logs=op.operation.logs or logs_of_parts(op.name)
    )


def _arrival(problem: Problem, split: tuple[str, ...]) -> RankOrder:
    """The order in which parts of what an exchange brings come."""
    relation = problem.graph.relation(split[0])
    assert relation is not None
    groups = groups_of(problem.topology, problem.choice(relation).mover)
    return rank_order(problem.topology, 0, groups=groups)


def _left(problem: Problem, read: Map, operand: Operand) -> tuple[Wait | None, tuple[str, ...]]:
    """What chunks of the left operand are waited for, and the exchange that brings them."""
    relation = problem.graph.relation(read.value)
    if relation is None or relation.plain:
        return None, ()
    if relation.library or relation.dim != 0 or operand.remote or operand.window:
        raise Illegal(f"{read.value} lies in parts, which the library cannot read as one matrix")
    op = problem.graph.consumers(relation.name)[0]
    return read_wait(problem, op, read, {}), (relation.name,)


def _into(problem: Problem, relation: Relation, made: LibraryOp) -> LibraryOp:
    """The output goes into an exchange: chunk by chunk where copy engines push it."""
    source = source_of(problem, relation)
    made = replace(made, out=replace(made.out, buffer=source))
    if relation.kind is Kind.REDUCE or relation.library:
        if relation.kind is Kind.SCATTER and relation.dim != 0:  # what a gather sends is one part, hence one matrix
            raise Illegal(f"parts of {relation.source} along columns are not one matrix for the library")
        return made
    if isinstance(made.how, Attend):  # nobody scatters it
        return made
    if made.split or (relation.kind is Kind.SCATTER and relation.dim != 0):
        raise Illegal(f"parts of {relation.source} are not one matrix for the library")
    made = replace(made, order=rank_order(problem.topology, 1), wait=None)
    if problem.split_source(relation):
        return replace(made, split=(relation.name,), counted=True)
    return made
