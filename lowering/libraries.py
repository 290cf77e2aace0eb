"""Which values of a schedule calls of libraries compute: their sums may be rounded on the way."""

from __future__ import annotations

from tilelink.ir.schedule import Schedule
from tilelink.ir.slices import as_computed
from tilelink.ir.spec import Slice


def library_values(schedule: Schedule) -> frozenset[str]:
    """Names of the values that the library multiplies, or adds over the ranks."""
    found = {name for name, how in schedule.decided.collectives if how.by_library} | schedule.by_library
    made, computed = (
        {node.output.name for node in spec.nodes if not isinstance(node.operation, Slice)}
        for spec in (schedule.spec, as_computed(schedule.spec))
    )
    # the library may multiply slices of what is no value of its own
    return frozenset(found if found <= made else found | (made - computed))
