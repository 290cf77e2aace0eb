"""The index program of a routing, as host code launches it."""

from __future__ import annotations

import math
from collections.abc import Callable

from tilelink.schedule.index import Number
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
            found.setdefault(ids, f'check_ids("{ids}", self.{wrong}, {step.numbers[2]})')
    return list(found.values())


def sort_rows(schedule: Schedule, step: Call, ids: str, spell: Callable[[Number], str]) -> list[list[str]]:
    """What both launches are given: a kernel, its grid, and its arguments."""
    shapes, (counts, wrong, rows, tokens, experts, here, count) = schedule.shapes, step.tables
    first, own, every, choices, chunk = map(spell, step.numbers)
    (programs, bins), (most,), (places,) = shapes[counts], shapes[experts], shapes[rows]
    num_rows = math.prod(shapes[step.operands[0].buffer])
    both = [f"NUM_ROWS={num_rows}", f"NUM_EXPERTS={own}", f"BINS={bins}", f"CHUNK={chunk}", f"BLOCK={_BLOCK}"]
    sizes = [f"CHOICES={choices}", f"NUM_COUNTS={programs}", f"COUNTS_BLOCK={_COUNTS_BLOCK}"]
    sizes += [
        f"TILE={places // most}",
        f"MOST_TILES={most}",
        f"TILES_BLOCK={_TILES_BLOCK}",
        f"NONE={int(own == every)}",
    ]
    tables = [f"self.{name}" for name in (rows, tokens, experts, here, count)]
    grid, warps = f"({programs},)", f"num_warps={_WARPS}"
    return [
        ["count_experts", grid, ids, f"self.{counts}", f"self.{wrong}", first, *both, f"ALL_EXPERTS={every}", warps],
        ["place_rows", grid, ids, f"self.{counts}", *tables, first, *both, *sizes, warps],
    ]
