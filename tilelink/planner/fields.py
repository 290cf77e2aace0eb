"""Which choices there are: the fields of a tile loop, and which of them a pin without a value's name is about.

A field that decides nothing is none: what is not summed has no place of a sum, and the library's matmul has no tiles.
"""

from __future__ import annotations

from tilelink.ir.choices import Choices, LibraryCompute
from tilelink.ir.graph import Sum, TileGraph
from tilelink.ir.nodes import Kind
from tilelink.ir.spec import BoundSpec, Matmul
from tilelink.ir.user_op import UserOp
from tilelink.planner.choices import compute_fields, exchange_fields, loop_text
from tilelink.planner.collectives import collective_texts
from tilelink.planner.group import Group
from tilelink.planner.structure import Structure

# what each field is a choice of, for a pin that finds nothing here
APPLIES_TO = {
    "algorithm": "collectives",
    "shots": "an all_reduce",
    "protocol": "collectives but send_recv",
    "landing": "an all_reduce of two shots",
    "mover": "collectives",
    "transfer": "collectives by exchanges of chunks",
    "chunks": "collectives by exchanges of chunks",
    "nest": "collectives by exchanges of chunks",
    "streams": "collectives whose chunks copy engines move",
    "slots": "send_recv",
    "consumers": "send_recv",
    "compute": "matmuls",
    "tile": "matmuls and tile ops; of other loops by their names",
    "group": "matmuls and tile ops; of other loops by their names",
    "prefetch": "matmuls, on GPUs with tensor descriptors",
    "tail": "matmuls",
    "count": "matmuls whose tiles are sent to peers",
    "sum": "sums of a reduce_scatter or an all_reduce",
    "loop": "matmuls of one left operand whose results come together elementwise",
    "outputs": "an all_reduce whose result is an output that nothing else reads",
}


def group_fields(graph: TileGraph, group: Group, *, descriptors: bool, by_library: bool) -> tuple[str, ...]:
    """Fields of the loop that computes `group`, on a GPU that has tensor descriptors or none."""
    if by_library:
        return ("compute",)
    relation = graph.relation(group.anchor.reads[0].value)
    if relation is not None and relation.kind is Kind.SHIFT:
        return ()  # its tiles are the items of the queue
    if isinstance(group.anchor.operation, Matmul):
        sent = any(group.makes(one.source) and not one.library for one in graph.relations())
        ahead = ("prefetch",) if descriptors else ()
        return ("compute", "tile", "group", *ahead, "tail", *(("count",) if sent and ahead else ()))
    summed = isinstance(group.anchor.operation, Sum) and relation is not None and relation.kind is Kind.SCATTER
    return ("tile", "group", *(("sum",) if summed else ()))


def asked_of_all(group: Group) -> tuple[str, ...]:
    """Fields of a group that a pin without a value's name is about."""
    match group.anchor.operation:
        case Matmul():
            return ("compute", "tile", "group", "prefetch", "tail", "count")
        case UserOp():
            return ("tile", "group")
        case Sum():
            return ("sum",)
        case _:
            return ()


def decided(structure: Structure, choices: Choices) -> dict[str, str]:
    """Every decision of a schedule as `value.field` -> text that a pin accepts."""
    descriptors = structure.topology.gpu.tensor_descriptors
    return decisions(structure.spec, choices, structure.graph, structure.groups, descriptors=descriptors)


def decisions(
    spec: BoundSpec, choices: Choices, graph: TileGraph, groups: tuple[Group, ...], *, descriptors: bool
) -> dict[str, str]:
    """The same on a GPU that has tensor descriptors or none."""
    out = collective_texts(spec, choices.collectives)
    for name, exchange in choices.exchanges:
        out |= {f"{name}.{field}": text for field, text in exchange_fields(exchange).items()}
    for group in groups:
        choice = choices.compute(group.name)
        by_library = isinstance(choice.loop, LibraryCompute)
        texts = compute_fields(choice)
        fields = group_fields(graph, group, descriptors=descriptors, by_library=by_library)
        out |= {f"{group.name}.{field}": texts[field] for field in fields}
    return out | {f"{name}.loop": loop_text(shared) for name, shared in choices.loops}
