"""Rows that go to their places in the order of the receiver's tiles, as if all rows went to all ranks: for every routing at once.

A call of `list_places` lists, for each rank p, all own assignments with an expert there, each once, with the place that tables of
rank p give it (`tilelink.ir.routed.Placed`). If every rank moves all pieces of its lists, each place of rank p that has a row has
the row of its token. So readers find what they would find if all rows had come by token, and they looked up tokens:

    move x[listed[p, q * P + lane] : +here[p, q], n] -> y[placed[p, q * P + lane] : +here[p, q], n]@p
    ->   move x[q * R : +R, n] -> y[f + q * R : +R, n]@p            of R tokens, which have P assignments, from token f on
    left = y[m : +height, k]
    ->   left = y[tokens[m + lane] : +here_of_tile[m // height], k]

Pieces of a list stand for pieces of the tokens, so that one which nobody moves is missing here, too. Rows behind the last one of
a tile are nobody's, and what becomes of them is stored nowhere. Moves that are told otherwise, and reads of something else than
whole tiles, stay as they are: nobody knows what they bring.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilelink.proof.contents.tables import Sorts, sorts
from tilelink.schedule.index import Index, Number, difference, rank, value_of
from tilelink.schedule.memory import Region
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import LIST_PLACES, SORT_ROWS, Call, Load, Move, Step
from tilelink.schedule.walk import all_steps, mapped, read, with_bodies, written

LANE = Index("lane")


@dataclass(frozen=True, slots=True)
class _Lists:
    """`first`: of own tokens. `rows`: tokens that have the assignments of a piece. `tokens`, `of_tile`: tables of a routing whose
    order is that of the places, with tiles of `height` rows."""

    listed: str
    placed: str
    here: str
    piece: int
    rows: int
    first: Number
    places: int
    height: int
    tokens: str
    of_tile: str


def with_rows_by_token(schedule: Schedule) -> Schedule:
    """`schedule` with rows by token instead of by place, as far as that is the same to readers. It has numbers for its dims."""
    calls = [step for step in all_steps(schedule) if isinstance(step, Call)]
    lists = [found for step in calls if step.function == LIST_PLACES for found in _lists(schedule, step, calls)]
    if all(step.function != LIST_PLACES for step in calls):
        return schedule
    targets = {name: one for name, one in _targets(schedule, lists).items() if _only_by_place(schedule, one, name)}

    def changed(step: Step) -> tuple[Step, ...]:
        match step:
            case Move((source,), (target,)) if target.buffer in targets:
                both = _by_token(targets[target.buffer], source, target)
                assert both is not None, "all that write there are such moves"
                return (replace(step, source=both[:1], target=both[1:]),)
            case Load(region=region) if region.buffer in targets:
                return (replace(step, region=_looked_up(targets[region.buffer], region)),)
            case Call(function=function) if function == LIST_PLACES:
                return (replace(step, tables=(), numbers=()),)
        return (step,)

    tokens = {name: _tokens(schedule, one, calls) for name, one in targets.items()}
    buffers = tuple(
        replace(one, shape=(tokens[one.name], *one.shape[1:])) if one.name in tokens else one
        for one in schedule.buffers
    )
    return with_bodies(replace(schedule, buffers=buffers), lambda body: mapped(body, changed))


def _lists(schedule: Schedule, step: Call, calls: list[Call]) -> list[_Lists]:
    """The lists of a call, if tables of a routing give the same places."""
    _, listed, placed, here = step.tables
    first, _, share, every, choices, height, _ = step.numbers
    if not isinstance(height, int):
        return []
    (_, entries), (_, pieces), shapes = schedule.shapes[listed], schedule.shapes[here], schedule.shapes
    piece = entries // pieces
    below = next(value_of(one.below, schedule.sizes) for one in schedule.tables if one.name == placed)
    for one in calls:
        if one.function != SORT_ROWS or one.operands[0].buffer != step.operands[0].buffer:
            continue
        _, _, rows, tokens, experts, of_tile, *_ = one.tables
        told = sorts(schedule, one)
        same = not told.tokens and _alike(told, share, every) and told.choices == choices
        if same and shapes[rows][0] == shapes[experts][0] * height:
            by_token = piece // told.choices
            return [_Lists(listed, placed, here, piece, by_token, first, below, height, tokens, of_tile)]
    return []


def _alike(told: Sorts, share: Number, every: Number) -> bool:
    """Whether ranks have so many experts each, in order, the last ones fewer."""
    if not isinstance(share, int) or every != told.every:
        return False
    own = enumerate(zip(told.first, told.own, strict=True))
    return all(
        many == max(0, min(share, told.every - one * share)) and (not many or first == one * share)
        for one, (first, many) in own
    )


def _targets(schedule: Schedule, lists: list[_Lists]) -> dict[str, _Lists]:
    """Buffers into which rows of lists go, with room for all places."""
    return {
        step.target[0].buffer: one
        for step in all_steps(schedule)
        for one in lists
        if isinstance(step, Move)
        and len(step.target) == 1
        and _by_token(one, step.source[0], step.target[0]) is not None
        and schedule.shapes[step.target[0].buffer][0] >= one.places
    }


def _only_by_place(schedule: Schedule, one: _Lists, buffer: str) -> bool:
    """Whether all that write a buffer move rows of these lists, and all that read it load whole tiles."""
    for step in all_steps(schedule):
        for region in written(step):
            if region.buffer != buffer:
                continue
            if not isinstance(step, Move) or len(step.source) != 1 or _by_token(one, step.source[0], region) is None:
                return False
        for region in read(step):
            if region.buffer == buffer and not (isinstance(step, Load) and region.extent[0] == one.height):
                return False
    return True


def _by_token(one: _Lists, source: Region, target: Region) -> tuple[Region, Region] | None:
    """Source and target of the move of a piece by token; None if it moves no piece of the lists, or not as they say."""
    many = source.extent[0]
    if not isinstance(many, Index) or many.op != one.here or source.extent != target.extent:
        return None
    peer, piece = many.args
    if (source.at, target.at) != (rank, peer):
        return None
    for region, table in ((source, one.listed), (target, one.placed)):
        entry = region.start[0]
        if not isinstance(entry, Index) or entry.op != table or entry.args[0] != peer:
            return None
        if difference(entry.args[1], piece * one.piece + LANE) != 0:
            return None
    extent, begin = (one.rows, *source.extent[1:]), piece * one.rows
    whole = replace(source, start=(begin, *source.start[1:]), extent=extent)
    return whole, replace(target, start=(one.first + begin, *target.start[1:]), extent=extent)


def _looked_up(one: _Lists, region: Region) -> Region:
    """Rows of a tile by their tokens."""
    place = region.start[0]
    row, many = Index(one.tokens, (place + LANE,)), Index(one.of_tile, (place // one.height,))
    return replace(region, start=(row, *region.start[1:]), extent=(many, *region.extent[1:]))


def _tokens(schedule: Schedule, one: _Lists, calls: list[Call]) -> int:
    """Of all ranks."""
    ids = next(step.operands[0].buffer for step in calls if step.tables[1:2] == (one.listed,))
    return schedule.shapes[ids][0]
