"""What a routing orders: the index programs with their tables, and loops over tiles of rows by experts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilelink.elaborate import regions
from tilelink.elaborate.positions import TILE, lets, tile_name
from tilelink.elaborate.regions import Tiles, own_experts
from tilelink.elaborate.tiles import body
from tilelink.errors import LARGEST_SIZE
from tilelink.ir import steps as ir
from tilelink.ir.calls import ListPlaces, ListRows, SortRows
from tilelink.ir.nodes import Axis, ComputeRole, Launch
from tilelink.ir.routed import Placed, Readers
from tilelink.ir.schedule import Schedule as Planned
from tilelink.schedule.index import Index, Number, greatest, least, rank
from tilelink.schedule.memory import Law, Memory, Region, Table
from tilelink.schedule.roles import Host, Phase, Role
from tilelink.schedule.steps import LIST_PLACES, LIST_ROWS, SORT_ROWS, Call, For, If, Step, Wait
from tilelink.schedule.walk import steps_in

# ---- index programs ----------------------------------------------------------------------------------------------------


def tables_of(planned: Planned, launch: Launch) -> Iterator[Table]:
    """What an index program makes."""
    match launch:
        case SortRows():
            yield from _sorted_tables(launch)
        case ListRows():
            lists = launch.lists(planned.num_ranks, planned.ranks_per_node)
            shape = lists.lists, lists.parts * lists.blocks, lists.rows
            yield Table(lists.listed, shape, lists.rows, (Law.DIFFERS,), Memory.LOCAL)
            yield Table(lists.here, shape[:2], lists.rows + 1, (), Memory.LOCAL)
        case ListPlaces(placed):
            yield from _placed_tables(placed, planned.num_ranks)


def _sorted_tables(launch: SortRows) -> Iterator[Table]:
    """For tiles of a height."""
    routed, names = launch.routed, launch.tables
    most = routed.most_tiles(launch.height)
    counters = routed.programs * (2 if launch.own_first else 1)
    yield Table(names.counts, (counters, routed.bins), routed.rows + 1, (), Memory.LOCAL)
    yield Table(names.wrong, (1,), LARGEST_SIZE, (), Memory.LOCAL)
    laws = (Law.DIFFERS, Law.APART) if routed.parts > 1 else (Law.DIFFERS,)
    yield Table(names.rows, (most * launch.height,), routed.rows, laws, Memory.LOCAL)
    yield Table(names.tokens, (most * launch.height,), routed.tokens, (), Memory.LOCAL)
    yield Table(names.experts, (most,), routed.experts + 1, (), Memory.LOCAL)
    yield Table(names.here, (most,), launch.height + 1, (), Memory.LOCAL)
    yield Table(names.count, (1,), most + 1, (), Memory.LOCAL)
    if launch.own_first:
        yield Table(names.own, (1,), most + 1, (), Memory.LOCAL)


def _placed_tables(placed: Placed, ranks: int) -> Iterator[Table]:
    """Of rows that go to places."""
    shape = (ranks, placed.entries)
    yield Table(placed.counts, (ranks * placed.chunks, placed.bins), placed.chunk + 1, (), Memory.LOCAL)
    yield Table(placed.listed, shape, placed.tokens, (), Memory.LOCAL)
    yield Table(placed.placed, shape, placed.places, (Law.DIFFERS, Law.APART), Memory.LOCAL)
    yield Table(placed.here, (ranks, placed.pieces), placed.piece + 1, (), Memory.LOCAL)


def sort_rows(launch: SortRows, ranks: int) -> Role:
    """It is told experts, and which tokens come first."""
    routed = launch.routed
    ids = Region(routed.ids, (0, 0), (routed.tokens, routed.choices))
    numbers: tuple[Number, ...] = (*own_experts(routed), routed.every, routed.choices, routed.chunk)
    if launch.own_first:
        each = routed.tokens // ranks
        numbers = (*numbers, rank * each, each)
    step = Call(SORT_ROWS, (), (ids,), launch.made, numbers)
    return Role(f"{routed.name}_{launch.height}", Host(), (Phase(1, (step,), title="rows of each expert"),))


def list_rows(planned: Planned, launch: ListRows) -> Role:
    """It is told how many experts a reader has, and which reader the first list is of."""
    local = planned.ranks_per_node
    lists = launch.lists(planned.num_ranks, local)
    ids = Region(lists.ids, (0, 0), (lists.parts * lists.tokens, lists.choices))
    first = {Readers.OF_NODE: rank // local * local, Readers.OWN: rank}
    step = Call(
        LIST_ROWS, (), (ids,), (lists.listed, lists.here), (lists.experts, lists.choices, first.get(lists.of, 0))
    )
    return Role(lists.listed, Host(), (Phase(1, (step,), title=_LISTED[lists.of]),))


_LISTED = {
    Readers.RANKS: "rows that go to each rank",
    Readers.NODES: "rows that go to each node",
    Readers.OF_NODE: "rows that go to each rank of the node",
    Readers.OWN: "rows that come from each rank",
}


def list_places(placed: Placed) -> Role:
    """It is told which tokens are own ones, how many experts a rank has and all have, and the height of tiles."""
    routed, tokens = placed.routed, placed.tokens
    ids = Region(routed.ids, (0, 0), (routed.tokens, routed.choices))
    numbers = (rank * tokens, tokens, routed.experts, routed.every, routed.choices, placed.height, placed.chunk)
    step = Call(LIST_PLACES, (), (ids,), (placed.counts, placed.listed, placed.placed, placed.here), numbers)
    return Role(placed.placed, Host(), (Phase(1, (step,), title="places of rows at the ranks of their experts"),))


# ---- loops over tiles --------------------------------------------------------------------------------------------------

OWN_TOKENS = "tiles of own tokens"
FIRST_TILES = "the first tile of each program, as columns of all ranks come"


def phases(tiles: Tiles, role: ComputeRole, axis: Axis, title: str) -> Iterator[Phase]:
    """Programs wait for all that any tile may read, then go through tiles as far as there are any: tiles come in groups, of
    which the last one may have some without rows.

    Tiles of own tokens are the first ones, and may come before the waits. The group in which the others begin is then gone
    through twice, before and behind the waits: so each position stays that of the same program, and none has a tile more.

    Where a loop over k waits for columns, only the first tile of each program does: later ones find them all.
    """
    waits = tuple(step for step in role.body if isinstance(step, ir.Wait))
    steps = [step for step in role.body if step not in waits]
    tables, tile = regions.tables_of(axis), Index(tile_name(axis.name))
    own = Index(tables.own, (0,))
    is_own = Index("max", (own - tile, 0))  # 0: it is not
    if role.own_first:
        alone = If(is_own, 0, (), body(replace(tiles, own_rows=True), steps))
        yield Phase(_positions(role, axis, own), (alone,), lets(role, TILE), title=OWN_TOKENS)
    if waits:
        yield Phase(1, body(tiles, waits), every=True, title="rows of all ranks")
    here, end = Index(tables.here, (tile,)), _positions(role, axis, Index(tables.count, (0,)))
    if any(isinstance(step, ir.MatmulBody) and step.waits for step in steps):
        programs = role.programs
        yield Phase(programs, _where_rows(here, body(tiles, steps)), lets(role, TILE), title=FIRST_TILES)
        steps = [replace(step, waits=()) if isinstance(step, ir.MatmulBody) else step for step in steps]
        later = If(here, 0, (), body(tiles, steps))
        yield Phase(greatest(end - programs, 0), (later,), lets(role, TILE), programs, title=title)
        return
    some = If(here, 0, (), body(tiles, steps))
    if not role.own_first:
        yield Phase(end, (some,), lets(role, TILE), title=title)
        return
    first = own // role.order.group * _of_group(role, axis)
    yield Phase(end - first, (If(is_own, 0, (some,)),), lets(role, TILE), first, title=title)


def _where_rows(here: Index, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Steps of a tile where it has rows; it waits in any case, in loops over chunks, and so makes what these go on with."""
    waits = [any(isinstance(one, Wait) for one in steps_in((step,))) for step in steps]
    if not any(waits):
        return (If(here, 0, (), steps),)
    last = len(waits) - waits[::-1].index(True)
    loops = (
        replace(step, body=_where_rows(here, step.body)) if isinstance(step, For) else step for step in steps[:last]
    )
    behind = steps[last:]
    return (*loops, If(here, 0, (), behind)) if behind else tuple(loops)


def _positions(role: ComputeRole, axis: Axis, tiles: Index) -> Number:
    """Of the groups in which so many tiles along a routed axis lie."""
    group = role.order.group
    return least((tiles + group - 1) // group * _of_group(role, axis), role.num_tiles)


def _of_group(role: ComputeRole, axis: Axis) -> int:
    return role.order.group * (role.num_tiles // axis.tiles)
