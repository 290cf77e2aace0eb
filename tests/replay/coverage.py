"""Which kinds of nodes, members of enums and values of fields occur in schedules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from types import ModuleType
from typing import Any, get_type_hints


def features(value: object) -> frozenset[str]:
    """Of a schedule, or of any node: `Class`, `Class.field=MEMBER` for enums and flags, and `Class.field given` for
    fields with a default that have another value."""
    return frozenset(_features(value))


def _features(value: object) -> Iterator[str]:
    if isinstance(value, tuple | list):
        for one in value:
            yield from _features(one)
    elif is_dataclass(value) and not isinstance(value, type):
        kind = type(value).__name__
        yield kind
        for field in fields(value):
            held = getattr(value, field.name)
            yield from _of_field(kind, field, held)
            yield from _features(held)


def _of_field(kind: str, field: Field[Any], held: object) -> Iterator[str]:
    if isinstance(held, Enum | bool):
        yield f"{kind}.{field.name}={held.name if isinstance(held, Enum) else held}"
    elif field.default is not MISSING:
        yield f"{kind}.{field.name} {'default' if held == field.default else 'given'}"


def possible(modules: Iterable[ModuleType]) -> frozenset[str]:
    """All features that dataclasses of these modules can have by their types."""
    found: set[str] = set()
    for module in modules:
        for kind in vars(module).values():
            if isinstance(kind, type) and is_dataclass(kind) and kind.__module__ == module.__name__:
                found.add(kind.__name__)
                found.update(_possible(kind))
    return frozenset(found)


def _possible(kind: type) -> Iterator[str]:
    hints = get_type_hints(kind)
    for field in fields(kind):
        hint = hints[field.name]
        members = ["False", "True"] if hint is bool else _members(hint)
        if members:
            yield from (f"{kind.__name__}.{field.name}={member}" for member in members)
        elif field.default is not MISSING:
            yield from (f"{kind.__name__}.{field.name} {text}" for text in ("default", "given"))


def _members(hint: object) -> list[str]:
    return [one.name for one in hint] if isinstance(hint, type) and issubclass(hint, Enum) else []
