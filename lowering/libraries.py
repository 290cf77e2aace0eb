"""Which values of a schedule calls of libraries compute: their sums may be rounded on the way."""

from __future__ import annotations

from tilelink.ir.schedule import Schedule
from tilelink.ir.slices import as_computed
from tilelink.ir.spec import Slice

_FIELDS = ("compute", "algorithm")


def library_values(schedule: Schedule) -> frozenset[str]:
    """Names of the values that the library multiplies, or adds over the ranks."""
    fields = ((name.rpartition("."), value) for name, value in schedule.choices)
    found = {name for (name, _, field), value in fields if field in _FIELDS and value == "library"}
    made, computed = (
        {node.output.name for node in spec.nodes if not isinstance(node.operation, Slice)}
        for spec in (schedule.spec, as_computed(schedule.spec))
    )
    # the library may multiply slices of what is no value of its own
    return frozenset(found if found <= made else found | (made - computed))
