"""Mutants of schedules, by the fields of their dataclasses: nothing here knows of a mechanism.

Of what stands in a row, one is dropped, doubled, or swapped with the next; numbers and indices are one more or less; names are
others of their kind; choices are others; what may be absent is absent.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from enum import Enum

from tilelink.schedule.index import OPERATORS, Index
from tilelink.schedule.roles import Schedule

Path = tuple[str | int, ...]
Mutant = tuple[str, Schedule]
# what stands in no relation to what happens before what
IDLE = {"name", "stream", "warps", "stages", "per_sm", "places", "op", "operands", "shape", "results", "fill", "access"}
IDLE |= {"unrolled", "value", "result", "function", "variable"}


def sites(node: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Every node below `node`, with its path."""
    yield path, node
    if isinstance(node, Index):
        for number, one in enumerate(node.args):
            yield from sites(one, (*path, "args", number))
    elif is_dataclass(node):
        for field in fields(node):
            if field.name not in IDLE:
                yield from sites(getattr(node, field.name), (*path, field.name))
    elif isinstance(node, tuple):
        for number, one in enumerate(node):
            yield from sites(one, (*path, number))


def put(node: object, path: Path, change: Callable[[object], object]) -> object:
    """`node` with what is at `path` replaced by `change` of it."""
    if not path:
        return change(node)
    first, rest = path[0], path[1:]
    if isinstance(first, str):
        return replace(node, **{first: put(getattr(node, first), rest, change)})  # type: ignore[type-var]
    assert isinstance(node, tuple)
    return (*node[:first], put(node[first], rest, change), *node[first + 1 :])


def _changes(node: object, path: Path, schedule: Schedule) -> Iterator[tuple[str, Callable[[object], object]]]:
    field = path[-1] if path else ""
    if isinstance(node, bool):
        yield "not", lambda one: not one
    elif isinstance(node, Enum):
        for other in type(node):
            if other is not node:
                yield f"{other.name.lower()}", lambda _, other=other: other  # type: ignore[misc]
    elif isinstance(node, int):
        yield "one more", lambda one: one + 1  # type: ignore[operator]
        yield "one less", lambda one: one - 1  # type: ignore[operator]
    elif isinstance(node, Index):
        yield "one more", lambda one: one + 1  # type: ignore[operator]
        yield "one less", lambda one: one - 1  # type: ignore[operator]
        if node.op in OPERATORS:
            yield f"without {node.op}", lambda one: one.args[0]  # type: ignore[attr-defined]
        elif node.is_name:
            for name in ("rank", "tile", "call"):
                if name != node.op:
                    yield name, lambda _, name=name: Index(name)  # type: ignore[misc]
        else:
            yield "last arguments swapped", lambda one: replace(one, args=(*one.args[:-2], *one.args[:-3:-1]))  # type: ignore[type-var, attr-defined]
    elif isinstance(node, str) and field in ("signal", "buffer"):
        for one in schedule.signals if field == "signal" else schedule.buffers:
            if one.name != node:
                yield one.name, lambda _, name=one.name: name  # type: ignore[misc]
    elif isinstance(node, tuple) and field not in ("start", "extent", "index", "args") and path[-2:-1] != ("let",):
        for at in range(len(node)):
            yield f"drop {at}", lambda all_, at=at: (*all_[:at], *all_[at + 1 :])  # type: ignore[misc]
            if not isinstance(node[at], str):
                yield f"double {at}", lambda all_, at=at: (*all_[: at + 1], *all_[at:])  # type: ignore[misc]
        for at in range(len(node) - 1):
            yield f"swap {at}", lambda all_, at=at: (*all_[:at], all_[at + 1], all_[at], *all_[at + 2 :])  # type: ignore[misc]
    if node is not None and field in ("notify", "to"):
        yield "none", lambda _: None


def mutants(schedule: Schedule) -> Iterator[Mutant]:
    """Every mutant, with a name; none is equal to `schedule`."""
    for part in ("launches", "buffers"):
        for path, node in sites(getattr(schedule, part), (part,)):
            if part == "buffers" and path[-1] != "protocol":
                continue
            for name, change in _changes(node, path, schedule):
                mutant = put(schedule, path, change)
                assert isinstance(mutant, Schedule)
                if mutant != schedule:
                    yield f"{'.'.join(map(str, path))}: {name}", mutant


def mutated(schedule: Schedule, rng: random.Random, times: int) -> Mutant:
    """A random mutant of a mutant of ..., so often."""
    names = []
    for _ in range(times):
        places = [
            (path, node)
            for part in ("launches", "buffers")
            for path, node in sites(getattr(schedule, part), (part,))
            if part == "launches" or path[-1] == "protocol"
        ]
        rng.shuffle(places)
        for path, node in places:
            changes = list(_changes(node, path, schedule))
            if changes:
                name, change = rng.choice(changes)
                names.append(f"{'.'.join(map(str, path))}: {name}")
                schedule = put(schedule, path, change)  # type: ignore[assignment]
                break
    return "; ".join(names), schedule
