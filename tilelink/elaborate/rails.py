"""Steps of exchanges across nodes: puts along rails, copies inside of nodes, and how ranks end a call.

A rank reaches those of its node by loads and stores, and of each other node the rank of the same place, its rail, by puts. So it
waits for these alone before it writes to them, and tells these alone when it has ended: `done` counts the ranks of its node, and
`done_far` has a word for each node, which the rail there sets.
"""

from __future__ import annotations

from tilelink.elaborate import signals
from tilelink.elaborate.positions import TILE
from tilelink.elaborate.regions import chunk_box, chunk_region
from tilelink.elaborate.stores import STEP
from tilelink.ir.nodes import Exchange
from tilelink.ir.schedule import Schedule
from tilelink.schedule.index import Index, Number, call, rank
from tilelink.schedule.memory import Region
from tilelink.schedule.network import TRANSPORTS
from tilelink.schedule.roles import MeshAxis, Phase
from tilelink.schedule.steps import For, Let, Move, Notify, Order, Step, Sync, Wait

# what the weakest promises is what all of them promise: a signal tells of its own put, and whoever issues it asks when its source
# is free
WEAKEST = TRANSPORTS["NVSHMEM put_signal_nbi"]
NODE, LOCAL, GROUP, PEER, CHUNK = Index("node"), Index("local"), Index("group"), Index("peer"), Index("chunk")


def mesh(schedule: Schedule) -> tuple[MeshAxis, ...]:
    """The dimensions of the ranks."""
    if not crosses(schedule):
        return (MeshAxis("ranks", schedule.num_ranks),)
    local = schedule.ranks_per_node
    return MeshAxis("nodes", schedule.num_ranks // local, WEAKEST), MeshAxis("local", local)


def crosses(schedule: Schedule) -> bool:
    """Whether exchanges of the schedule go over a network."""
    return any(exchange.mover.crosses_nodes for exchange in schedule.exchanges)


def near(schedule: Schedule) -> tuple[Number, int]:
    """(rank of the node that is `step` further, how many others there are): all ranks if there is no other node."""
    size = schedule.ranks_per_node
    if not crosses(schedule):
        return (rank + 1 + STEP) % size, size - 1
    return rank // size * size + (rank % size + 1 + STEP) % size, size - 1


def ended(schedule: Schedule) -> tuple[Step, ...]:
    """Rails are told that this rank has ended the call."""
    if not crosses(schedule):
        return ()
    size = schedule.ranks_per_node
    nodes = schedule.num_ranks // size
    there = (rank // size + 1 + STEP) % nodes * size + rank % size
    return (For("step", nodes - 1, (Notify(signals.DONE_FAR, (rank // size,), there, call),)),)


def puts(schedule: Schedule, name: str) -> Phase:
    """The own chunks, node by node, to the rail there: behind the word that it has ended the last call."""
    exchange = schedule.exchange(name)
    size, nodes = exchange.order.ranks.ranks_per_node, schedule.num_ranks // exchange.order.ranks.ranks_per_node
    source, target = _ends(schedule, exchange, rank)
    told = Notify(signals.arrived(name), (rank, CHUNK), PEER, call)
    body = (Wait(signals.DONE_FAR, (GROUP,), call - 1), Move((source,), (target,), told), Sync(Order.QUIET))
    let: Let = (
        ("group", _turned(exchange, rank // size, TILE // exchange.chunks, nodes)),
        ("peer", GROUP * size + rank % size),
        ("chunk", TILE % exchange.chunks),
    )
    return Phase((nodes - 1) * exchange.chunks, body, let, title="own chunks to the same place on each other node")


def handed(schedule: Schedule, name: str) -> tuple[Phase, ...]:
    """Chunks to the ranks of the node: own ones, then those that have come along the rail, in the order in which they come."""
    exchange = schedule.exchange(name)
    size, chunks = exchange.order.ranks.ranks_per_node, exchange.chunks
    nodes, others = schedule.num_ranks // size, size - 1
    peer = rank // size * size + _turned(exchange, rank % size, TILE % others, size)
    let: Let = (("peer", peer), ("chunk", TILE // others % chunks))
    own, target = _ends(schedule, exchange, rank)
    told = Notify(signals.arrived(name), (rank, CHUNK), PEER, call)
    first = Phase(others * chunks, (Move((own,), (target,)), told), let, title="own chunks to the ranks of the node")
    group = (rank // size + 1 + TILE // (others * chunks)) % nodes
    let = (("group", group), ("owner", GROUP * size + rank % size), *let)
    owner = Index("owner")
    come, target = _ends(schedule, exchange, owner)
    steps = (
        Wait(signals.arrived(name), (owner, CHUNK), call, (exchange.target,)),
        Move((come,), (target,)),
        Notify(signals.arrived(name), (owner, CHUNK), PEER, call),
    )
    title = "chunks that have come from other nodes, to the ranks of this one"
    return first, Phase((nodes - 1) * chunks * others, steps, let, title=title)


def _ends(schedule: Schedule, exchange: Exchange, owner: Number) -> tuple[Region, Region]:
    """(source here, target at `peer`) of a chunk of that rank's part."""
    box = chunk_box(exchange, CHUNK)
    number = None if owner is rank else owner
    source = exchange.source if owner is rank else exchange.target
    there = chunk_region(schedule, exchange.target, exchange, owner, box, PEER)
    return chunk_region(schedule, source, exchange, number, box), there


def _turned(exchange: Exchange, own: Number, position: Number, size: int) -> Number:
    """The node, or the place in a node, at a position of the order of the exchange, in which the own one is last."""
    first = 1 + position if exchange.order.ranks.direction > 0 else size - 1 - position
    return (own + first) % size
