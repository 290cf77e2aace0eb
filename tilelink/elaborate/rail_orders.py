"""In which order ranks go through groups of ranks along rails, and how a chunk is put to a rail."""

from __future__ import annotations

from tilelink.elaborate import signals
from tilelink.elaborate.positions import TILE
from tilelink.ir.nodes import Exchange
from tilelink.schedule.index import Index, Number, call, rank
from tilelink.schedule.memory import Region
from tilelink.schedule.steps import Let, Move, Notify, Order, Step, Sync, Wait

GROUP, COLUMN, PEER, CHUNK, PART = (Index(name) for name in ("group", "column", "peer", "chunk", "part"))
QUIET = Sync(Order.QUIET)


def local_of(exchange: Exchange) -> int:
    """Ranks of a node, or of what stands for one."""
    return exchange.order.ranks.ranks_per_node


def nodes_of(exchange: Exchange) -> int:
    return exchange.order.ranks.num_ranks // local_of(exchange)


def put(source: Region, target: Region, told: Notify) -> tuple[Step, ...]:
    """To the rail of node `group`, which has ended the last call; the source is free behind it."""
    return Wait(signals.DONE_FAR, (GROUP,), call - 1), Move((source,), (target,), told), QUIET


def away(exchange: Exchange) -> Let:
    """Chunk by chunk to each other node."""
    group = turned(exchange, rank // local_of(exchange), TILE // exchange.chunks, nodes_of(exchange))
    return ("group", group), ("chunk", TILE % exchange.chunks)


def beside(exchange: Exchange, outer: int, size: int, position: Number) -> Number:
    """The rank of the own place in the group of `size` ranks, of those of `outer`, at a position of the order of the exchange."""
    group = turned(exchange, rank % outer // size, position, outer // size)
    return rank // outer * outer + group * size + (rank % size if size > 1 else 0)


def turned(exchange: Exchange, own: Number, position: Number, size: int) -> Number:
    """The node, or the place in a node, at a position of the order of the exchange, in which the own one is last."""
    return (own + behind(position, size, exchange.order.ranks.direction)) % size


def behind(position: Number, size: int, direction: int) -> Number:
    """How far behind the own one that is, in a circle of `size`."""
    return 1 + position if direction > 0 else size - 1 - position
