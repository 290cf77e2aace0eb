"""How a collective is carried out: independent fields. Which of them go together is a table (`tilelink.planner.collectives`)."""

from __future__ import annotations

from dataclasses import dataclass

from tilelink.ir.nodes import Fused
from tilelink.ir.word import Protocol, Word


@dataclass(frozen=True, slots=True)
class OwnKernel:
    """Packets move by one kernel that does nothing else."""


@dataclass(frozen=True, slots=True)
class Library:
    """One call of NCCL or RCCL moves everything; nothing overlaps with it."""


class Landing(Word):
    """Where the second shot of an all_reduce gathers the sums."""

    COPIED = "copied"  # in a buffer of the schedule; an output is copied from there
    REUSED = "reused"  # where the caller reads it: the next call overwrites it there
    POOLED = "pooled"  # in a place of a pool that holds nothing of the caller's any more


@dataclass(frozen=True, slots=True)
class Collective:
    """`mover`: of all bytes; None: exchanges of chunks carry it out, each of which has a mover of its own. `Fused`: the tiles
    that make what is added, or read what is gathered. `shots`: 2 if parts go to their ranks, and then their sums to all."""

    mover: OwnKernel | Fused | Library | None = None
    protocol: Protocol = Protocol.SIMPLE
    shots: int = 1
    landing: Landing = Landing.COPIED

    @property
    def by_chunks(self) -> bool:
        return self.mover is None

    @property
    def by_library(self) -> bool:
        return isinstance(self.mover, Library)

    @property
    def by_packets(self) -> bool:
        return self.protocol is not Protocol.SIMPLE

    @property
    def in_tiles(self) -> bool:
        return isinstance(self.mover, Fused)

    @property
    def lands_there(self) -> bool:
        """Whether peers put what they gather where the caller reads it."""
        return self.landing is not Landing.COPIED
