"""Gives a name to entries of tables that several steps look up: printed code then loads each once a round.

    for i: a = recv[rows[source, rank], i]; wait w >= rows[source, rank]
    for i: rows_of_source = rows[source, rank]: a = recv[rows_of_source, i]; wait w >= rows_of_source

An entry is named where all names in it are known, and only if a step looks it up there in any case: what stands in a branch
or in an inner loop may be no entry of the table for others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from tilelink.schedule.index import OPERATORS, Index, Number, names_in, subindices
from tilelink.schedule.instance import reindexed
from tilelink.schedule.roles import Phase, Role, Schedule
from tilelink.schedule.steps import For, If, Let, Step
from tilelink.schedule.walk import indices, mapped, steps_in, with_phases

Named = dict[Number, Number]


def named_lookups(schedule: Schedule, taken: frozenset[str]) -> Schedule:
    """`schedule` with names for entries; `taken` are those of other things."""

    def named(_: Role, phase: Phase) -> Phase:
        let, body = _named(phase.let, phase.body, taken)
        return replace(phase, let=let, body=body)

    return with_phases(schedule, named)


def _named(let: Let, body: tuple[Step, ...], taken: frozenset[str]) -> tuple[Let, tuple[Step, ...]]:
    """The names and the body of a loop or a phase, inner loops behind outer ones."""
    counts = Counter(entry for step in steps_in(body) for index in indices(step) for entry in _entries(index))
    certain = [entry for step in body for index in _of_itself(step) for entry in _entries(index)]
    new: Named = {}
    names = set(taken)
    for entry in dict.fromkeys(certain):
        if counts[entry] > 1 and (name := _name(entry, names)):
            new[entry] = Index(name)
            names.add(name)
    let = (*let, *((index.op, entry) for entry, index in new.items() if isinstance(index, Index)))
    body = mapped(body, lambda step: (reindexed(step, lambda index: _replaced(index, new)),)) if new else body
    return let, tuple(_inside(step, frozenset(names)) for step in body)


def _inside(step: Step, taken: frozenset[str]) -> Step:
    match step:
        case For():
            let, body = _named(step.let, step.body, taken)
            return replace(step, let=let, body=body)
        case If():
            body = tuple(_inside(one, taken) for one in step.body)
            return replace(step, body=body, others=tuple(_inside(one, taken) for one in step.others))
    return step


def _of_itself(step: Step) -> tuple[Number, ...]:
    """Indices that a step needs in any case: of a loop the number of its rounds."""
    return (step.count,) if isinstance(step, For) else indices(step)


def _entries(index: Number) -> Iterator[Index]:
    """Look-ups that do not differ from lane to lane, outermost ones only."""
    if isinstance(index, int):
        return
    if index.is_lookup and "lane" not in names_in(index):
        yield index
        return
    for one in index.args:
        yield from _entries(one)


def _name(entry: Index, taken: set[str]) -> str:
    """A name after the table and the index that differs most from place to place; empty if it is taken."""
    places = [one.op for one in subindices(entry) if one.is_name]
    mine = [name for name in places if name != "rank"] or ["rank"]
    for name in (f"{entry.op}_of_{mine[-1]}", f"{entry.op}_of_{'_'.join(places)}"):
        if name not in taken:
            return name
    return ""


def _replaced(index: Number, by: Named) -> Number:
    if isinstance(index, int) or index in by:
        return by.get(index, index)
    args = tuple(_replaced(one, by) for one in index.args)
    if args == index.args:
        return index
    return Index(index.op, args) if index.op in OPERATORS or args else index
