"""Matmuls that the library computes -> their launch: whole, or chunk by chunk of an exchange."""

from __future__ import annotations

from tilelink.ir.calls import LibraryGemm
from tilelink.ir.graph import Map, Relation
from tilelink.ir.nodes import Kind
from tilelink.ir.steps import Access, Operand, Wait
from tilelink.planner.access import Space, read_operand, read_wait
from tilelink.planner.group import Group
from tilelink.planner.layout import Illegal, Problem, rank_order, source_of
from tilelink.planner.tile_order import sends


def library_gemm(problem: Problem, group: Group) -> LibraryGemm:
    """The launch that computes `group`. Raises Illegal."""
    if not group.matmuls or len(group.ops) > 1:
        raise Illegal(f"{group.name} is no plain matmul, so the library does not compute it")
    op = group.anchor
    outs = [op.name] if problem.structure.is_kept(op.name) else []
    targets = sends(problem, op)
    if len(outs) + len(targets) != 1:
        raise Illegal(f"{op.name} has several destinations, and a library matmul writes one")
    space = Space(
        {axis.name: axis.extent for axis in op.axes},
        {axis.name: 1 for axis in op.axes},
        {axis.name: 0 for axis in op.axes},
    )
    left, right = (read_operand(problem, op, read, space, {}) for read in op.reads)
    left, wait, split = _left(problem, op.reads[0], left)
    if right.slot:
        raise Illegal(f"{op.reads[1].value} lies in parts, which the library cannot read as one matrix")
    if not targets:
        order = rank_order(problem.topology, 0)
        out = Operand(op.name, ("m", "n"), Access.POINTER)
        return LibraryGemm(out, left, right, split, order, wait, False)
    return _into(problem, targets[0], left, right, split, wait)


def _left(problem: Problem, read: Map, operand: Operand) -> tuple[Operand, Wait | None, str]:
    """The left operand, what chunks of it are waited for, and the exchange that brings them."""
    relation = problem.graph.relation(read.value)
    if relation is None or problem.structure.is_plain(relation):
        return operand, None, ""
    if relation.library or relation.dim != 0 or operand.remote or operand.window:
        raise Illegal(f"{read.value} lies in parts, which the library cannot read as one matrix")
    op = problem.graph.consumers(relation.name)[0]
    return operand, read_wait(problem, op, read, {}), relation.name


def _into(
    problem: Problem, relation: Relation, left: Operand, right: Operand, split: str, wait: Wait | None
) -> LibraryGemm:
    """The output goes into an exchange: chunk by chunk where copy engines push it."""
    order = rank_order(problem.topology, 1)
    if relation.kind is Kind.REDUCE or relation.library:
        if relation.kind is Kind.SCATTER and relation.dim != 0:  # what a gather sends is one part, hence one matrix
            raise Illegal(f"parts of {relation.source} along columns are not one matrix for the library")
        out = Operand(source_of(problem, relation), ("m", "n"), Access.POINTER)
        order = rank_order(problem.topology, 0)
        return LibraryGemm(out, left, right, split, order, wait, False)
    if split or (relation.kind is Kind.SCATTER and relation.dim != 0):
        raise Illegal(f"parts of {relation.source} are not one matrix for the library")
    out = Operand(source_of(problem, relation), ("m", "n"), Access.POINTER)
    if problem.split_source(relation):
        return LibraryGemm(out, left, right, relation.name, order, None, True)
    return LibraryGemm(out, left, right, "", order, None, False)
