"""Which choices there are: the fields of a tile loop, and which of them a pin without a value's name is about.

A field that decides nothing is none: what is not summed has no place of a sum, and the library's matmul has no tiles.
"""

from __future__ import annotations

from tilelink.ir.choices import Choices
from tilelink.ir.graph import Sum
from tilelink.ir.nodes import Kind
from tilelink.ir.spec import Matmul
from tilelink.ir.user_op import UserOp
from tilelink.planner.choices import (
    COMPUTE,
    COUNT,
    GROUP,
    LOOP,
    PREFETCH,
    SUM,
    TAIL,
    TILE,
    AnyField,
    Pin,
    compute_fields,
    exchange_fields,
)
from tilelink.planner.collectives import collective_pins
from tilelink.planner.group import Group
from tilelink.planner.structure import Structure


def group_fields(structure: Structure, group: Group) -> tuple[AnyField, ...]:
    """Fields of the loop that computes `group`."""
    if group.anchor.name in structure.library:
        return (COMPUTE,)
    if structure.queue_of(group) is not None:
        return ()  # its tiles are the items of the queue
    graph = structure.graph
    if isinstance(group.anchor.operation, Matmul):
        sent = any(group.makes(one.source) and not one.library for one in graph.relations())
        ahead = (PREFETCH,) if structure.topology.gpu.tensor_descriptors else ()
        return (COMPUTE, TILE, GROUP, *ahead, TAIL, *((COUNT,) if sent and ahead else ()))
    relation = graph.relation(group.anchor.reads[0].value)
    summed = isinstance(group.anchor.operation, Sum) and relation is not None and relation.kind is Kind.SCATTER
    return (TILE, GROUP, *((SUM,) if summed else ()))


def asked_of_all(group: Group) -> tuple[AnyField, ...]:
    """Fields of a group that a pin without a value's name is about."""
    match group.anchor.operation:
        case Matmul():
            return (COMPUTE, TILE, GROUP, PREFETCH, TAIL, COUNT)
        case UserOp():
            return (TILE, GROUP)
        case Sum():
            return (SUM,)
        case _:
            return ()


def decided(structure: Structure, choices: Choices) -> dict[Pin, object]:
    """Every decision of a schedule, as pins."""
    found = collective_pins(structure.spec, choices.collectives)
    for name, exchange in choices.exchanges:
        found |= {(name, field): value for field, value in exchange_fields(exchange).items()}
    for group in structure.groups:
        values = compute_fields(choices.compute(group.name))
        found |= {(group.name, field): values[field] for field in group_fields(structure, group)}
    return found | {(name, LOOP): shared for name, shared in choices.loops}
