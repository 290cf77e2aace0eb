"""Conformance: the schedule computes what the spec says, each operation once, from the right buffers, ranks and rows."""

from __future__ import annotations

from collections.abc import Iterator

from tilelink.ir.calls import LibraryGemm
from tilelink.ir.expand import expand
from tilelink.ir.graph import Relation, TileGraph, TileOp
from tilelink.ir.nodes import Fused, Kernel, Kind, Transfer
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import Apply, Load, MatmulBody, Place, Step, Store, SumParts, UserBody, tile_name
from tilelink.ir.walk import Point, points, reads
from tilelink.proof.bug_class import BugClass
from tilelink.proof.findings import Finding
from tilelink.proof.operands import extents, fits, loaded, renaming
from tilelink.proof.relations import collectives, exchanges, sources, staging_names
from tilelink.proof.values import same_function, values
from tilelink.proof.words import stored_sum, words


def graph_of(schedule: Schedule) -> TileGraph:
    """The graph of the schedule's spec, with the algorithms that it chose, and the matmuls that it leaves to the library."""
    return expand(schedule.spec, schedule.algorithms, set(schedule.by_library))


def conformance(schedule: Schedule) -> Iterator[Finding]:
    graph = graph_of(schedule)
    yield from exchanges(schedule, graph)
    yield from sources(schedule, graph)
    yield from collectives(schedule, graph)
    yield from words(schedule, graph)
    computed = list(_computed(schedule, graph))
    for op in graph.ops():
        times = sum(name == op.name for name, _, _ in computed)
        if times != 1:
            yield Finding(BugClass.WRONG_PLACE, f"value {op.name}", f"it is computed {times} times")
    for name, at, step in computed:
        found = graph.op(name)
        if found is not None and at is not None and step is not None:
            yield from _operation(schedule, graph, found, at, step)
    yield from _stored(schedule, graph)
    yield from values(schedule, graph)


Computed = tuple[str, Point | None, Step | None]


def _computed(schedule: Schedule, graph: TileGraph) -> Iterator[Computed]:
    """(value, where, step) of each operation that some launch carries out."""
    for index, launch in enumerate(schedule.launches):
        if isinstance(launch, Kernel) and launch.compute is not None:
            for at, step in points(index, launch.compute):
                if isinstance(step, MatmulBody | UserBody | SumParts | Apply):
                    yield step.result, at, step
        elif isinstance(launch, LibraryGemm):
            out = launch.out.buffer
            made = [
                op.name for op in graph.ops() if out in _homes(graph, op.name) and _same_operands(graph, op, launch)
            ]
            yield (made[0] if made else f"library matmul into {out}"), None, None


def _homes(graph: TileGraph, value: str) -> set[str]:
    """Buffers that may hold `value` where it is made: itself, or staged for a relation that sends it."""
    sent = [relation for relation in graph.relations() if relation.source == value]
    return {value, *(name for r in sent for name in (*staging_names(r), r.name))}


def _same_operands(graph: TileGraph, op: TileOp, gemm: LibraryGemm) -> bool:
    operands = [(operand.buffer, operand.index, operand.window) for operand in (gemm.left, gemm.right)]
    return operands == [(read.value, read.axes, graph.window(op, read)) for read in op.reads]


def _operation(schedule: Schedule, graph: TileGraph, op: TileOp, at: Point, step: Step) -> Iterator[Finding]:
    """The operands of a step are those of the operation, indexed by the same axes."""
    rename = renaming(op, at.role)
    where = f"{at}, {op.name}"
    if len(rename) != len(op.write.index):
        yield Finding(BugClass.WRONG_PLACE, where, "its tiles have other dimensions than those of the role")
        return
    if not same_function(op, step):
        yield Finding(BugClass.WRONG_PLACE, where, f"{type(step).__name__} is not what the spec says")
    yield from extents(op, at, rename, where)
    if isinstance(step, Apply):
        yield from _elementwise(schedule, graph, op, at, step)
        return
    found = [operand for operand, _ in reads(step)]
    if len(found) != len(op.reads):
        yield Finding(BugClass.WRONG_PLACE, where, f"it has {len(found)} operands, not {len(op.reads)}")
        return
    for operand, read in zip(found, op.reads, strict=True):
        yield from loaded(schedule, graph, op, at, operand, read, rename)


def _elementwise(schedule: Schedule, graph: TileGraph, op: TileOp, at: Point, step: Apply) -> Iterator[Finding]:
    loads = {s.result: s.operand for p, s in points(at.launch, at.role) if isinstance(s, Load) and p.number < at.number}
    made = {s.result for p, s in points(at.launch, at.role) if not isinstance(s, Load) and hasattr(s, "result")}
    rename = renaming(op, at.role)
    for argument, read in zip(step.arguments, op.reads, strict=False):
        if argument == read.value and argument in made:
            continue
        if argument != tile_name(read.value, graph.window(op, read)) or argument not in loads:
            fact = f"it takes {argument} where the spec has {read.value}"
            yield Finding(BugClass.WRONG_PLACE, f"{at}, {op.name}", fact)
            continue
        yield from loaded(schedule, graph, op, at, loads[argument], read, rename)
    if len(step.arguments) != len(op.reads):
        yield Finding(BugClass.WRONG_PLACE, f"{at}, {op.name}", "it has another number of arguments")


def _stored(schedule: Schedule, graph: TileGraph) -> Iterator[Finding]:
    """Values that leave their role are stored whole, where those who need them look for them."""
    for index, launch in enumerate(schedule.launches):
        if isinstance(launch, Kernel) and launch.compute is not None:
            for at, step in points(index, launch.compute):
                if isinstance(step, Store):
                    yield from _store(schedule, graph, at, step)


def _store(schedule: Schedule, graph: TileGraph, at: Point, step: Store) -> Iterator[Finding]:
    where = f"{at}, store of {step.value}"
    summed = graph.relation(step.value)
    if summed is not None and summed.in_tiles:
        yield from stored_sum(schedule, graph, summed, at, step)
        return
    op = graph.op(step.value)
    if op is None:
        yield Finding(BugClass.WRONG_PLACE, where, f"the spec makes no value {step.value}")
        return
    rename = renaming(op, at.role)
    index = tuple(rename.get(op.write.axis_of(dim), "") for dim in range(len(op.write.index)))
    operand = step.operand
    if operand.index != index:
        fact = f"it is indexed by [{', '.join(operand.index)}], not by [{', '.join(index)}]"
        yield Finding(BugClass.WRONG_PLACE, where, fact)
        return
    sent = [relation for relation in graph.relations() if relation.source == op.name]
    slots = {buffer: slot for relation in sent for buffer, slot in _destinations(schedule, relation, index)}
    slots.setdefault(op.name, "")
    if operand.buffer not in slots:
        fact = f"it goes to {operand.buffer}, where nobody looks for it; legal: {', '.join(slots)}"
        yield Finding(BugClass.WRONG_PLACE, where, fact)
    elif operand.slot != slots[operand.buffer]:
        fact = f"it goes to the part along {operand.slot or 'nothing'}, not along {slots[operand.buffer] or 'nothing'}"
        yield Finding(BugClass.WRONG_PLACE, where, fact)
    elif operand.own or operand.remote:
        yield Finding(BugClass.WRONG_PLACE, where, "it goes to a part of its own")
    elif step.place is not (place := _place(schedule, operand.buffer, sent)):
        fact = f"it is stored {step.place.value}, and {operand.buffer} is put together {place.value}"
        yield Finding(BugClass.WRONG_PLACE, where, fact)
    else:
        yield from fits(schedule, at, operand, where)


def _place(schedule: Schedule, buffer: str, sent: list[Relation]) -> Place:
    """Whose memory tiles are stored to that lie in `buffer`."""
    for exchange in schedule.exchanges:
        if any(relation.name == exchange.name for relation in sent) and buffer in (exchange.source, exchange.target):
            if isinstance(exchange.mover, Fused) and exchange.transfer is Transfer.PUSH:
                return Place.PEER if exchange.kind is Kind.SCATTER else Place.EVERY_PEER
            return Place.OWN if exchange.source == exchange.target else Place.HERE
    return Place.HERE


def _destinations(schedule: Schedule, relation: Relation, index: tuple[str, ...]) -> list[tuple[str, str]]:
    """(buffer, slot axis) where the source of `relation` is stored tile by tile."""
    slot = index[relation.dim] if relation.kind is Kind.SCATTER else ""
    if relation.in_tiles:
        return []  # its tiles stay in registers
    if relation.library:
        return [(name, slot) for name in (*staging_names(relation), relation.name)]
    exchange = schedule.exchange(relation.name)
    return [(exchange.source or exchange.target, slot)]
