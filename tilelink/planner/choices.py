"""Pins, and which choices there are: the fields of exchanges and of tile loops, and which of them pins without a name are about.

A field that decides nothing is none: what is not summed has no place of a sum, and the library's matmul has no tiles.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilelink.ir.choices import ComputeChoice, Elsewhere, ExchangeChoice, LibraryCompute, TritonLoop
from tilelink.ir.graph import Sum
from tilelink.ir.movers import Issuer
from tilelink.ir.nodes import Kind, TileShape
from tilelink.ir.spec import Attend, Matmul
from tilelink.ir.user_op import UserOp
from tilelink.planner import fields
from tilelink.planner.fields import AnyField, Field, V
from tilelink.planner.group import Group
from tilelink.planner.in_library import library_computes
from tilelink.planner.structure import Structure

ITEM_TILE = TileShape(0, 0, 0, 0, 1)  # a tile is an item of the bounded exchange that is read, whatever its extent

Pin = tuple[str, AnyField]  # the name of a value, "" for all that have the field; the field
Pins = Mapping[Pin, object]

REUSED: Pins = {("", fields.OUTPUTS): True}


def pinned(pins: Pins, name: str, field: Field[V], *, of_all: bool = True) -> V | None:
    """The value pinned for `name` itself, or else for all, if such a pin is about it; None if it is free."""
    return pins.get((name, field), pins.get(("", field)) if of_all else None)  # type: ignore[return-value]


def pin_name(pin: Pin) -> str:
    """`x_full.chunks`, or `chunks` of all."""
    name, field = pin
    return f"{name}.{field.name}" if name else field.name


def texts(pins: Pins) -> dict[str, str]:
    """As a user writes them."""
    return {pin_name(pin): pin[1].text(value) for pin, value in pins.items()}


def exchange_fields(choice: ExchangeChoice) -> dict[AnyField, object]:
    """Values of the fields; slots and consumers only where the exchange is bounded, streams of copy engines, a cut where readers
    can take either."""
    first = (choice.mover, choice.transfer, choice.chunks, choice.nest)
    found: dict[AnyField, object] = dict(zip(fields.OF_EXCHANGES, first, strict=False))
    if choice.cut is not None:
        found[fields.CUT] = choice.cut
    if choice.mover.issuer is Issuer.STREAMS:
        found[fields.STREAMS] = choice.per_peer
    return found | ({fields.SLOTS: choice.slots, fields.CONSUMERS: choice.consumers} if choice.slots else {})


def compute_fields(choice: ComputeChoice) -> dict[AnyField, object]:
    """Values of all fields that some loop has; see `group_fields` for those that a certain one has."""
    match choice.loop:
        case TritonLoop(tile, group, prefetch, tail, late, own_first):
            values = (False, tile, group, prefetch, tail, bool(late), own_first, choice.sum_in_epilogue)
            return dict(zip(fields.OF_LOOPS, values, strict=True))
        case LibraryCompute():
            return {fields.COMPUTE: True}
        case Elsewhere():
            return {}


def group_fields(structure: Structure, group: Group) -> tuple[AnyField, ...]:
    """Fields of the loop that computes `group`."""
    if group.anchor.name in structure.library:
        return (fields.COMPUTE,)
    if structure.queue_of(group) is not None:
        return ()  # its tiles are the items of the queue
    graph = structure.graph
    if isinstance(group.anchor.operation, Matmul) and any(axis.routed is not None for axis in group.anchor.axes):
        own = (fields.OWN,) if structure.finds_own_rows(group) else ()
        return (fields.COMPUTE, fields.TILE, fields.GROUP, *own)
    if isinstance(group.anchor.operation, Attend):
        able = library_computes(group.anchor.operation, graph.values[group.anchor.name].dtype)
        return (*((fields.COMPUTE,) if able else ()), fields.TILE, fields.GROUP)
    if isinstance(group.anchor.operation, Matmul):
        sent = any(group.makes(one.source) and not one.library for one in graph.relations())
        ahead = structure.topology.gpu.tensor_descriptors
        has = {fields.PREFETCH: ahead, fields.COUNT: ahead and sent, fields.OWN: False, fields.SUM: False}
        return tuple(field for field in fields.OF_LOOPS if has.get(field, True))
    relation = graph.relation(group.anchor.reads[0].value)
    summed = isinstance(group.anchor.operation, Sum) and relation is not None and relation.kind is Kind.SCATTER
    return (fields.TILE, fields.GROUP, *((fields.SUM,) if summed else ()))


def asked_of_all(group: Group) -> tuple[AnyField, ...]:
    """Fields of a group that a pin without a value's name is about."""
    match group.anchor.operation:
        case Matmul():
            return fields.OF_LOOPS
        case Attend():
            return (fields.COMPUTE, fields.TILE, fields.GROUP)
        case UserOp():
            return (fields.TILE, fields.GROUP)
        case Sum():
            return (fields.SUM,)
        case _:
            return ()
