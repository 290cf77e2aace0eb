"""Steps of exchanges across nodes: puts along rails, copies inside of nodes, and how ranks end a call.

A rank reaches those of its node by loads and stores, and of each other node the rank of the same place, its rail, by puts. So it
waits for these alone before it writes to them, and tells these alone when it has ended: `done` counts the ranks of its node, and
`done_far` has a word for each node, which the rail there sets.

Of what is gathered an owner puts chunks to its rails, which hand them on. Of what is scattered, ranks of a node copy what is for
another node to the rank of that rail, which adds it and puts the sum: the target of rank r has a part from each rank of its node,
number `node * local + place`, for each node of them, and another buffer a sum from each other node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from tilelink.elaborate import signals
from tilelink.elaborate.positions import TILE, rank_at
from tilelink.elaborate.regions import Box, chunk_box, chunk_region
from tilelink.elaborate.stores import STEP
from tilelink.ir import nodes as planned
from tilelink.ir.calls import PacketCollective
from tilelink.ir.movers import Issuer
from tilelink.ir.node_sums import as_sent, from_nodes, in_strips, strips_of
from tilelink.ir.nodes import Exchange
from tilelink.ir.schedule import Schedule
from tilelink.schedule.index import Index, Number, call, least, rank
from tilelink.schedule.memory import Buffer, Memory, Region
from tilelink.schedule.network import TRANSPORTS
from tilelink.schedule.roles import MeshAxis, Phase
from tilelink.schedule.steps import (
    SEND_RECEIVE,
    Call,
    Compute,
    For,
    Let,
    Load,
    Move,
    Notify,
    Order,
    Step,
    Store,
    Sync,
    Wait,
)

# what the weakest promises is what all of them promise: a signal tells of its own put, and whoever issues it asks when its source
# is free
WEAKEST = TRANSPORTS["NVSHMEM put_signal_nbi"]
SENT = TRANSPORTS["NCCL send and stream write"]
GROUP, PEER, CHUNK, PART, OWNER = (Index(name) for name in ("group", "peer", "chunk", "part", "owner"))
SOURCE = Index("source")  # the node from which a rank receives, while it sends to `group`
_QUIET = Sync(Order.QUIET)
_SAID = {  # whether halves are beside, and whether they are around: to whom chunks go, and where they come from
    (False, False): ("the ranks of the node", "nodes"),
    (False, True): ("the ranks of the half", "halves"),
    (True, False): ("the other halves of the node", "nodes"),
}
_ADDED_ROWS, _ADDED_COLS = 16, 256  # of a tile that is added at a time: 32 registers of a thread of 4 warps


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
    body = (*ready, *_put(source, target, told))
    let = (*_away(schedule, exchange), ("peer", GROUP * _local(exchange) + rank % _local(exchange)))
    return Phase((_nodes(schedule, exchange) - 1) * exchange.chunks, body, let, title="own chunks to the rails")


def handed(schedule: Schedule, exchange: Exchange, ready: tuple[Step, ...], size: int) -> tuple[Phase, ...]:
    """Chunks to the ranks of the same place in the groups of `size` ranks beside the own one: own chunks, then those that have
    come over the levels outside, in the order in which they come."""
    name, chunks = exchange.name, exchange.chunks
    outer = exchange.order.ranks.groups[-1 if size == 1 else -2]  # ranks, among which it hands chunks on
    others, beside, here = outer // size - 1, *_SAID[size > 1, outer < _local(exchange)]
    let: Let = (("peer", _beside(exchange, outer, size, TILE % others)), ("chunk", TILE // others % chunks))
    own, target = _ends(schedule, exchange, rank)
    told = Notify(signals.arrived(name), (rank, CHUNK), PEER, call)
    steps = (*ready, Move((own,), (target,)), told)
    first = Phase(others * chunks, steps, let, title=f"own chunks to {beside}")
    let = (*_columns(exchange, outer, 1 + TILE // (others * chunks)), ("owner", GROUP * outer + rank % outer), *let)
    come, target = _ends(schedule, exchange, OWNER)
    steps = (
        Wait(signals.arrived(name), (OWNER, CHUNK), call, (exchange.target,)),
        Move((come,), (target,)),
        Notify(signals.arrived(name), (OWNER, CHUNK), PEER, call),
    )
    title = f"chunks that have come from other {here}, to {beside}"
    return first, Phase((schedule.num_ranks // outer - 1) * chunks * others, steps, let, title=title)


def _columns(exchange: Exchange, outer: int, step: Number) -> Let:
    """The group of `outer` ranks that is `step` further: through nodes, and in each through its halves."""
    node, nodes = _local(exchange), exchange.order.ranks.num_ranks // _local(exchange)
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


def _put(source: Region, target: Region, told: Notify) -> tuple[Step, ...]:
    """To the rail of node `group`, which has ended the last call; the source is free behind it."""
    return Wait(signals.DONE_FAR, (GROUP,), call - 1), Move((source,), (target,), told), _QUIET


# ---- along rails, by no program ----------------------------------------------------------------------------------------


def sent(schedule: Schedule, exchange: Exchange, ready: tuple[Step, ...]) -> tuple[Phase, ...]:
    """Chunk by chunk to the rail of one group of ranks: own chunks, which are gathered, or sums of this group's parts. They are
    put; or a library sends them, while as much comes from the rail of another group; or they are copied. `ready`: the wait for an
    own chunk."""
    size, groups, chunks, name = _local(exchange), _nodes(schedule, exchange), exchange.chunks, exchange.name
    box, group, step = chunk_box(exchange, CHUNK), rank // size, TILE // chunks
    let: Let = (("group", _turned(exchange, group, step, groups)), ("peer", GROUP * size + rank % size))
    if exchange.relayed:
        ready = (Wait(signals.of_node(name), (GROUP, CHUNK), call * strips_of(exchange), (sums_of(exchange),)),)
    here = _sums(exchange, box) if exchange.relayed else chunk_region(schedule, exchange.source, exchange, None, box)
    if exchange.mover.library_sms:
        back = (group + _first(step, groups, -exchange.order.ranks.direction)) % groups
        let += (("source", back), ("owner", SOURCE * size + rank % size), ("chunk", TILE % chunks))
        come, told = _landing(schedule, exchange, SOURCE, OWNER, rank)
        body = (*ready, Call(SEND_RECEIVE, (come,), (here,), numbers=(PEER, OWNER)), told)
        title = "chunks to the rails, while theirs come from these"
        return (Phase((groups - 1) * chunks, body, let, title=title),)
    there, told = _landing(schedule, exchange, group, rank, PEER)
    carried = (Move((here,), (there,), told), _QUIET) if exchange.mover.puts else (Move((here,), (there,)), told)
    body, let = (*ready, *carried), (*let, ("chunk", TILE % chunks))
    chunks_sent = Phase((groups - 1) * chunks, body, let, title="chunks to the rails")
    if not exchange.mover.puts:
        return (chunks_sent,)
    other: Let = (("group", _turned(exchange, group, TILE, groups)),)
    ended = Wait(signals.DONE_FAR, (GROUP,), call - 1)
    return Phase(groups - 1, (ended,), other, title="rails have ended the last call"), chunks_sent


def _landing(schedule: Schedule, exchange: Exchange, group: Number, owner: Number, at: Number) -> tuple[Region, Notify]:
    """Where at rank `at` a chunk of that `owner` lands, or of the sum of its `group`, and what tells of it."""
    box, name = chunk_box(exchange, CHUNK), exchange.name
    if exchange.relayed:
        there = chunk_region(schedule, from_nodes(exchange), exchange, group, box, at)
        return there, Notify(signals.far(name), (group, CHUNK), at, call)
    there = chunk_region(schedule, exchange.target, exchange, owner, box, at)
    return there, Notify(signals.arrived(name), (owner, CHUNK), at, call)


# ---- scatters ----------------------------------------------------------------------------------------------------------


def brought(schedule: Schedule, exchange: Exchange, ready: tuple[Step, ...]) -> Phase:
    """Chunks for each node, in the order in which they are made, to the ranks of this node that have that rail. `ready`: the wait
    for the chunk `chunk` of the part `peer`."""
    size, chunks, nodes = _local(exchange), exchange.chunks, _nodes(schedule, exchange)
    others, box = size - 1, chunk_box(exchange, CHUNK)
    part = GROUP * size + rank % size  # of the target
    group = _turned(exchange, rank // size, TILE // (others * chunks), nodes)
    place = _turned(exchange, rank % size, TILE // chunks % others, size)
    let: Let = (
        ("group", group),
        ("place", place),
        ("peer", GROUP * size + Index("place")),
        ("at", rank // size * size + Index("place")),
        ("chunk", TILE % chunks),
    )
    source = chunk_region(schedule, exchange.source, exchange, PEER, box)
    target = chunk_region(schedule, exchange.target, exchange, part, box, Index("at"))
    told = Notify(signals.arrived(exchange.name), (part, CHUNK), Index("at"), call)
    title = "chunks for all nodes to the ranks of this node on their rails"
    return Phase(nodes * others * chunks, (*ready, Move((source,), (target,)), told), let, title=title)


def relayed(schedule: Schedule, exchange: Exchange, ready: tuple[Step, ...]) -> Phase:
    """What the node has for each other one is added and put, strip by strip of a chunk. `ready`: see `brought`."""
    size, nodes, cut = _local(exchange), _nodes(schedule, exchange), in_strips(exchange)
    name, own, strip = exchange.name, GROUP * size + rank % size, Index("strip")
    box = chunk_box(cut, strip)
    group = _turned(exchange, rank // size, TILE // cut.chunks, nodes)
    let: Let = (
        ("group", group),
        ("strip", TILE % cut.chunks),
        ("chunk", strip // strips_of(exchange)),
        ("peer", own),
    )
    beside = GROUP * size + (rank % size + 1 + STEP) % size
    come = Wait(signals.arrived(name), (PART, CHUNK), call, (exchange.target,))
    waits = (For("step", size - 1, (come,), (("part", beside),)),) if size > 1 else ()
    body: tuple[Step, ...] = (*ready, *waits, *_added(schedule, exchange, box, beside))
    if exchange.mover.puts is not Issuer.PROGRAMS:
        body += (Notify(signals.of_node(name), (GROUP, CHUNK), rank),)
        return Phase((nodes - 1) * cut.chunks, body, let, title="sums of this node's parts for the rails")
    there = chunk_region(schedule, from_nodes(exchange), exchange, rank // size, box, own)
    told = Notify(signals.far(name), (rank // size, strip), own, call)
    body += _put(_sums(exchange, box), there, told)
    return Phase((nodes - 1) * cut.chunks, body, let, title="sums of this node's parts to the rails")


def sums_of(exchange: Exchange) -> str:
    """The buffer of what the ranks of this node have for each other node, added."""
    return f"{exchange.name}_of_node"


def buffers(schedule: Schedule) -> Iterator[Buffer]:
    """A network card that puts them reads symmetric memory alone."""
    for one in schedule.exchanges:
        if one.relayed:
            _, *part = schedule.buffer(one.target).shape
            shape, memory = (_nodes(schedule, one), *part), Memory.SYMMETRIC if one.mover.puts else Memory.LOCAL
            yield Buffer(sums_of(one), memory, shape, schedule.buffer(one.target).dtype)


def _sums(exchange: Exchange, inside: Box) -> Region:
    (row, rows), (col, cols) = inside
    return Region(sums_of(exchange), (GROUP, row, col), (1, rows, cols))


def _added(schedule: Schedule, exchange: Exchange, box: Box, beside: Number) -> tuple[Step, ...]:
    """The own part and those of the ranks beside, tile by tile of a box."""
    ((first, rows), (_, cols)) = box
    row, col = Index("row"), Index("col")
    high, wide = least(_ADDED_ROWS, rows - row), least(_ADDED_COLS, cols - col)
    inside = ((first + row, high), (col, wide))
    mine = chunk_region(schedule, exchange.source, exchange, PEER, inside)
    theirs = chunk_region(schedule, exchange.target, exchange, PART, inside)
    total, more = f"{exchange.name}_sum", f"{exchange.name}_more"
    adding = (Load(more, theirs), Compute((total,), "add", (total, more)))
    tile: tuple[Step, ...] = (
        Compute((total,), "zeros", shape=(_ADDED_ROWS, _ADDED_COLS)),
        Load(more, mine),
        Compute((total,), "add", (total, more)),
    )
    size = _local(exchange)
    if size > 1:
        tile += (For("step", size - 1, adding, (("part", beside),)),)
    tile += (Store(total, _sums(exchange, inside)),)
    along = For("col_tile", (cols + _ADDED_COLS - 1) // _ADDED_COLS, tile, (("col", Index("col_tile") * _ADDED_COLS),))
    tiles = (rows + _ADDED_ROWS - 1) // _ADDED_ROWS
    return (For("row_tile", tiles, (along,), (("row", Index("row_tile") * _ADDED_ROWS),)),)


class Parts(NamedTuple):
    """Parts that there are to add: the number of the one that is `step` further, and how many. `exchange`: with chunks as words
    tell of these parts, None if none do. `far`: the buffer of sums of other nodes, if they are these."""

    part: Number
    many: int
    exchange: Exchange | None
    far: str = ""


def parts_to_add(schedule: Schedule, exchange: Exchange | None, *, own: bool) -> tuple[Parts, ...]:
    """Those of the node, with the `own` one first or without it, then the sums of other nodes."""
    first, ranks = (0 if own else 1), schedule.num_ranks
    if exchange is None or not exchange.relayed:
        there = (rank + first + STEP) % ranks
        if exchange is not None and exchange.order.ranks.ranks_per_node < ranks:  # in the order in which they come
            there = rank_at(replace(exchange.order.ranks, first=0, direction=1), first + STEP)
        return (Parts(there, ranks - first, exchange),)
    size, nodes = _local(exchange), _nodes(schedule, exchange)
    here = rank // size * size + (rank % size + first + STEP) % size
    there = (rank // size + 1 + STEP) % nodes
    every = Parts(here, size - first, exchange), Parts(there, nodes - 1, as_sent(exchange), from_nodes(exchange))
    return tuple(parts for parts in every if parts.many)


# ---- orders ------------------------------------------------------------------------------------------------------------


def _local(exchange: Exchange) -> int:
    return exchange.order.ranks.ranks_per_node


def _nodes(schedule: Schedule, exchange: Exchange) -> int:
    return schedule.num_ranks // _local(exchange)


def _away(schedule: Schedule, exchange: Exchange) -> Let:
    """Chunk by chunk to each other node."""
    group = _turned(exchange, rank // _local(exchange), TILE // exchange.chunks, _nodes(schedule, exchange))
    return ("group", group), ("chunk", TILE % exchange.chunks)


def _beside(exchange: Exchange, outer: int, size: int, position: Number) -> Number:
    """The rank of the own place in the group of `size` ranks, of those of `outer`, at a position of the order of the exchange."""
    turned = _turned(exchange, rank % outer // size, position, outer // size)
    return rank // outer * outer + turned * size + (rank % size if size > 1 else 0)


def _turned(exchange: Exchange, own: Number, position: Number, size: int) -> Number:
    """The node, or the place in a node, at a position of the order of the exchange, in which the own one is last."""
    return (own + _first(position, size, exchange.order.ranks.direction)) % size


def _first(position: Number, size: int, direction: int) -> Number:
    return 1 + position if direction > 0 else size - 1 - position
