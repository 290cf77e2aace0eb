"""Calls that make the tables of a routing: do they make those that the proof takes for granted?

Laws of tables (`tilelink.ir.routed`) hold of what a call makes if it is told the experts of the spec, sorts all assignments, and
has room for every routing. Which ids it reads is looked at where calls are (`calls.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from tilelink.ir.routed import Routed, Tables
from tilelink.ir.spec import BoundSpec, Route
from tilelink.proof.bug_class import BugClass
from tilelink.proof.findings import Finding
from tilelink.schedule.index import Number, evaluate, value_of
from tilelink.schedule.memory import Law
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import LIST_PLACES, LIST_ROWS, SORT_ROWS, Call
from tilelink.schedule.walk import phases, steps_in


@dataclass(frozen=True, slots=True)
class Sorts:
    """What a call is told: the first expert of each rank, how many it has, how many there are, choices of a token, ids that one
    program goes through; and of each rank the first token, and how many, whose rows come first."""

    first: tuple[int, ...]
    own: tuple[int, ...]
    every: int
    choices: int
    chunk: int
    tokens: tuple[tuple[int, int], ...] = ()


def sorts(schedule: Schedule, step: Call) -> Sorts:
    """Raises ValueError where numbers are missing, KeyError where they depend on something else than the rank."""

    first, own, every, choices, chunk, *tokens = (_of_ranks(schedule, one) for one in step.numbers)
    found = Sorts(first, own, every[0], choices[0], chunk[0])
    if len(step.tables) == len(Tables("", 0).all):
        return found
    begin, many = tokens
    return replace(found, tokens=tuple(zip(begin, many, strict=True)))


def is_of(told: Sorts, route: Route) -> bool:
    """Whether these are the experts of the routing. Where a rank has none, none is the first one."""
    own = [route.own(rank) for rank in range(len(told.own))]
    starts = all(not one or one.start == first for one, first in zip(own, told.first, strict=True))
    return starts and (told.own, told.every) == (tuple(map(len, own)), route.num_experts)


def wrong_tables(schedule: Schedule, spec: BoundSpec) -> Iterator[Finding]:
    """`schedule` has numbers for its dims."""
    for _, role, phase in phases(schedule):
        for step in steps_in(phase.body):
            if isinstance(step, Call) and step.function == SORT_ROWS:
                for fact in _facts(schedule, spec, step):
                    yield Finding(BugClass.WRONG_PLACE, f"role {role.name}, {step.function}", fact)
            if isinstance(step, Call) and step.function == LIST_ROWS:
                for fact in _facts_of_lists(schedule, step):
                    yield Finding(BugClass.WRONG_PLACE, f"role {role.name}, {step.function}", fact)
            if isinstance(step, Call) and step.function == LIST_PLACES:
                for fact in _facts_of_places(schedule, step):
                    yield Finding(BugClass.WRONG_PLACE, f"role {role.name}, {step.function}", fact)


def _facts(schedule: Schedule, spec: BoundSpec, step: Call) -> Iterator[str]:
    ids = step.operands[0]
    shape = schedule.shapes[ids.buffer]
    try:
        told = sorts(schedule, step)
    except (KeyError, ValueError):
        yield "it is not told which experts there are"
        return
    routes = [
        node.operation for node in spec.nodes if isinstance(node.operation, Route) and node.inputs[0] == ids.buffer
    ]
    if not any(is_of(told, route) for route in routes):
        own = ", ".join(f"{first} to +{many}" for first, many in zip(told.first, told.own, strict=True))
        yield f"no routing of {ids.buffer} has experts {own} of {told.every} on the ranks"
    if tuple(ids.start) != (0, 0) or tuple(ids.extent) != shape or told.choices != shape[1]:
        yield f"it takes not all of {ids.buffer} {list(shape)}, by {told.choices} choices"
    yield from _sizes(schedule, step, Routed("", "", shape[0], shape[1], max(told.own)), told)


def _apart(told: Sorts) -> bool:
    """Whether no expert is one of two ranks'."""
    own = sorted((first, first + many) for first, many in zip(told.first, told.own, strict=True))
    return all(end <= first for (_, end), (first, _) in pairwise(own))


def _sizes(schedule: Schedule, step: Call, routed: Routed, told: Sorts) -> Iterator[str]:
    """Room for every routing, and no entry that is larger than is taken for granted. `routed`: of the most experts of a rank."""
    counts, _, rows, tokens, experts, here, count, *apart = step.tables
    shapes, below = schedule.shapes, {one.name: value_of(one.below, schedule.sizes) for one in schedule.tables}
    (tiles,), (places,) = shapes[experts], shapes[rows]
    height = places // max(1, tiles)
    room = {
        rows: (tiles * height, routed.rows),
        tokens: (tiles * height, routed.tokens),
        experts: (tiles, routed.experts + 1),
        here: (tiles, height + 1),
        count: (1, tiles + 1),
    } | dict.fromkeys(apart, (1, tiles + 1))
    for name, (size, least) in room.items():
        if math.prod(shapes[name]) != size or below[name] < least:
            yield f"table {name} {list(shapes[name])} below {below[name]} is to have {size} entries below {least}"
    if height < 1 or tiles < routed.most_tiles(height):
        yield f"{tiles} tiles of {height} rows are too few for some routing"
    laws = {one.name: set(one.laws) for one in schedule.tables}
    known = {Law.DIFFERS, Law.APART} if _apart(told) else {Law.DIFFERS}
    for name in step.tables:
        for law in laws[name] - (known if name == rows else set()):
            yield f"of table {name} it is not true that it has {law.value}"
    counters, bins = shapes[counts]
    programs = counters // (2 if apart else 1)  # which count rows of own tokens by themselves
    if programs * told.chunk < routed.rows or bins < routed.experts or bins & (bins - 1):
        few = f"counts {list(shapes[counts])} of {told.chunk} ids each are too few"
        yield f"{few} for {routed.rows} ids of {routed.experts} experts"


def _facts_of_lists(schedule: Schedule, step: Call) -> Iterator[str]:
    """Of lists of rows that readers need. Whether their experts are those of a routing, and who reads, is asked where they are
    relied on."""
    ids, (listed, here) = step.operands[0], step.tables
    shapes = schedule.shapes
    shape, (readers, blocks, rows) = shapes[ids.buffer], shapes[listed]
    if tuple(ids.start) != (0, 0) or tuple(ids.extent) != shape or step.numbers[1] != shape[1]:
        yield f"it takes not all of {ids.buffer} {list(shape)}, by {step.numbers[1]} choices"
    if blocks * rows != shape[0] or shapes[here] != (readers, blocks):
        yield f"tables {list(shapes[listed])} and {list(shapes[here])} are not of {shape[0]} tokens"
    yield from _untrue(schedule, {listed: rows, here: rows + 1}, {listed: {Law.DIFFERS}, here: set()})


def _facts_of_places(schedule: Schedule, step: Call) -> Iterator[str]:
    """Of lists of rows that go to places at ranks. Whether experts and places are those of a routing is asked elsewhere."""
    ids, (counts, listed, placed, here) = step.operands[0], step.tables
    shapes, ranks, (all_tokens, choices) = schedule.shapes, schedule.num_ranks, schedule.shapes[ids.buffer]
    try:
        first, tokens, share, every, told, height, chunk = (_of_ranks(schedule, one) for one in step.numbers)
    except (KeyError, ValueError):
        yield "it is not told which tokens are own ones, and where rows go"
        return
    if any(len(set(one)) > 1 for one in (tokens, share, every, told, height, chunk)):
        yield "it is told other sizes on other ranks"
        return
    own, entries, pieces = tokens[0], tokens[0] * choices, shapes[here][1]
    if tuple(ids.start) != (0, 0) or tuple(ids.extent) != (all_tokens, choices) or told[0] != choices:
        yield f"it takes not all of {ids.buffer} [{all_tokens}, {choices}], by {told[0]} choices"
    wanted = {listed: (ranks, entries), placed: (ranks, entries), here: (ranks, pieces)}
    if own * ranks != all_tokens or any(shapes[name] != shape for name, shape in wanted.items()) or own % pieces:
        given = ", ".join(str(list(shapes[name])) for name in wanted)
        yield f"tables {given} are not of {own} tokens of each of {ranks} ranks"
    counters, bins = shapes[counts]
    if counters != ranks * -(-entries // chunk[0]) or bins < every[0] or bins & (bins - 1):
        yield f"counts {list(shapes[counts])} are not of {entries} ids of each rank, {chunk[0]} at a time"
    places = Routed("", "", all_tokens, choices, share[0]).most_tiles(height[0]) * height[0]
    apart = sorted(first) == [rank * own for rank in range(ranks)]
    known = {Law.DIFFERS, Law.APART} if apart else {Law.DIFFERS}
    laws = {listed: set[Law](), placed: known, here: set[Law]()}
    least = {listed: own, placed: places, here: entries // pieces + 1}
    yield from _untrue(schedule, least, laws)


def _of_ranks(schedule: Schedule, one: Number) -> tuple[int, ...]:
    return tuple(int(evaluate(one, {"rank": rank} | schedule.sizes)) for rank in range(schedule.num_ranks))


def _untrue(schedule: Schedule, least: Mapping[str, int], known: Mapping[str, set[Law]]) -> Iterator[str]:
    """What is taken for granted of tables and does not hold: entries are below so much at least, laws are these."""
    tables = {one.name: one for one in schedule.tables}
    for name, most in least.items():
        if value_of(tables[name].below, schedule.sizes) < most:
            yield f"table {name} is to have entries below {most}"
        for law in set(tables[name].laws) - known[name]:
            yield f"of table {name} it is not true that it has {law.value}"
