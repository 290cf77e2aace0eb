"""One namespace: names of buffers, tables, signals, roles, values and indices, which share the functions that are printed."""

from __future__ import annotations

from tilelink.schedule.roles import Schedule


def checked_names(schedule: Schedule) -> frozenset[str]:
    return frozenset()
