"""Rows that only some ranks need, as if all went to all ranks: for every routing at once.

A call of `list_rows` lists, for each of some readers and each block of tokens, those with an expert there. Where whoever reads
what is moved finds rows by tables of the same routing, of the reader's own experts, it reads listed rows and no others: whatever
lies in the place of another row, nobody reads it. So what arrives is what would arrive if all rows were listed:

    move x[b * R + listed[p, b, lane] : +here[p, b], n] -> y[f + b * R + listed[p, b, lane] : +here[p, b], n]@p
    ->   move x[b * R : +R, n] -> y[f + b * R : +R, n]@p

The entry has to say which token a row is of: a list of own tokens does for rows of the own part, wherever they go; a list of all
tokens for rows that go to the place of their token.

A list of rows that a node needs has those that its ranks need. Where all that reads what has come to a node are moves of lists of
these ranks, they read listed rows and no others, too.

Moves that go elsewhere than their list says, or are read otherwise, stay as they are, and nobody knows what they bring.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilelink.ir.spec import AllGather, BoundSpec
from tilelink.proof.contents.tables import Sorts, sorts
from tilelink.proof.happens_before.flights import network_of
from tilelink.schedule.index import Index, Number, difference, names_in, rank, tables_in, terms_of
from tilelink.schedule.memory import Region
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import LIST_ROWS, SORT_ROWS, Call, Load, Move, Step
from tilelink.schedule.walk import all_steps, mapped, read, with_bodies

LANE = Index("lane")


@dataclass(frozen=True, slots=True)
class _List:
    """`rows`: of a block. `first`: the first reader. `experts`: of a reader. `every`: it is of the tokens of all ranks. `tokens`:
    tables by which ranks find rows of tokens with an expert there. `node`: ranks of a reader. `within`: lists of the ranks of its
    readers."""

    listed: str
    here: str
    rows: int
    first: Number
    experts: int
    every: bool
    tokens: frozenset[str]
    node: int = 1
    within: tuple[_List, ...] = ()


def with_all_rows(schedule: Schedule, spec: BoundSpec) -> Schedule:
    """`schedule` with moves of all rows instead of listed ones, as far as that is the same to readers. It has numbers for its
    dims."""
    calls = [step for step in all_steps(schedule) if isinstance(step, Call)]
    found = (_list(schedule, spec, step, calls) for step in calls if step.function == LIST_ROWS)
    lists = [one for one in found if one is not None]
    lists = [replace(one, within=_within(one, lists)) for one in lists]

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


def _list(schedule: Schedule, spec: BoundSpec, step: Call, calls: list[Call]) -> _List | None:
    """None if it is for readers that there are not."""
    (listed, here), ids = step.tables, step.operands[0].buffer
    experts, _, first = step.numbers
    readers, _, rows = schedule.shapes[listed]
    network = network_of(schedule)
    ranks, local = schedule.num_ranks, network[1] if network else schedule.num_ranks
    legal: dict[Number, set[int]] = {rank // local * local: {local}, rank: {1}}  # readers, by the first one
    legal[0] = {ranks, ranks // local} if local < ranks else {ranks}
    if not isinstance(experts, int) or readers not in legal.get(first, ()):
        return None
    gathered = {node.output.name: node.inputs[0] for node in spec.nodes if node.operation == AllGather(0)}
    every = ids in gathered
    routed = {ids} if every else {name for name, source in gathered.items() if source == ids}
    node = local if first == 0 and readers != ranks else 1
    tokens = set[str]()
    for one in calls:
        if one.function == SORT_ROWS and one.operands[0].buffer in routed:
            told = sorts(schedule, one)
            if experts % node == 0 and _all_listed(told, experts // node):
                tokens.add(one.tables[3])
    return _List(listed, here, rows, first, experts, every, frozenset(tokens), node)


def _all_listed(told: Sorts, most: int) -> bool:
    """Whether each rank has experts only of those whose tokens are listed for it, so many at `most`; it may have fewer."""
    own = enumerate(zip(told.first, told.own, strict=True))
    return all(not many or rank * most <= first <= first + many <= (rank + 1) * most for rank, (first, many) in own)


def _within(one: _List, lists: list[_List]) -> tuple[_List, ...]:
    """Lists of ranks whose rows are all in that of their node: of the same experts, by the same routing."""
    inside = rank // one.node * one.node
    return tuple(
        other
        for other in lists
        if one.tokens
        and other.first == inside
        and other.every
        and other.experts * one.node == one.experts
        and other.tokens == one.tokens
    )


def _whole(schedule: Schedule, one: _List, source: Region, target: Region) -> tuple[Region, Region] | None:
    """Source and target of the move of a whole block; None if it moves no rows of the list, or not as the list says."""
    entry = _entry(one, source)
    if entry is None or source.extent[-2] != target.extent[-2]:
        return None
    reader, block, _ = entry.args
    begin, there = _without(source.start[-2], entry), _without(target.start[-2], entry)
    if begin is None or there is None:
        return None
    of_token = there if one.every else begin
    if difference(of_token, block * one.rows) != 0 or (not one.every and source.at != rank):
        return None
    if not _is_reader(one, reader, target.at) or not _found_by(schedule, one, target.buffer):
        return None
    return _rows(source, begin, one.rows), _rows(target, there, one.rows)


def _entry(one: _List, region: Region) -> Index | None:
    """The entries of the list that say which rows a region has; None if others do."""
    many = region.extent[-2] if len(region.extent) > 1 else 0
    if not isinstance(many, Index) or many.op != one.here:
        return None
    return Index(one.listed, (*many.args, LANE))


def _is_reader(one: _List, reader: Number, at: Number) -> bool:
    """Whether that rank is the reader of a list, or is on the node that is."""
    if one.node == 1:
        return difference(at, one.first + reader) == 0
    return difference(at, (one.first + reader) * one.node + rank % one.node) == 0


def _rows(region: Region, first: Number, rows: int) -> Region:
    start, extent = (*region.start[:-2], first, region.start[-1]), (*region.extent[:-2], rows, region.extent[-1])
    return replace(region, start=start, extent=extent)


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
    """Whether all readers of a buffer find rows by a table of tokens that the list is about, or are moves of lists of ranks of
    the node, which go to these."""
    for step in all_steps(schedule):
        for region in read(step):
            if region.buffer != buffer:
                continue
            first = region.start[0]
            by_token = isinstance(step, Load) and isinstance(first, Index) and first.op in one.tokens
            by_list = isinstance(step, Move) and any(_hands_on(inner, step) for inner in one.within)
            if not by_list and not (by_token and one.node == 1):
                return False
    return True


def _hands_on(inner: _List, step: Move) -> bool:
    """Whether a move takes rows of a list to the places of their tokens at its reader."""
    (source, *_), (target, *_) = step.source, step.target
    entry = _entry(inner, source)
    if entry is None or len(step.source) > 1 or _without(source.start[-2], entry) is None:
        return False
    there = _without(target.start[-2], entry)
    by_token = there is not None and difference(there, entry.args[1] * inner.rows) == 0
    return by_token and _is_reader(inner, entry.args[0], target.at)
