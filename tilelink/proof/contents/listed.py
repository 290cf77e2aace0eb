"""Rows that only some ranks need, as if all went to all ranks: for every routing at once.

A call of `list_rows` lists, for each rank and block of own tokens, those with an expert there; or, told a rank, those of each
rank's tokens with an expert on that one. Where readers of what is sent find rows by tables of the same routing, of the rank's own
experts, they read listed rows and no others: whatever lies in the place of another row, nobody reads it. So what arrives is what
would arrive if all rows were listed:

    move x[b * R + listed[p, b, lane] : +here[p, b], n] -> y[f + b * R + listed[p, b, lane] : +here[p, b], n]@p
    ->   move x[b * R : +R, n] -> y[f + b * R : +R, n]@p

    move x[b * R + listed[p, b, lane] : +here[p, b], n]@p -> y[f + b * R + listed[p, b, lane] : +here[p, b], n]
    ->   move x[b * R : +R, n]@p -> y[f + b * R : +R, n]

Moves that go elsewhere than their list says, or are read otherwise, stay as they are, and nobody knows what they bring.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilelink.ir.spec import AllGather, BoundSpec
from tilelink.proof.contents.tables import Sorts, sorts
from tilelink.schedule.index import Index, Number, difference, names_in, rank, tables_in, terms_of
from tilelink.schedule.memory import Region
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import LIST_ROWS, SORT_ROWS, Call, Load, Move, Step
from tilelink.schedule.walk import all_steps, mapped, read, with_bodies

LANE = Index("lane")


@dataclass(frozen=True, slots=True)
class _List:
    """`rows`: of a block. `tokens`: tables by which readers find rows of tokens with an expert on their rank. `pulled`: it is of
    rows that come from each rank."""

    listed: str
    here: str
    rows: int
    tokens: frozenset[str]
    pulled: bool


def with_all_rows(schedule: Schedule, spec: BoundSpec) -> Schedule:
    """`schedule` with moves of all rows instead of listed ones, as far as that is the same to readers. It has numbers for its
    dims."""
    calls = [step for step in all_steps(schedule) if isinstance(step, Call)]
    lists = [_list(schedule, spec, step, calls) for step in calls if step.function == LIST_ROWS]
    if not lists:
        return schedule

    def changed(step: Step) -> tuple[Step, ...]:
        match step:
            case Move((source,), (target,)):
                found = (_whole(schedule, one, source, target) for one in lists)
                both = next((pair for pair in found if pair is not None), (source, target))
                return (replace(step, source=both[:1], target=both[1:]),)
            case Call(function=function) if function == LIST_ROWS:
                return (replace(step, tables=(), numbers=()),)
        return (step,)

    return with_bodies(schedule, lambda body: mapped(body, changed))


def _list(schedule: Schedule, spec: BoundSpec, step: Call, calls: list[Call]) -> _List:
    listed, here = step.tables
    pulled = step.numbers[2:] == (rank,)
    gathered = (
        {step.operands[0].buffer}
        if pulled
        else {
            node.output.name
            for node in spec.nodes
            if node.operation == AllGather(0) and node.inputs == (step.operands[0].buffer,)
        }
    )
    tokens = set[str]()
    for one in calls:
        if one.function != SORT_ROWS or one.operands[0].buffer not in gathered:
            continue
        if _all_listed(sorts(schedule, one), step):
            tokens.add(one.tables[3])
    return _List(listed, here, schedule.shapes[listed][-1], frozenset(tokens), pulled)


def _all_listed(told: Sorts, step: Call) -> bool:
    """Whether each rank has experts only of those whose tokens are listed for it; it may have fewer."""
    most = step.numbers[0]
    if not isinstance(most, int):
        return False
    own = enumerate(zip(told.first, told.own, strict=True))
    return all(not many or rank * most <= first <= first + many <= (rank + 1) * most for rank, (first, many) in own)


def _whole(schedule: Schedule, one: _List, source: Region, target: Region) -> tuple[Region, Region] | None:
    """Source and target of the move of a whole block; None if it moves no rows of the list, or not as the list says."""
    rows = source.extent[0]
    if not isinstance(rows, Index) or rows.op != one.here or source.extent != target.extent:
        return None
    peer, block = rows.args
    entry = Index(one.listed, (peer, block, LANE))
    begin, there = _without(source.start[0], entry), _without(target.start[0], entry)
    if begin is None or there is None or difference(begin, block * one.rows) != 0:
        return None
    if (source.at, target.at) != ((peer, rank) if one.pulled else (rank, peer)) or not _found_by(
        schedule, one, target.buffer
    ):
        return None
    extent = one.rows, *source.extent[1:]
    whole = replace(source, start=(begin, *source.start[1:]), extent=extent)
    return whole, replace(target, start=(there, *target.start[1:]), extent=extent)


def _without(start: Number, entry: Index) -> Number | None:
    """What comes to the entry of the list; None if it is not there once, or more of tables is."""
    found = terms_of(start)
    if found.pop(entry, 0) != 1 or any(tables_in(term) or "lane" in names_in(term) for term in found):
        return None
    total: Number = 0
    for term, factor in found.items():
        total = total + term * factor
    return total


def _found_by(schedule: Schedule, one: _List, buffer: str) -> bool:
    """Whether all readers of a buffer find rows by a table of tokens that the list is about."""
    for step in all_steps(schedule):
        for region in read(step):
            if region.buffer != buffer:
                continue
            first = region.start[0]
            if not isinstance(step, Load) or not isinstance(first, Index) or first.op not in one.tokens:
                return False
    return True
