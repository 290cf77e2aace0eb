"""The words of a schedule: what each exchange tells, and to whom. Names of signals are made here, and nowhere else.

| word | raised | when |
| --- | --- | --- |
| `X_count` | here, by those that make the source of X | a tile or a call of a library has made its piece of a chunk |
| `X_ready` | at peers that pull | the own part, or a chunk of it, may be pulled |
| `X_arrived` | where it is read | a chunk is there; of a bounded exchange, an item |
| `X_of_node_added` | here | a program has added a strip of what this node has for another one |
| `X_far` | where it is read | a strip, or a chunk, of the sum of another node is there, or a strip of its rows |
| `X_free` | at the sender of a bounded exchange | the slot of an item may be used again |
| `X_place` | at every rank | in which place of its pool the output of this call lies |
| `X_gathered` | here | a program has gathered its blocks |
| `X_summed` | here | a program has stored its share of the sum of a tile of X |
| `X_added` | here | a program has stored a slice of such a tile |
| `copied` | here | a side stream has nothing left to copy in this call |
| `done` | at every peer, or at those of the node | this rank has finished the call |
| `done_far` | at the rank of the same place on each other node | this rank has finished the call |
"""

from __future__ import annotations

from collections.abc import Iterator

from tilelink.ir.calls import PacketCollective
from tilelink.ir.movers import Issuer, Transfer
from tilelink.ir.node_sums import SumLevel, as_sent, sum_levels
from tilelink.ir.nodes import CommRole, CopyProgram, Exchange, Finish, Kernel, Kind, TellPlace
from tilelink.ir.routed import Sent
from tilelink.ir.schedule import Schedule as Planned
from tilelink.schedule.index import Number, call
from tilelink.schedule.memory import Signal
from tilelink.schedule.names import SignalName

DONE, DONE_FAR, COPIED = "done", "done_far", "copied"


def counted(exchange: str) -> SignalName:
    return f"{exchange}_count"


def ready(exchange: str) -> SignalName:
    return f"{exchange}_ready"


def arrived(exchange: str) -> SignalName:
    return f"{exchange}_arrived"


def of_group(exchange: str, level: SumLevel) -> SignalName:
    """What a group has added for another one."""
    return f"{level.sums(exchange)}_added"


def landed(exchange: str, level: SumLevel) -> SignalName:
    """What other groups have added for this one."""
    return far(exchange) if level.of == "node" else f"{exchange}_beside"


def far(exchange: str) -> SignalName:
    return f"{exchange}_far"


def free(exchange: str) -> SignalName:
    return f"{exchange}_free"


def place(exchange: str) -> SignalName:
    return f"{exchange}_place"


def gathered(value: str) -> SignalName:
    return f"{value}_gathered"


def added(loop: str) -> SignalName:
    return f"{loop}_added"


def summed(loop: str) -> SignalName:
    return f"{loop}_summed"


def awaited(planned: Planned, exchange: Exchange) -> tuple[SignalName, Number]:
    """(word, value) that a reader of a chunk waits for: whoever brings it sets the number of the call, or each of several adds
    one."""
    match exchange.mover.issuer:
        case Issuer.WARPS:
            return arrived(exchange.name), call * _moves(planned, exchange)
        case _ if exchange.transfer is Transfer.PUSH:
            return arrived(exchange.name), call
        case Issuer.TILES:
            return ready(exchange.name), call
        case Issuer.STREAMS:
            return arrived(exchange.name), call
        case Issuer.PROGRAMS if exchange.sent is not None:  # the last one of them tells
            return arrived(exchange.name), call
        case Issuer.PROGRAMS:
            roles = (comm for kernel in planned.kernels() for comm in kernel.comm)
            return arrived(exchange.name), call * sum(one.programs for one in roles if one.exchange == exchange.name)


def _moves(planned: Planned, exchange: Exchange) -> int:
    """How often warps move rows of a chunk, each time telling of them."""
    roles = (comm for kernel in planned.kernels() for comm in kernel.comm)
    return next(moves_of(exchange, comm) for comm in roles if comm.exchange == exchange.name)


def moves_of(exchange: Exchange, comm: CommRole) -> int:
    """Moves of a chunk by warps; the last one has fewer rows where there are none left."""
    rows = exchange.rows + (comm.rows - 1 if exchange.rows % comm.rows else 0)
    return rows // comm.rows


def raised(exchange: Exchange) -> SignalName | None:
    """What whoever completes a chunk of the source raises at peers; None where the count itself is awaited."""
    if exchange.transfer is Transfer.PULL:
        return ready(exchange.name)
    return None if exchange.source else arrived(exchange.name)


def streams_that_tell(planned: Planned) -> int:
    """Side streams that tell their end."""
    return sum(one.streams for one in planned.launches if isinstance(one, CopyProgram) and one.tells_end)


def declared(planned: Planned) -> Iterator[Signal]:
    """Every signal that a schedule may have."""
    ranks = planned.num_ranks
    adds = any(isinstance(one, Finish) and one.turns for one in planned.launches)
    yield Signal(DONE, (1 if adds else ranks,))
    yield Signal(DONE_FAR, (ranks // planned.ranks_per_node,))
    told = {one.exchange for one in planned.launches if isinstance(one, TellPlace)}
    for exchange in planned.exchanges:
        name, chunks = exchange.name, exchange.chunks
        if exchange.slots:
            yield from (Signal(word(name), (exchange.slots,)) for word in (arrived, free))
            continue
        if name in told:
            yield Signal(place(name), (ranks,))
        yield Signal(counted(name), (ranks if exchange.kind is Kind.SCATTER else 1, chunks))
        yield from (Signal(word(name), (ranks, chunks)) for word in (ready, arrived))
        if isinstance(exchange.sent, Sent) and exchange.sent.by_node:
            yield Signal(far(name), (ranks // exchange.order.ranks.ranks_per_node, exchange.sent.strips))
        for level in sum_levels(exchange):
            groups, cut = ranks // level.size, as_sent(exchange) if level.outer == ranks else exchange
            yield Signal(of_group(name, level), (groups, chunks))
            yield Signal(landed(name, level), (groups, cut.chunks))
    yield Signal(COPIED, (streams_that_tell(planned),))
    for launch in planned.launches:
        if isinstance(launch, PacketCollective) and launch.within:
            yield Signal(gathered(launch.out), (1,))
        if isinstance(launch, Kernel) and launch.compute is not None and launch.compute.split:
            yield from (Signal(word(launch.compute.name), (launch.compute.split,)) for word in (summed, added))
