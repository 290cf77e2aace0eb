"""Which values of a schedule calls of libraries compute: their sums may be rounded on the way. So are sums over several nodes,
of each node before it is put."""

from __future__ import annotations

from tilelink.ir.placement import Partial
from tilelink.ir.schedule import Schedule
from tilelink.ir.slices import as_computed
from tilelink.ir.spec import AllReduce, BoundNode, Combine, ReduceScatter, Slice


def _adds_ranks(node: BoundNode) -> bool:
    """Whether it is a sum over ranks: rows of experts of several ranks are added up where tokens are."""
    if isinstance(node.operation, Combine):
        return node.output.placement != Partial()
    return isinstance(node.operation, ReduceScatter | AllReduce)


def library_values(schedule: Schedule) -> frozenset[str]:
    """Names of the values that the library multiplies, or adds over the ranks, or that nodes add before others do."""
    found = {name for name, how in schedule.decided.collectives if how.by_library} | schedule.by_library
    if any(exchange.relayed for exchange in schedule.exchanges):
        found |= {node.output.name for node in schedule.spec.nodes if _adds_ranks(node)}
    made, computed = (
        {node.output.name for node in spec.nodes if not isinstance(node.operation, Slice)}
        for spec in (schedule.spec, as_computed(schedule.spec))
    )
    # the library may multiply slices of what is no value of its own
    return frozenset(found if found <= made else found | (made - computed))
