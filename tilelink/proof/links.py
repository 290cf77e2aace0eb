"""What crosses a link that carries no atomics on a peer's memory: one table, for the planner before and the proof afterwards.

Over such links copy engines move the chunks, and every word that a peer waits for is copied behind them. Programs of kernels
raise words of peers by atomics, so nothing that tells a peer something may be done by a program.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilelink.ir.expand import BY_WORDS
from tilelink.ir.nodes import Algorithm, CommSms, CopyEngine, Finish, Fused, Mover, Transfer
from tilelink.ir.schedule import Schedule
from tilelink.proof.bug_class import BugClass
from tilelink.proof.contract import is_counted
from tilelink.proof.findings import Finding

# by stores of programs to peers, or with ranks that meet at the end of a call by counting each other
_BY_PROGRAMS = frozenset((Algorithm.POOLED, Algorithm.IN_PLACE, *BY_WORDS))


def why_no_exchange(mover: Mover, transfer: Transfer, *, by_tiles: bool) -> str:
    """Why an exchange does not cross links without peer atomics, or nothing. `by_tiles`: tiles of a kernel make its source,
    and count themselves."""
    match mover:
        case CopyEngine():
            pulled = transfer is Transfer.PULL and by_tiles
            return "the last tile of a chunk tells peers by an atomic that they may pull it" if pulled else ""
        case CommSms() | Fused():
            return "programs of kernels tell peers by atomics, and only copy engines tell them by copies"


def why_no_algorithm(algorithm: Algorithm) -> str:
    """Why a collective by `algorithm` does not cross links without peer atomics, or nothing."""
    return "programs of kernels store at peers, which meet by counting each other" if algorithm in _BY_PROGRAMS else ""


def links(schedule: Schedule) -> Iterator[Finding]:
    """Over links without peer atomics crosses what the table has, and `finish` tells peers by copies."""
    if schedule.machine.peer_atomics:
        return
    on = f"{schedule.machine.topology} has links without peer atomics"
    for launch in schedule.launches:
        if isinstance(launch, Finish) and not launch.by_copy:
            fact = f"done is raised by an atomic at peers, and {on}"
            yield Finding(BugClass.LINK_ATOMICS, "finish", fact, "done")
    for exchange in schedule.exchanges:
        reason = why_no_exchange(exchange.mover, exchange.transfer, by_tiles=is_counted(schedule, exchange))
        if reason:
            ending = "ready" if exchange.transfer is Transfer.PULL else "arrived"
            where = f"exchange {exchange.name}"
            yield Finding(BugClass.LINK_ATOMICS, where, f"{reason}, and {on}", f"{exchange.name}_{ending}")
    for name, algorithm in schedule.algorithms.items():
        if reason := why_no_algorithm(algorithm):
            yield Finding(BugClass.LINK_ATOMICS, f"collective {name}", f"{reason}, and {on}")
