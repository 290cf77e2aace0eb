"""Steps of exchanges across nodes: puts along rails, copies inside of nodes, and how ranks end a call.

A rank reaches those of its node by loads and stores, and of each other node the rank of the same place, its rail, by puts. So it
waits for these alone before it writes to them, and tells these alone when it has ended: `done` counts the ranks of its node, and
`done_far` has a word for each node, which the rail there sets.

Of what is gathered an owner puts chunks to its rails, which hand them on. Of what is scattered the ranks of a node add their sum
first (`rail_sums`).
"""

from __future__ import annotations

from tilelink.elaborate import rail_sums, signals
from tilelink.elaborate.positions import TILE
from tilelink.elaborate.rail_orders import (
    CHUNK,
    GROUP,
    PEER,
    QUIET,
    away,
    behind,
    beside,
    local_of,
    nodes_of,
    put,
    turned,
)
from tilelink.elaborate.regions import chunk_box, chunk_region
from tilelink.elaborate.stores import STEP
from tilelink.ir import nodes as planned
from tilelink.ir.calls import PacketCollective
from tilelink.ir.node_sums import sum_levels
from tilelink.ir.nodes import Exchange
from tilelink.ir.schedule import Schedule
from tilelink.schedule.index import Index, Number, call, rank
from tilelink.schedule.memory import Region
from tilelink.schedule.network import TRANSPORTS
from tilelink.schedule.roles import MeshAxis, Phase
from tilelink.schedule.steps import (
    SEND_RECEIVE,
    Call,
    For,
    Let,
    Move,
    Notify,
    Step,
    Wait,
)

# what the weakest promises is what all of them promise: a signal tells of its own put, and whoever issues it asks when its source
# is free
WEAKEST = TRANSPORTS["NVSHMEM put_signal_nbi"]
SENT = TRANSPORTS["NCCL send and stream write"]
OWNER = Index("owner")
SOURCE = Index("source")  # the node from which a rank receives, while it sends to `group`
_SAID = {  # whether halves are beside, and whether they are around: to whom chunks go, and where they come from
    (False, False): ("the ranks of the node", "nodes"),
    (False, True): ("the ranks of the half", "halves"),
    (True, False): ("the other halves of the node", "nodes"),
}


def mesh(schedule: Schedule) -> tuple[MeshAxis, ...]:
    """The dimensions of the ranks."""
    if not crosses(schedule):
        halves = (one.order.ranks.ranks_per_node for one in schedule.exchanges if one.mover.along_rails)
        if half := next(halves, 0):
            return MeshAxis("halves", schedule.num_ranks // half), MeshAxis("local", half)
        return (MeshAxis("ranks", schedule.num_ranks),)
    local, transport = schedule.ranks_per_node, WEAKEST if puts_words(schedule) else SENT
    nodes = MeshAxis("nodes", schedule.num_ranks // local, transport)
    half = next(filter(None, (one.order.ranks.ranks_per_half for one in schedule.exchanges)), 0)
    return (
        (nodes, MeshAxis("halves", local // half), MeshAxis("local", half))
        if half
        else (nodes, MeshAxis("local", local))
    )


def crosses(schedule: Schedule) -> bool:
    """Whether anything of the schedule goes over a network."""
    return any(exchange.mover.crosses_nodes for exchange in schedule.exchanges) or puts_words(schedule)


def puts_words(schedule: Schedule) -> bool:
    """Whether a rank puts to others, which it has to tell of the end of a call. Who receives from a library needs no
    such word: it receives in its own call."""
    put = (launch for launch in schedule.launches if isinstance(launch, PacketCollective) and launch.per_node)
    return any(exchange.mover.puts for exchange in schedule.exchanges) or any(put)


# ---- the end of a call -------------------------------------------------------------------------------------------------


def near(schedule: Schedule) -> tuple[Number, int]:
    """(rank of the node that is `step` further, how many others there are): all ranks if there is no other node."""
    size = schedule.ranks_per_node
    if not crosses(schedule):
        return (rank + 1 + STEP) % size, size - 1
    return rank // size * size + (rank % size + 1 + STEP) % size, size - 1


def ended(schedule: Schedule) -> tuple[Step, ...]:
    """Rails are told that this rank has ended the call."""
    if not puts_words(schedule):
        return ()
    size = schedule.ranks_per_node
    nodes = schedule.num_ranks // size
    there = (rank // size + 1 + STEP) % nodes * size + rank % size
    return (For("step", nodes - 1, (Notify(signals.DONE_FAR, (rank // size,), there, call),)),)


# ---- gathers -----------------------------------------------------------------------------------------------------------


def puts(schedule: Schedule, exchange: Exchange, ready: tuple[Step, ...]) -> Phase:
    """The own chunks, node by node, to the rail there: behind the word that it has ended the last call."""
    source, target = _ends(schedule, exchange, rank)
    shared = schedule.buffer(exchange.source).memory is planned.Memory.SYMMETRIC
    if exchange.own_copied and not shared:  # a network card reads symmetric memory alone
        source = chunk_region(schedule, exchange.target, exchange, rank, chunk_box(exchange, CHUNK))
    told = Notify(signals.arrived(exchange.name), (rank, CHUNK), PEER, call)
    body = (*ready, *put(source, target, told))
    let = (*away(exchange), ("peer", GROUP * local_of(exchange) + rank % local_of(exchange)))
    return Phase((nodes_of(exchange) - 1) * exchange.chunks, body, let, title="own chunks to the rails")


def handed(schedule: Schedule, exchange: Exchange, ready: tuple[Step, ...], size: int) -> tuple[Phase, ...]:
    """Chunks to the ranks of the same place in the groups of `size` ranks beside the own one: own chunks, then those that have
    come over the levels outside, in the order in which they come."""
    name, chunks = exchange.name, exchange.chunks
    outer = exchange.order.ranks.groups[-1 if size == 1 else -2]  # ranks, among which it hands chunks on
    others, near, here = outer // size - 1, *_SAID[size > 1, outer < local_of(exchange)]
    let: Let = (("peer", beside(exchange, outer, size, TILE % others)), ("chunk", TILE // others % chunks))
    own, target = _ends(schedule, exchange, rank)
    told = Notify(signals.arrived(name), (rank, CHUNK), PEER, call)
    steps = (*ready, Move((own,), (target,)), told)
    first = Phase(others * chunks, steps, let, title=f"own chunks to {near}")
    let = (*_columns(exchange, outer, 1 + TILE // (others * chunks)), ("owner", GROUP * outer + rank % outer), *let)
    come, target = _ends(schedule, exchange, OWNER)
    steps = (
        Wait(signals.arrived(name), (OWNER, CHUNK), call, (exchange.target,)),
        Move((come,), (target,)),
        Notify(signals.arrived(name), (OWNER, CHUNK), PEER, call),
    )
    title = f"chunks that have come from other {here}, to {near}"
    return first, Phase((schedule.num_ranks // outer - 1) * chunks * others, steps, let, title=title)


def _columns(exchange: Exchange, outer: int, step: Number) -> Let:
    """The group of `outer` ranks that is `step` further: through nodes, and in each through its halves."""
    node, nodes = local_of(exchange), exchange.order.ranks.num_ranks // local_of(exchange)
    if outer == node:
        return (("group", (rank // node + step) % nodes),)
    halves = node // outer
    at, half = Index("column"), (rank % node // outer + Index("column") % halves) % halves
    return ("column", step), ("group", (rank // node + at // halves) % nodes * halves + half)


def _ends(schedule: Schedule, exchange: Exchange, owner: Number) -> tuple[Region, Region]:
    """(source here, target at `peer`) of a chunk of that rank's part."""
    box = chunk_box(exchange, CHUNK)
    number = None if owner is rank else owner
    source = exchange.source if owner is rank else exchange.target
    there = chunk_region(schedule, exchange.target, exchange, owner, box, PEER)
    return chunk_region(schedule, source, exchange, number, box), there


# ---- along rails, by no program ----------------------------------------------------------------------------------------


def sent(schedule: Schedule, exchange: Exchange, ready: tuple[Step, ...]) -> tuple[Phase, ...]:
    """Chunk by chunk to the rail of one group of ranks: own chunks, which are gathered, or sums of this group's parts. They are
    put; or a library sends them, while as much comes from the rail of another group; or they are copied. `ready`: the wait for an
    own chunk."""
    size, groups, chunks = local_of(exchange), nodes_of(exchange), exchange.chunks
    box, group, step = chunk_box(exchange, CHUNK), rank // size, TILE // chunks
    let: Let = (("group", turned(exchange, group, step, groups)), ("peer", GROUP * size + rank % size))
    here = chunk_region(schedule, exchange.source, exchange, None, box)
    for level in sum_levels(exchange)[-1:]:
        ready, here = (rail_sums.made(exchange, level, GROUP),), rail_sums.sums(exchange, level, GROUP, box)
    if exchange.mover.library_sms:
        back = (group + behind(step, groups, -exchange.order.ranks.direction)) % groups
        let += (("source", back), ("owner", SOURCE * size + rank % size), ("chunk", TILE % chunks))
        come, told = _landing(schedule, exchange, SOURCE, OWNER, rank)
        body = (*ready, Call(SEND_RECEIVE, (come,), (here,), numbers=(PEER, OWNER)), told)
        title = "chunks to the rails, while theirs come from these"
        return (Phase((groups - 1) * chunks, body, let, title=title),)
    there, told = _landing(schedule, exchange, group, rank, PEER)
    carried = (Move((here,), (there,), told), QUIET) if exchange.mover.puts else (Move((here,), (there,)), told)
    body, let = (*ready, *carried), (*let, ("chunk", TILE % chunks))
    chunks_sent = Phase((groups - 1) * chunks, body, let, title="chunks to the rails")
    if not exchange.mover.puts:
        return (chunks_sent,)
    other: Let = (("group", turned(exchange, group, TILE, groups)),)
    ended = Wait(signals.DONE_FAR, (GROUP,), call - 1)
    return Phase(groups - 1, (ended,), other, title="rails have ended the last call"), chunks_sent


def _landing(schedule: Schedule, exchange: Exchange, group: Number, owner: Number, at: Number) -> tuple[Region, Notify]:
    """Where at rank `at` a chunk of that `owner` lands, or of the sum of its `group`, and what tells of it."""
    box, name = chunk_box(exchange, CHUNK), exchange.name
    for level in sum_levels(exchange)[-1:]:
        there = chunk_region(schedule, level.landing(name), exchange, group, box, at)
        return there, Notify(signals.landed(name, level), (group, CHUNK), at, call)
    there = chunk_region(schedule, exchange.target, exchange, owner, box, at)
    return there, Notify(signals.arrived(name), (owner, CHUNK), at, call)
