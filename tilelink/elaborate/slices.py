"""Tiles in registers as slices of their columns, one after the other: registers hold what is added to one, but not to all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilelink.elaborate.regions import Tiles
from tilelink.schedule.steps import Compute, Step


def in_slices(
    tiles: Tiles, value: str, slices: int, made: Callable[[Tiles, str], tuple[Step, ...]]
) -> tuple[Step, ...]:
    """What is `made` of each slice of the columns of a tile, and its name, from left to right."""
    halving, names = _halved(value, tiles.width(tiles.columns), slices)
    each = (made(replace(tiles, cut=(number, slices)), name) for number, name in enumerate(names))
    return (*halving, *(step for steps in each for step in steps))


def _halved(value: str, width: int, slices: int) -> tuple[list[Step], list[str]]:
    """Steps that cut a tile into slices, halving by halving, and their names from left to right: by the columns they hold."""
    steps, names, size = list[Step](), [value], width
    while len(names) < slices:
        size //= 2
        halves = [f"{value}_{first}_{first + size}" for first in range(0, width, size)]
        steps += [Compute(tuple(halves[2 * at : 2 * at + 2]), "halves", (one,)) for at, one in enumerate(names)]
        names = halves
    return steps, names
