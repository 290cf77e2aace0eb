"""Steps of a tile of attention: part by part of keys and values, the tiles that its rows see.

Which they are follows from positions. Row 0 of a tile of queries stands `first` tokens behind the first key of a part; a query
sees keys up to itself, and of these the last ones of a window. Of the tiles of a part

    begin ... inner    some keys are out of the window of some rows: masked
    inner ... whole    all rows see all keys
    whole ... end      some keys are behind some rows, or behind the end of the part: masked
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tilelink.elaborate.positions import rank_at, segment_name
from tilelink.elaborate.regions import Tiles, own_region, region
from tilelink.ir.enums import Choice
from tilelink.ir.steps import AttendBody, Operand
from tilelink.ir.steps import Wait as TileWait
from tilelink.schedule.index import Index, Number, greatest, least, rank, rounded_up
from tilelink.schedule.memory import Access, Region
from tilelink.schedule.steps import Compute, For, If, Let, Load, Step, Store

QUERIES, KEYS, VALUES = "queries_tile", "keys_tile", "values_tile"


@dataclass(frozen=True)
class Seen:
    """The tiles of a part that a tile of queries sees: `cut` are those from `whole` to the end of the text above."""

    begin: Number
    inner: Number
    whole: Number
    cut: Number


class Stands(Choice):
    """Where the first row of queries may stand, from the first key of a part on."""

    INSIDE = "inside"
    BEHIND = "behind"  # all of its keys
    ANYWHERE = "anywhere"


def state_of(result: str) -> tuple[str, str, str]:
    """What is carried from tile to tile: of each row the largest score, the sum of the weights, and that of values by weight."""
    return f"{result}_top", f"{result}_weight", result


def attended(
    tiles: Tiles, step: AttendBody, waits: Callable[[TileWait, Number, Number], tuple[Step, ...]]
) -> tuple[Step, ...]:
    """Own keys come first, then those of the ranks in the order in which they arrive, each behind its `waits`. With a causal mask
    these are the ranks before this one, where queries are cut as keys are."""
    axis, rows, how = tiles.axis(step.axis), tiles.written[0], step.how
    top, weight, total = state_of(step.result)
    height, position = tiles.width(rows.name), tiles.span(rows.name)[0]
    start = (
        Load(QUERIES, region(tiles, step.queries)),
        Compute((top,), "full", (-1e30,), (height, 1)),
        Compute((weight,), "zeros", shape=(height, 1)),
        Compute((total,), "zeros", shape=(height, how.width)),
    )
    end = (*_logs(tiles, step), Compute((total,), "attended", (total, weight)))
    alike = how.apart and rows.extent == axis.extent  # queries are cut as keys are
    place = position + (rank * rows.extent if how.apart else 0)
    if axis.segments == 1:
        return (*start, *_part(tiles, step, place, Stands.INSIDE if how.causal else Stands.ANYWHERE), *end)
    stands = Stands.INSIDE if alike else Stands.ANYWHERE
    own = _part(tiles.in_own(axis.name), step, position if alike else place - rank * axis.extent, stands)
    segment, number = Index(segment_name(axis.name)), Index(f"{axis.name}_place")
    earlier = how.causal and alike and not how.zigzag
    order = replace(tiles.role.order.minor_ranks, first=1, direction=-1 if earlier else 1)
    first = position + (rank - segment) * axis.extent if alike else place - segment * axis.extent
    awaited = tuple(one for wait in step.waits for one in waits(wait, segment, column_of(tiles, step)))
    let: Let = ((segment.op, rank_at(order, number)),)
    if how.zigzag:
        let += _blocks(axis.name, position // (rows.extent // 2), segment)
        seen = Seen(0, 0, Index(let[-1][0]) * (axis.extent // 2 // axis.tile), 0)
        theirs = (*awaited, *_loops(tiles, step, seen, first, causal=False))
    else:
        theirs = (*awaited, *_part(tiles, step, first, Stands.BEHIND if earlier else Stands.ANYWHERE))
        if how.causal and not earlier:
            theirs = (If(Index("max", (first + height, 0)), 0, (), theirs),)
    # parts that the window of the first row goes back to
    before = least(rank, rounded_up(greatest(how.window - 1 - position, 0), axis.extent)) if how.window else rank
    return (*start, *own, For(number.op, before if earlier else axis.segments - 1, theirs, let), *end)


def _logs(tiles: Tiles, step: AttendBody) -> tuple[Step, ...]:
    """Stores the logarithms of the sums of weights, if anybody needs them: of each row of the tile, of its head."""
    how, name = step.how, f"{step.result}_logs"
    if not how.logs:
        return ()
    top, weight, _ = state_of(step.result)
    rows, head = region(tiles, step.queries), Index(tiles.written[-1].name) // how.width
    place = Region(how.logs, (rows.start[-2], head), (rows.extent[-2], 1))
    made = Compute((name,), "log_of_weights", (top, weight))
    return (made, *(() if how.base2 else (Compute((name,), "in_base_e", (name,)),)), Store(name, place))


def _part(tiles: Tiles, step: AttendBody, first: Number, stands: Stands) -> tuple[Step, ...]:
    """One part, the first row of queries `first` tokens behind its first key."""
    axis, rows, how = tiles.axis(step.axis), tiles.written[0], step.how
    height = tiles.width(rows.name)
    causal = how.causal and (stands is not Stands.BEHIND or how.window > 0)
    even = stands is Stands.INSIDE and not (rows.extent % height or height % axis.tile or axis.extent % axis.tile)
    even = even or (stands is Stands.INSIDE and height == axis.tile and rows.extent == axis.extent)
    seen = seen_of(axis.extent, axis.tile, height, first, stands, how.window if causal else -1)
    if causal and even and not how.window:  # tiles of queries begin and end where tiles of keys do
        seen = Seen(0, 0, first // axis.tile, height // axis.tile)
    return _loops(tiles, step, seen, first, causal=causal)


def _blocks(axis: str, half: Number, segment: Index) -> Let:
    """How many of the two blocks of a rank a tile in the first or the second `half` of the own ones sees: of ranks before, the
    first one; of ranks behind, both, or none."""
    before, blocks = Index(f"{axis}_before"), Index(f"{axis}_blocks")
    seen = least(before + half * (1 - before) * 2, 2)  # it is; who reads bounds off an index sees it
    return (before.op, greatest(least(rank - segment, 1), 0)), (blocks.op, seen)


def _loops(tiles: Tiles, step: AttendBody, seen: Seen, first: Number, *, causal: bool) -> tuple[Step, ...]:
    """The loops over the tiles that are seen."""
    axis, how, state = tiles.axis(step.axis), step.how, state_of(step.result)

    def loop(begin: Number, count: Number, masked: bool) -> Iterator[Step]:
        if count == 0:
            return
        number, key = Index(f"{axis.name}_tile"), Index(axis.name)
        at = begin + number
        if isinstance(begin, Index):  # it is, and who reads bounds off an index sees it
            at = least(at, axis.tiles - 1)
        many = least(axis.tile, axis.extent - key) if masked and axis.extent % axis.tile else axis.tile
        loads = (_loaded(tiles, name, one, key, many, step) for name, one in ((KEYS, step.keys), (VALUES, step.values)))
        operands = (*state, QUERIES, KEYS, VALUES, how.scale, how.soft_cap)
        made = Compute(state, "attend", operands)
        if masked:
            ahead = first - key if causal else axis.extent
            made = Compute(state, "attend_some", (*operands, ahead, many, how.window))
        yield For(number.op, count, (*loads, made), ((key.op, at * axis.tile),))

    # any order will do; where a mask cuts whole tiles, there are as many in each tile of queries
    masked = (*loop(seen.whole, seen.cut, True), *loop(seen.begin, seen.inner - seen.begin, True))
    return (*masked, *loop(seen.inner, seen.whole - seen.inner, False))


def seen_of(extent: int, tile: int, height: int, first: Number, stands: Stands, window: int) -> Seen:
    """Of a part of `extent` keys in tiles of `tile`, by `height` rows of queries, the first of them `first` tokens behind the
    first key. `window`: 0 for a causal mask alone, -1 for none."""
    if window < 0:
        return Seen(0, 0, extent // tile, -(-extent // tile) - extent // tile)

    def within(position: Number, *, positive: bool) -> Number:
        return least(position if positive else greatest(position, 0), extent)

    positive = stands is not Stands.ANYWHERE
    end = rounded_up(within(first + height, positive=positive), tile)
    whole: Number = within(first + 1, positive=positive) // tile
    if not window:
        return Seen(0, 0, whole, end - whole)
    begin = within(first + 1 - window, positive=False) // tile
    inner = least(rounded_up(within(first + height - window, positive=False), tile), end)
    whole = greatest(whole, inner)
    return Seen(begin, inner, whole, end - whole)


def column_of(tiles: Tiles, step: AttendBody) -> Number:
    """Where the head of keys begins that the tile's head of queries shares."""
    width, head = step.how.width, Index(tiles.written[-1].name)
    return head // (step.how.shared * width) * width if step.how.shared > 1 else head


def _loaded(tiles: Tiles, result: str, operand: Operand, key: Number, many: Number, step: AttendBody) -> Load:
    """A tile of keys or values of the head that the tile's head of queries shares."""
    width, column, axis = step.how.width, column_of(tiles, step), tiles.axis(step.axis)
    own = operand.own and (step.axis in tiles.own or tiles.segment(operand.slot) == rank)
    found = own_region(tiles, operand) if own else region(tiles, operand)
    sequence, sequences = tiles.segment(tiles.written[0].name), step.how.sequences
    row = key + sequence * axis.extent if sequences > 1 else key
    if not operand.slot:  # parts lie one behind the other
        row = tiles.segment(axis.name) * (axis.extent * sequences) + row
    (*lead, _, _), (*before, _, _) = found.start, found.extent
    access = Access.DESCRIPTOR if found.access is Access.PARTS and not lead else found.access
    return Load(result, replace(found, start=(*lead, row, column), extent=(*before, many, width), access=access))
