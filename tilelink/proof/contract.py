"""What each signal promises. An exchange X has up to four signals, told apart by their ending:

X_count    local   slot (part, chunk): all tiles, or the library matmul, that write this chunk of the source have done so
X_ready    epoch   slot (peer, chunk): the peer's source holds this chunk, and may be pulled
X_arrived  epoch or local   slot (peer, chunk): this rank's target holds the peer's chunk
                              of a bounded exchange it counts the uses of a slot: so many items have arrived in it
X_sent     local   slot (peer, chunk): shares of the chunk that communication programs have stored at the peer
X_free     epoch   slot of a bounded exchange, at the sender: so many uses of the slot are over at the receiver
done       epoch   slot (peer): the peer reads and writes nothing of the call any more; or a count of such peers

X_place    place   slot (rank): the rank has begun this call, and peers may put their parts into this place of its pool

An exchange that is *met* promises nothing of its own: `done` of every peer at the end of the call promises it all.

The checks of this package are a rely/guarantee argument over these promises: whoever raises a signal must have made the
promise true (tilelink.proof.raising), whoever reads data must have waited for promises that cover it
(tilelink.proof.coverage).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilelink.ir.calls import LibraryGemm
from tilelink.ir.graph import Relation
from tilelink.ir.nodes import CommSms, CopyEngine, Exchange, Fused, Kernel, Kind, Memory, Scope, Transfer
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import IfOwn, Notify, Step


@dataclass(frozen=True, slots=True)
class Promise:
    """A signal that must exist: how it is raised, and how many arrivals make it complete (0: it holds an epoch)."""

    name: str
    scope: Scope
    slots: int
    arrivals: int


def promises(schedule: Schedule, exchange: Exchange) -> tuple[Promise, ...]:
    """The signals that `exchange` needs."""
    if exchange.slots:
        return tuple(Promise(f"{exchange.name}_{what}", Scope.PEER, exchange.slots, 0) for what in ("arrived", "free"))
    slots = schedule.num_ranks * exchange.chunks
    found = []
    if is_counted(schedule, exchange):
        parts = schedule.num_ranks if exchange.kind is Kind.SCATTER else 1
        found.append(Promise(f"{exchange.name}_count", Scope.LOCAL, parts * exchange.chunks, 0))
    if exchange.transfer is Transfer.PULL:
        found.append(Promise(f"{exchange.name}_ready", Scope.PEER, slots, 0))
    arrival = arrived(exchange)
    if is_pooled(schedule, exchange):
        found.append(Promise(f"{exchange.name}_place", Scope.PLACE, schedule.num_ranks, 0))
    if exchange.met:
        return tuple(found)
    if arrival is not None and arrival.name != f"{exchange.name}_ready":
        found.append(Promise(arrival.name, arrival.scope, slots, arrival.arrivals))
    if isinstance(exchange.mover, CommSms) and exchange.transfer is Transfer.PUSH:
        found.append(Promise(f"{exchange.name}_sent", Scope.LOCAL, slots, exchange.mover.num_sms))
    return tuple(found)


def is_pooled(schedule: Schedule, exchange: Exchange) -> bool:
    """Whether the target lies in another place from call to call."""
    return any(buffer.name == exchange.target and buffer.memory is Memory.POOL for buffer in schedule.buffers)


def arrived(exchange: Exchange) -> Promise | None:
    """What a reader of the target, or of the peer's source, must wait for; None: it is for readers after the call."""
    if exchange.met:
        return None
    name = f"{exchange.name}_arrived"
    if exchange.transfer is Transfer.PUSH:
        return Promise(name, Scope.PEER, 0, 0)
    match exchange.mover:
        case Fused():
            return Promise(f"{exchange.name}_ready", Scope.PEER, 0, 0)
        case CopyEngine():
            return Promise(name, Scope.LOCAL, 0, 1)
        case CommSms(num_sms):
            return Promise(name, Scope.LOCAL, 0, num_sms)


def is_counted(schedule: Schedule, exchange: Exchange) -> bool:
    """Whether tiles, or pieces of a library matmul, make the source during the call and count themselves."""
    return any(True for _ in counters(schedule, exchange))


def counters(schedule: Schedule, exchange: Exchange) -> list[tuple[int, Notify | LibraryGemm]]:
    """(launch, step or library matmul) that counts for the source of `exchange`."""
    found: list[tuple[int, Notify | LibraryGemm]] = []
    for index, launch in enumerate(schedule.launches):
        if isinstance(launch, Kernel) and launch.compute is not None:
            notifies = [step for step in flat(launch.compute.body) if isinstance(step, Notify)]
            found += [(index, step) for step in notifies if step.exchange == exchange.name]
        elif isinstance(launch, LibraryGemm) and launch.count and launch.split == exchange.name:
            found.append((index, launch))
    return found


def staging_names(relation: Relation) -> tuple[str, str]:
    """Buffers in which what `relation` sends is staged: by its value, or by its own name if several send that value."""
    return f"{relation.source}_staged", f"{relation.name}_staged"


def flat(steps: tuple[Step, ...]) -> list[Step]:
    """All steps, those inside branches too."""
    found: list[Step] = []
    for step in steps:
        if isinstance(step, IfOwn):
            found += [*flat(step.own), *flat(step.others)]
        else:
            found.append(step)
    return found
