"""Sums by words of tiles: one for each relation that says so, of its source, in tiles that all ranks take in one order."""

from __future__ import annotations

from collections.abc import Iterator

from tilelink.ir.graph import Relation, TileGraph
from tilelink.ir.nodes import Kernel, Kind
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import Access, Operand, Place, Store, SumWords
from tilelink.ir.walk import Point, points
from tilelink.proof.bug_class import BugClass
from tilelink.proof.findings import Finding
from tilelink.proof.operands import fits, renaming


def words(schedule: Schedule, graph: TileGraph) -> Iterator[Finding]:
    """Each is done once, of the right value, on what the relation says, and its sum is stored."""
    wanted = {relation.name: relation for relation in graph.relations() if relation.in_tiles}
    done: list[str] = []
    for index, launch in enumerate(schedule.launches):
        if not isinstance(launch, Kernel) or launch.compute is None:
            continue
        steps = list(points(index, launch.compute))
        for at, step in steps:
            if not isinstance(step, SumWords):
                continue
            done.append(step.result)
            if step.result not in wanted:
                fact = f"the choices do not say that tiles make {step.result}"
                yield Finding(BugClass.WRONG_PLACE, str(at), fact)
                continue
            yield from _sum(graph, wanted[step.result], at, step)
            if not any(isinstance(other, Store) and other.value == step.result for _, other in steps):
                yield Finding(BugClass.WRONG_PLACE, str(at), f"nothing stores {step.result}")
    for name in wanted:
        if done.count(name) != 1:
            yield Finding(BugClass.WRONG_PLACE, f"relation {name}", f"tiles add it {done.count(name)} times")


def _sum(graph: TileGraph, relation: Relation, at: Point, step: SumWords) -> Iterator[Finding]:
    where = f"{at}, {step.result}"
    index, cut = _axes(graph, relation, at)
    if (step.value, step.index, step.cut) != (relation.source, index, cut):
        got = f"{step.value} at [{', '.join(step.index)}], cut along {step.cut or 'nothing'}"
        fact = f"it adds {got}, not {relation.source} at [{', '.join(index)}], cut along {cut or 'nothing'}"
        yield Finding(BugClass.WRONG_PLACE, where, fact)
    if (step.protocol, step.shots) != (relation.protocol, relation.shots):
        fact = f"its words are of {step.protocol.value} in {step.shots} shots, and the choices say otherwise"
        yield Finding(BugClass.WRONG_PLACE, where, fact)
    if any(axis.segments > 1 for axis in at.role.axes):
        fact = "each rank goes through segments from its own on, so that words of one tile meet those of another"
        yield Finding(BugClass.WRONG_PLACE, where, fact)


def stored_sum(schedule: Schedule, graph: TileGraph, relation: Relation, at: Point, step: Store) -> Iterator[Finding]:
    """It is stored here, all that is this rank's and nothing else."""
    where = f"{at}, store of {step.value}"
    index, cut = _axes(graph, relation, at)
    shares = schedule.num_ranks if cut else 1
    expected = Operand(relation.name, index, Access.POINTER, own_slots=shares, cut=cut)
    if step.operand != expected or step.place is not Place.HERE:
        fact = f"it goes to {step.operand.buffer} [{', '.join(step.operand.index)}] {step.place.value}"
        share = f", its share along {cut}" if cut else ""
        yield Finding(BugClass.WRONG_PLACE, where, f"{fact}, not to {relation.name} [{', '.join(index)}] here{share}")
        return
    yield from fits(schedule, at, step.operand, where)


def _axes(graph: TileGraph, relation: Relation, at: Point) -> tuple[tuple[str, ...], str]:
    """Axes of the role by which the source is indexed, and the one of which each rank has a share."""
    op = graph.op(relation.source)
    if op is None:
        return (), ""
    rename = renaming(op, at.role)
    index = tuple(rename.get(op.write.axis_of(dim), "") for dim in range(len(op.write.index)))
    return index, index[relation.dim] if relation.kind is Kind.SCATTER else ""
