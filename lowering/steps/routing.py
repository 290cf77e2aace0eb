"""The index program of a routing, as host code launches it."""

from __future__ import annotations

from tilelink.schedule.index import value_of
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import SORT_ROWS, Call
from tilelink.schedule.walk import all_steps

_BLOCK = 128  # ids that a program sorts at a time, by comparing each with each
_TILES_BLOCK, _COUNTS_BLOCK = 16, 16
_WARPS = 8


def ids_checked(schedule: Schedule) -> list[str]:
    """A call of `check_ids` for each tensor of ids."""
    found: dict[str, str] = {}
    for step in all_steps(schedule):
        if isinstance(step, Call) and step.function == SORT_ROWS:
            _, wrong, *_ = step.tables
            ids = step.operands[0].buffer
            found.setdefault(ids, f'check_ids("{ids}", self.{wrong}, {_all_experts(schedule, step)})')
    return list(found.values())


def _all_experts(schedule: Schedule, step: Call) -> int:
    """Of all ranks, where each has a part of its own."""
    experts = step.tables[4]
    own = next(value_of(table.below, schedule.sizes) for table in schedule.tables if table.name == experts) - 1
    return own * schedule.num_ranks if step.numbers != (0,) else own


def sort_rows(schedule: Schedule, step: Call, stream: str, ids: str, first: str) -> str:
    """Both launches. Sizes are those of the tables that `step` makes."""
    sizes = schedule.sizes
    shapes, below = schedule.shapes, {table.name: value_of(table.below, sizes) for table in schedule.tables}
    counts, wrong, rows, tokens, experts, here, count = step.tables
    num_rows, (programs, bins), (most,) = below[rows], shapes[counts], shapes[experts]
    chunk = max(_BLOCK, 1 << (-(-num_rows // programs) - 1).bit_length())
    both = f"NUM_ROWS={num_rows}, NUM_EXPERTS={below[experts] - 1}, BINS={bins}, CHUNK={chunk}, BLOCK={_BLOCK}"
    tile = shapes[rows][0] // most
    every = _all_experts(schedule, step)
    choices = num_rows // below[tokens]
    tables = ", ".join(f"self.{name}" for name in (rows, tokens, experts, here, count))
    numbers = f"CHOICES={choices}, NUM_COUNTS={programs}, COUNTS_BLOCK={_COUNTS_BLOCK}"
    tiles = f"TILE={tile}, MOST_TILES={most}, TILES_BLOCK={_TILES_BLOCK}, num_warps={_WARPS}"
    return (
        f"{stream}.launch(\n"
        f"    count_experts, ({programs},), {ids}, self.{counts}, self.{wrong}, {first},\n"
        f"    {both}, ALL_EXPERTS={every}, num_warps={_WARPS},\n"
        ")\n"
        f"{stream}.launch(\n"
        f"    place_rows, ({programs},), {ids}, self.{counts}, {tables}, {first},\n"
        f"    {both},\n"
        f"    {numbers}, {tiles},\n"
        ")\n"
    )
