"""The index programs of routings, as host code launches them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tilelink.schedule.index import Number, rank
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import LIST_PLACES, LIST_ROWS, SORT_ROWS, Call
from tilelink.schedule.tables import all_have_tiles
from tilelink.schedule.walk import all_steps

_MOST_TILES_BLOCK, _MOST_TILE_PROGRAMS = 64, 64
_ENDS_OF_WARP = 512  # of experts, which a warp compares with tiles at a time: 16 registers a thread
_COUNTS_OF_WARP = 2048  # counts that a warp holds at a time: 64 registers a thread


@dataclass(frozen=True, slots=True)
class Blocks:
    """How the index program is cut: `place_rows` has `tile_programs` more programs than there are chunks of ids, which make
    the tables of tiles, each `tiles` at a time. A program reads `counts` rows of counts at a time."""

    warps: int
    counts: int
    tiles: int
    tile_programs: int


def blocks(programs: int, chunk: int, bins: int, most_tiles: int) -> Blocks:
    """Four ids a thread, which a sort exchanges within registers and within warps as far as it can."""
    warps = min(8, max(4, chunk // 128))
    counts = min(_power(programs), max(1, _COUNTS_OF_WARP * warps // bins))
    tiles = min(_MOST_TILES_BLOCK, max(1, _ENDS_OF_WARP * warps // bins))
    return Blocks(warps, counts, tiles, min(_MOST_TILE_PROGRAMS, -(-most_tiles // tiles)))


def _power(number: int) -> int:
    return 1 << (number - 1).bit_length()


def ids_checked(schedule: Schedule) -> list[str]:
    """A call of `check_ids` for each tensor of ids."""
    found: dict[str, str] = {}
    for step in all_steps(schedule):
        if isinstance(step, Call) and step.function == SORT_ROWS:
            _, wrong, *_ = step.tables
            ids = step.operands[0].buffer
            found.setdefault(ids, f'check_ids("{ids}", self.{wrong}, {step.numbers[2]})')
    return list(found.values())


def sort_rows(schedule: Schedule, step: Call, ids: str, spell: Callable[[Number], str]) -> list[list[str]]:
    """What each launch is given: a kernel, its grid, and its arguments. One program needs no counts of others, and no launch
    that makes them."""
    shapes, (counts, wrong, rows, tokens, experts, here, count, *apart) = schedule.shapes, step.tables
    first, own, every, choices, chunk = map(spell, step.numbers[:5])
    (counters, bins), (most,), (places,) = shapes[counts], shapes[experts], shapes[rows]
    programs, firsts, own_rows = counters, [first], list[str]()
    if apart:
        first_own, own_tokens = (spell(one * step.numbers[3]) for one in step.numbers[5:])
        programs, firsts, own_rows = counters // 2, [first, first_own], [f"OWN_ROWS={own_tokens}"]
    cut = blocks(programs, int(chunk), bins, most)
    num_rows = math.prod(shapes[step.operands[0].buffer])
    both = [f"NUM_ROWS={num_rows}", f"NUM_EXPERTS={own}", f"ALL_EXPERTS={every}", *own_rows]
    both += [f"BINS={bins}", f"CHUNK={chunk}"]
    sizes = [
        f"CHOICES={choices}",
        f"NUM_COUNTS={programs}",
        f"COUNTS_BLOCK={cut.counts}",
        f"TILE={places // most}",
        f"MOST_TILES={most}",
        f"TILES_BLOCK={cut.tiles}",
        f"NONE={int(all_have_tiles(step))}",
    ]
    tables = [f"self.{name}" for name in (wrong, rows, tokens, experts, here, count, *apart)]
    grid, warps = f"({programs + cut.tile_programs},)", f"num_warps={cut.warps}"
    counting, placing = ("count_own_experts", "place_own_rows") if apart else ("count_experts", "place_rows")
    place = [placing, grid, ids, f"self.{counts}", *tables, *firsts, *both, *sizes, warps]
    if programs == 1:
        return [place]
    return [[counting, f"({programs},)", ids, f"self.{counts}", f"self.{wrong}", *firsts, *both, warps], place]


_LISTED_OF_WARP = 256  # tokens that a program of a warp looks at: 8 a thread


def list_rows(schedule: Schedule, step: Call, ids: str, spell: Callable[[Number], str]) -> list[list[str]]:
    """What the launch is given: a kernel, its grid, and its arguments. A program lists the rows of some blocks for a reader."""
    listed, here = step.tables
    lists, blocks, rows = schedule.shapes[listed]
    experts, choices, first = map(spell, step.numbers)
    each = min(_power(blocks), _LISTED_OF_WARP // rows)
    sizes = [f"NUM_TOKENS={blocks * rows}", f"CHOICES={choices}", f"NUM_EXPERTS={experts}", f"NUM_BLOCKS={blocks}"]
    given = [f"({-(-blocks // each)}, {lists})", ids, f"self.{listed}", f"self.{here}", first]
    return [["list_rows", *given, *sizes, f"ROWS={rows}", f"BLOCKS={each}", "num_warps=1"]]


def list_places(schedule: Schedule, step: Call, ids: str, spell: Callable[[Number], str]) -> list[list[str]]:
    """What each of two launches is given: a kernel, its grid, and its arguments."""
    shapes, (counts, listed, _, here) = schedule.shapes, step.tables
    share, every, choices, height, chunk = map(spell, step.numbers[2:])
    (counters, bins), (ranks, entries), (_, pieces) = shapes[counts], shapes[listed], shapes[here]
    chunks = counters // ranks
    cut = blocks(counters, int(chunk), bins, 1)
    both = [f"OWN_ROWS={entries}", f"NUM_EXPERTS={every}", f"BINS={bins}", f"CHUNK={chunk}"]
    sizes = [
        f"CHOICES={choices}",
        f"SHARE={share}",
        f"NUM_RANKS={ranks}",
        f"TILE={height}",
        f"PIECE={entries // pieces}",
    ]
    sizes += [f"CHUNKS={chunks}", f"COUNTS_BLOCK={cut.counts}", f"RANKS_BLOCK={_power(ranks)}"]
    sizes += [f"PIECES_BLOCK={_power(-(-pieces // chunks))}"]
    tables, warps = [f"self.{name}" for name in step.tables], f"num_warps={cut.warps}"
    count = ["count_choices", f"({chunks}, {ranks})", ids, tables[0], *both, warps]
    return [count, ["list_places", f"({chunks},)", ids, *tables, spell(rank), *both, *sizes, warps]]


INDEX_PROGRAMS = {SORT_ROWS: sort_rows, LIST_ROWS: list_rows, LIST_PLACES: list_places}
