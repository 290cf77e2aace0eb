"""Operands of steps: the buffer, the part and the axes by which an operation of the spec must be loaded or stored."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tilelink.ir.graph import Interval, Map, Sum, TileGraph, TileOp, in_part
from tilelink.ir.nodes import ComputeRole, Kind
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import Operand
from tilelink.ir.walk import Point, extent_of, has_axis
from tilelink.proof.bug_class import BugClass
from tilelink.proof.findings import Finding


def renaming(op: TileOp, role: ComputeRole) -> dict[str, str]:
    """Axes of an operation -> axes of the role that computes it: written dimensions correspond by position."""
    written = [axis.name for axis in role.axes if not axis.reduction]
    if len(written) != len(op.write.index):
        return {}
    return {op.write.axis_of(dim): axis for dim, axis in enumerate(written)}


def extents(op: TileOp, at: Point, rename: dict[str, str], where: str) -> Iterator[Finding]:
    """The role runs over the whole tile space of the operation, or over the own segment of it."""
    for axis in op.axes:
        name = rename.get(axis.name, axis.name)
        if not has_axis(at.role, name):
            continue
        found = at.role.axis(name)
        whole = found.extent if name in at.own else found.extent * found.segments
        if whole != axis.extent:
            yield Finding(BugClass.WRONG_PLACE, where, f"axis {name} spans {whole} of {axis.extent} elements")


def loaded(
    schedule: Schedule, graph: TileGraph, op: TileOp, at: Point, operand: Operand, read: Map, rename: dict[str, str]
) -> Iterator[Finding]:
    where = f"{at}, {op.name} reads {read.value}"
    wanted, index = _expected(schedule, graph, op, read, rename)
    got = (operand.buffer, operand.slot, operand.remote)
    if got not in wanted:
        fact = f"it loads {_place(got)}, not {' or '.join(map(_place, wanted))}"
        yield Finding(BugClass.WRONG_PLACE, where, fact)
    elif operand.index != index:
        fact = f"it is indexed by [{', '.join(operand.index)}], not by [{', '.join(index)}]"
        yield Finding(BugClass.WRONG_PLACE, where, fact)
    elif operand.window != (window := _window(graph, op, read, operand)):
        fact = f"it loads the elements {_elements(operand.window)}, not {_elements(window)}"
        yield Finding(BugClass.WRONG_PLACE, where, fact)
    else:
        relation = graph.relation(read.value)
        gathered = relation is not None and relation.kind is Kind.GATHER and not operand.slot
        yield from fits(schedule, at, operand, where, all_parts=gathered)
        yield from _own_home(schedule, read, operand, where)


def _window(graph: TileGraph, op: TileOp, read: Map, operand: Operand) -> tuple[Interval, ...]:
    """What of a buffer, or of a part in it, is read."""
    window, relation = graph.window(op, read), graph.relation(read.value)
    return in_part(window, relation) if relation is not None and operand.slot else window


def _elements(window: tuple[Interval, ...]) -> str:
    return f"[{', '.join(f'{first}:{end}' for first, end in window)}]" if window else "[:]"


Location = tuple[str, str, bool]  # buffer, slot axis, remote


def _place(location: Location) -> str:
    buffer, slot, remote = location
    return f"{buffer}{f' by part {slot}' if slot else ''}{' of the peer' if remote else ''}"


def _expected(
    schedule: Schedule, graph: TileGraph, op: TileOp, read: Map, rename: dict[str, str]
) -> tuple[list[Location], tuple[str, ...]]:
    """Where a read of `op` may find its value, and by which axes it is indexed there."""
    relation = graph.relation(read.value)
    whole = tuple(rename.get(axis, axis) for axis in map(read.axis_of, range(len(read.index))))
    if relation is None:
        return [(read.value, "", False)], whole
    axis = read.axis_of(0) if relation.stacked else read.axis_of(relation.dim)
    slot = rename.get(axis, axis)
    part = whole[1:] if relation.stacked else whole
    if relation.library:
        plain = relation.summed or relation.dim == 0
        return [(relation.name, "" if plain else slot, False)], whole if plain else part
    exchange = schedule.exchange(relation.name)
    if relation.kind is Kind.SHIFT:
        return [(exchange.target, "", False)], whole
    if not exchange.target:
        return [(exchange.source, slot, True)], part
    reduced = not isinstance(op.operation, Sum) and not relation.stacked and op.axis(axis).reduction
    if reduced and exchange.own_copied:
        return [(exchange.target, "", False), (exchange.target, slot, False)], whole
    return [(exchange.target, slot, False)], part


def _own_home(schedule: Schedule, read: Map, operand: Operand, where: str) -> Iterator[Finding]:
    """The own part is read where it lies: in the target if it is copied there, else in the source."""
    exchange = next((x for x in schedule.exchanges if x.name == read.value), None)
    if exchange is None or not operand.slot:
        if operand.own:
            yield Finding(BugClass.WRONG_PLACE, where, f"it has no parts, of which the own one lies in {operand.own}")
        return
    parts = schedule.num_ranks if exchange.kind is Kind.SCATTER else 1
    home = "" if exchange.own_copied or not exchange.target else exchange.source
    if operand.own != home:
        yield Finding(BugClass.WRONG_PLACE, where, f"the own part is read from {operand.own or 'the target'}")
    elif (home or operand.remote) and operand.own_slots != parts:
        fact = f"the own part is taken as one of {operand.own_slots}, and there are {parts}"
        yield Finding(BugClass.WRONG_PLACE, where, fact)


def fits(schedule: Schedule, at: Point, operand: Operand, where: str, *, all_parts: bool = False) -> Iterator[Finding]:
    """Tiles along each dimension span that dimension of the buffer, or of a part of it; or of `all_parts`, which lie behind each
    other, as one tensor."""
    if not all(not axis or has_axis(at.role, axis) for axis in operand.index):
        return
    shape = schedule.buffer(operand.buffer).shape
    spans = tuple(extent_of(at.role, operand, axis) for axis in operand.index)
    outer = len(shape) - len(spans)
    inner = (math.prod(shape[: outer + 1]), *shape[outer + 1 :]) if all_parts else shape[outer:]
    if operand.window:
        inner = tuple(min(end, extent) - first for (first, end), extent in zip(operand.window, inner, strict=True))
    if any(span != extent and span != 1 for span, extent in zip(spans, inner, strict=True)):
        bug = BugClass.SLOTS if any(s > e for s, e in zip(spans, inner, strict=True)) else BugClass.WRONG_PLACE
        yield Finding(bug, where, f"tiles span {list(spans)} of buffer {operand.buffer} {list(shape)}")
