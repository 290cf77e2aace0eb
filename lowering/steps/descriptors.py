"""Tensor descriptors that a kernel takes: of which matrix each is, and of which tiles."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lowering.steps.dtypes import BYTES, element
from tilelink.schedule.index import Number
from tilelink.schedule.memory import Buffer

_MOST_BYTES = 128  # of a row that the layout of shared memory permutes at once


@dataclass(frozen=True, slots=True)
class Described:
    """All rows of `buffer` as a matrix, in tiles whose sides are called `block`: of the own rank, or of rank `peer`, and of a
    pool in place `place`. `part`: of only those rows that leading indices select, which are the same in all calls.
    `layout`: how a tile lies in shared memory, as Gluon has to know. `ends`: rows and columns from which on it has zeros, where
    tiles end before the matrix does. `parts`: the last two dimensions are a matrix of its own for each place in those before,
    so that a tile has zeros behind the last row of its part."""

    buffer: str
    block: tuple[str, ...]
    layout: str = ""
    peer: int | None = None
    place: int | None = None
    part: tuple[Number, ...] = ()
    ends: tuple[int | None, ...] = (None, None)
    parts: bool = False


def shared_layout(buffer: Buffer, cols: int, rank: int = 2) -> str:
    """The layout of tiles of `cols` columns in shared memory: tensor cores and TMA agree on it. `rank`: dimensions of a tile."""
    size = BYTES[element(buffer)]
    more = f", rank={rank}" if rank != 2 else ""
    return f"gl.NVMMASharedLayout({min(_MOST_BYTES, cols * size)}, {8 * size}{more})"


def layout_attribute(layout: str) -> str:
    """Its name in host code, by the bytes that it permutes and the bits of an element."""
    return "_".join(["SWIZZLED", *re.findall(r"\d+", layout)])
