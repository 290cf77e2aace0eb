"""Launches that put something new where they have read what lay there: each place is read before it is written.

Such a read finds what earlier launches left (`trace`). That is so if it comes in front of every write of the place: in an earlier
phase, or in front of it in the same position. Which of the two comes first where they are ordered otherwise, nothing here knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tilelink.proof.bug_class import BugClass
from tilelink.proof.contents.memory import Access, Memory
from tilelink.proof.findings import Finding
from tilelink.schedule.index import Ints


@dataclass(frozen=True, eq=False)
class Touch:
    """An access of launch `launch`, in phase number `phase` of it, as step number `step`, of `ranks` and positions `tiles`."""

    launch: int
    phase: int
    step: int
    access: Access
    ranks: Ints
    tiles: Ints
    writes: bool
    place: str


def read_too_late(touches: list[Touch], memory: Memory) -> Iterator[Finding]:
    """A finding for each read that may find what its own launch has written."""
    for read in (one for one in touches if not one.writes):
        for write in touches:
            same = (write.launch, write.access.buffer) == (read.launch, read.access.buffer)
            if write.writes and same and read.phase >= write.phase and _meet(read, write, memory):
                fact = f"{read.access.buffer} is read where the same launch may have written"
                yield Finding(BugClass.WRONG_PLACE, read.place, fact)
                break


def _meet(read: Touch, write: Touch, memory: Memory) -> bool:
    """Whether a place that is read is written by another position, or in front of the read."""
    cells = len(memory.cells[read.access.buffer]) // len(memory.versions[read.access.buffer])
    owner: dict[int, tuple[int, int]] = {}
    lanes = np.repeat(np.arange(len(write.access)), write.access.many)
    for place, lane in zip(write.access.cells % cells, lanes, strict=True):
        owner[int(place)] = int(write.ranks[lane]), int(write.tiles[lane])
    before = read.phase == write.phase and read.step <= write.step  # one step takes all that it needs before it puts
    lanes = np.repeat(np.arange(len(read.access)), read.access.many)
    for place, lane in zip(read.access.cells % cells, lanes, strict=True):
        by = owner.get(int(place))
        if by is not None and not (before and by == (int(read.ranks[lane]), int(read.tiles[lane]))):
            return True
    return False
