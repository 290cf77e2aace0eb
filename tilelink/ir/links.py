"""What crosses a link that carries no atomics on a peer's memory: one table, for the planner before and the proof afterwards.

Over such links copy engines move the chunks, and every word that a peer waits for is copied behind them. Programs of kernels
raise words of peers by atomics, so nothing that tells a peer something may be done by a program.
"""

from __future__ import annotations

from tilelink.ir.collective import Collective
from tilelink.ir.nodes import CommSms, CopyEngine, Fused, Mover, Transfer


def why_no_exchange(mover: Mover, transfer: Transfer, *, by_tiles: bool) -> str:
    """Why an exchange does not cross links without peer atomics, or nothing. `by_tiles`: tiles of a kernel make its source,
    and count themselves."""
    match mover:
        case CopyEngine():
            pulled = transfer is Transfer.PULL and by_tiles
            return "the last tile of a chunk tells peers by an atomic that they may pull it" if pulled else ""
        case CommSms() | Fused():
            return "programs of kernels tell peers by atomics, and only copy engines tell them by copies"


def why_no_collective(collective: Collective) -> str:
    """Why it does not cross links without peer atomics, or nothing: it is done by stores of programs to peers, or with ranks
    that meet at the end of a call by counting each other."""
    by_programs = collective.by_packets or collective.lands_there
    return "programs of kernels store at peers, which meet by counting each other" if by_programs else ""
