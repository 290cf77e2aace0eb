"""A proof looks at steps. It speaks of the file as well, since nothing that steps do not say makes another file.

Each field of each planned node is changed, one at a time. Where the steps stay as they are, so does the text of the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from enum import Enum

import pytest

from lowering import emit
from tests.mutation.subjects import SUBJECTS, subject
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.schedule import Schedule
from tilelink.mutation.sites import sites

_PLANNED = ("buffers", "exchanges", "launches")


def changed(schedule: Schedule) -> Iterator[tuple[str, Schedule]]:
    """(field, schedule with another value there): the other value of a bool, all others of an enum, one more and one less."""
    for site in sites(schedule, object):
        if site.path[0] not in _PLANNED or not is_dataclass(site.node):
            continue
        for field in fields(site.node):
            value = getattr(site.node, field.name)
            others: tuple[object, ...] = ()
            if isinstance(value, bool):
                others = (not value,)
            elif isinstance(value, Enum):
                others = tuple(other for other in type(value) if other is not value)
            elif isinstance(value, int):
                others = (value + 1, value - 1)
            elif isinstance(value, str):
                others = ("nothing of this name",)
            for other in others:
                new = replace(site.node, **{field.name: other})  # type: ignore[type-var]
                text = f" {value} to {other}" if isinstance(value, Enum) else ""
                yield f"{type(site.node).__name__}.{field.name}{text}", site.put(new)


def with_the_same_steps(schedule: Schedule) -> dict[str, Schedule]:
    """One of each field, and of each value of an enum."""
    steps, found = elaborated(schedule), dict[str, Schedule]()
    for field, other in changed(schedule):
        if field in found:
            continue
        try:
            same = elaborated(other) == steps
        except Exception:  # of nodes that mean nothing: they have no steps
            same = False
        if same:
            found[field] = other
    return found


@pytest.mark.slow
@pytest.mark.parametrize("label", SUBJECTS)
def test_a_file_says_what_steps_say(label: str) -> None:
    schedule = subject(label)
    text, found = emit(schedule), with_the_same_steps(schedule)
    assert found
    for field, other in found.items():
        assert emit(other).replace(other.hash, schedule.hash) == text, field
