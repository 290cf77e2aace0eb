"""How a collective is carried out: independent fields. Which of them go together is a table (`tilelink.planner.collectives`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilelink.ir.enums import Choice, Protocol
from tilelink.ir.movers import Fused, Library, OwnKernel
from tilelink.ir.nodes import TileShape
from tilelink.ir.serialize import LATER


class Landing(Choice):
    """Where the second shot of an all_reduce gathers the sums."""

    COPIED = "copied"  # in a buffer of the schedule; an output is copied from there
    REUSED = "reused"  # where the caller reads it: the next call overwrites it there
    POOLED = "pooled"  # in a place of a pool that holds nothing of the caller's any more


class Adder(Choice):
    """Who adds rows of a token that experts on several ranks have made."""

    SENDER = "sender"  # each rank those that it has: a row a token travels from each
    RECEIVER = "receiver"  # the rank of the token all of them, in the order of its choices: each row travels


@dataclass(frozen=True, slots=True)
class Collective:
    """`mover`: of all bytes; None: exchanges of chunks carry it out, each of which has a mover of its own. `Fused`: the tiles
    that make what is added, or read what is gathered. `shots`: 2 if parts go to their ranks, and then their sums to all.
    `multicast`: packets that all ranks get go to them by one store.

    Of states that ranks merge, `splits` programs have a share of the own tokens each, and so a state; `tile`: of heads that
    share keys, tokens that are taken at once, and elements of a head."""

    mover: OwnKernel | Fused | Library | None = None
    protocol: Protocol = Protocol.SIMPLE
    shots: int = 1
    landing: Landing = Landing.COPIED
    adder: Adder = Adder.SENDER
    splits: int = 0
    tile: TileShape | None = None
    multicast: bool = field(default=False, metadata=LATER)

    @property
    def by_chunks(self) -> bool:
        return self.mover is None

    @property
    def by_library(self) -> bool:
        return isinstance(self.mover, Library)

    @property
    def by_call(self) -> bool:
        """Whether one call on the compute stream does all of it."""
        return isinstance(self.mover, OwnKernel | Library)

    @property
    def by_packets(self) -> bool:
        return self.protocol is not Protocol.SIMPLE

    @property
    def within_node(self) -> str:
        """What of it goes to ranks of the same node alone, in words; other ranks get packets of LL."""
        return "one store goes" if self.multicast else "lines go" if self.protocol is Protocol.LL128 else ""

    @property
    def in_tiles(self) -> bool:
        return isinstance(self.mover, Fused)

    @property
    def lands_there(self) -> bool:
        """Whether peers put what they gather where the caller reads it."""
        return self.landing is not Landing.COPIED

    @property
    def why_not_without_atomics(self) -> str:
        """Why it does not cross links that carry no atomics on a peer's memory, or nothing: it is done by stores of programs
        to peers, or with ranks that meet at the end of a call by counting each other."""
        by_programs = self.by_packets or self.lands_there
        return "programs of kernels store at peers, which meet by counting each other" if by_programs else ""
