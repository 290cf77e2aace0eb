"""Which values of a schedule calls of libraries compute: their sums may be rounded on the way."""

from __future__ import annotations

from tilelink.ir.schedule import Schedule

_FIELDS = ("compute", "algorithm")


def library_values(schedule: Schedule) -> frozenset[str]:
    """Names of the values that the library multiplies, or adds over the ranks."""
    fields = ((name.rpartition("."), value) for name, value in schedule.choices)
    return frozenset(name for (name, _, field), value in fields if field in _FIELDS and value == "library")
