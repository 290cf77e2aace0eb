"""What a proof says of each thing that is wrong."""

from __future__ import annotations

from dataclasses import dataclass

from tilelink.proof.bug_class import BugClass


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason why a schedule is wrong. It holds on every rank: a schedule is one text for all of them."""

    bug: BugClass
    where: str  # launch, role, step
    fact: str  # what is wrong there, one sentence without a full stop
    signal: str = ""  # name of the signal concerned
    tile: str = ""  # an example of a tile, chunk or rank

    def __str__(self) -> str:
        concerned = ", ".join(part for part in (self.signal and f"signal {self.signal}", self.tile) if part)
        return f"{self.bug}\n  at {self.where}{f' ({concerned})' if concerned else ''}: {self.fact}"
