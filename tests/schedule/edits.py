"""Changes of steps, for tests that plant one mistake: by the class of a node, and by what is true of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from tests.schedule.mutants import put, sites
from tilelink.schedule.memory import Region
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import Compute, Load, Store

N = TypeVar("N")
Change = Callable[[Schedule], Schedule]


def edit(kind: type[N], change: Callable[[N], object], chosen: Callable[[N], bool] = lambda one: True) -> Change:
    """`change` of every node of a class of which `chosen` is true; there has to be one."""

    def changed(schedule: Schedule) -> Schedule:
        places = [path for path, node in sites(schedule) if isinstance(node, kind) and chosen(node)]
        assert places, kind
        for path in places:
            schedule = put(schedule, path, change)  # type: ignore[arg-type, assignment]
        return schedule

    return changed


def fields(kind: type[N], chosen: Callable[[N], bool] = lambda one: True, **values: object) -> Change:
    return edit(kind, lambda one: replace(one, **values), chosen)  # type: ignore[type-var]


def loads(of: str, **values: object) -> Change:
    """Regions of loads `of` a buffer with other fields."""
    return edit(
        Load, lambda one: replace(one, region=region(one.region, **values)), lambda one: one.region.buffer == of
    )


def stores(of: str, **values: object) -> Change:
    return edit(
        Store, lambda one: replace(one, region=region(one.region, **values)), lambda one: one.region.buffer == of
    )


def region(one: Region, **values: object) -> Region:
    """With other fields; of `start` and `extent` a number for each dimension, None where it stays."""
    for name in ("start", "extent"):
        if name in values:
            old, new = getattr(one, name), values[name]
            assert isinstance(new, tuple) and len(new) == len(old)
            values[name] = tuple(a if b is None else b for a, b in zip(old, new, strict=True))
    return replace(one, **values)  # type: ignore[arg-type]


def computes(of: str, **values: object) -> Change:
    return fields(Compute, lambda one: one.op == of, **values)


def both(*changes: Change) -> Change:
    def changed(schedule: Schedule) -> Schedule:
        for change in changes:
            schedule = change(schedule)
        return schedule

    return changed
