"""Steps of rows that only some ranks need, as tables of a routing say (`tilelink.ir.routed`).

Programs of a launch of tiles move them first, each those of its share of the blocks of tokens. Across nodes, programs beside put
rows to the nodes that need them, strip by strip of blocks, and go on when a strip has landed; the rank of the same place there
hands them on from where they lie: the buffer that has a part for each node.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilelink.elaborate import signals
from tilelink.elaborate.positions import TILE, rank_at
from tilelink.elaborate.regions import LANE, chunk_region, rows_box
from tilelink.ir.movers import Transfer
from tilelink.ir.node_sums import from_nodes
from tilelink.ir.nodes import Exchange
from tilelink.ir.routed import Placed, RowLists, Sent
from tilelink.ir.schedule import Schedule
from tilelink.schedule.index import Index, Number, call, rank
from tilelink.schedule.memory import Region
from tilelink.schedule.roles import Phase
from tilelink.schedule.steps import For, If, Let, Move, Notify, Order, Step, Sync, Wait

PEER, BLOCK, PROGRAM = Index("peer"), Index("block"), Index("program")
GROUP, STRIP = Index("group"), Index("strip")


def phases(schedule: Schedule, name: str, programs: int) -> Iterator[Phase]:
    """By so many programs, before their tiles."""
    exchange = schedule.exchange(name)
    match exchange.sent:
        case Placed():
            yield _placed(schedule, exchange, exchange.sent, programs)
        case Sent(by_node=True):
            yield from _inside(schedule, exchange, exchange.sent, programs)
        case Sent():
            yield _moved(schedule, exchange, exchange.sent, programs)


def _moved(schedule: Schedule, exchange: Exchange, sent: Sent, programs: int) -> Phase:
    """Rows that each rank needs, or that this one needs of each, block by block. Programs begin with other ranks, so that links
    are in use all the time."""
    ranks, pulled = schedule.num_ranks, exchange.transfer is Transfer.PULL
    lists, (owner, reader) = sent.near(ranks, ranks), (PEER, rank) if pulled else (rank, PEER)
    rows = rows_box(exchange, _rows(lists, *((0, owner) if pulled else (reader, 0))))
    source = chunk_region(schedule, exchange.source, exchange, None, rows, owner)
    target = chunk_region(schedule, exchange.target, exchange, owner, rows, reader)
    told = Notify(signals.arrived(exchange.name), (owner, 0), reader, call, programs)
    wait = Wait(signals.ready(exchange.name), (PEER, 0), call, (exchange.source,))
    waits = (If(PEER, rank, (), (wait,)),) if pulled else ()
    let = ("peer", rank_at(exchange.order.ranks, (TILE + PROGRAM) % ranks)), *_share(lists, programs)
    title = "each program moves the rows that ranks need of its share of the tokens"
    title = "each program fetches its share of the rows that this rank needs" if pulled else title
    return Phase(ranks, (*waits, _blocks(source, target), told), let, every=True, title=title)


def _rows(lists: RowLists, reader: Number, owner: Number) -> tuple[Number, Number]:
    """(row, rows) of a part of the tokens that a reader needs of the block `block`. `owner`: which of the parts it is."""
    block = owner * lists.blocks + BLOCK
    return BLOCK * lists.rows + Index(lists.listed, (reader, block, LANE)), Index(lists.here, (reader, block))


def _share(lists: RowLists, programs: int) -> Let:
    first = lists.blocks * PROGRAM // programs
    return ("begin", first), ("share", lists.blocks * (PROGRAM + 1) // programs - first)


def _blocks(source: Region, target: Region) -> For:
    """The rows of a program's share of the blocks."""
    return For("number", Index("share"), (Move((source,), (target,)),), (("block", Index("begin") + Index("number")),))


def _placed(schedule: Schedule, exchange: Exchange, sent: Placed, programs: int) -> Phase:
    """Rows of own assignments at their places, piece by piece: programs take turns, since only the first pieces of a list have
    entries. Programs begin with other ranks, so that links are in use all the time."""
    ranks, piece = schedule.num_ranks, Index("piece")
    entry, many = (PEER, piece * sent.piece + LANE), Index(sent.here, (PEER, piece))
    source = Region(exchange.source, (Index(sent.listed, entry), 0), (many, exchange.cols))
    target = Region(exchange.target, (Index(sent.placed, entry), 0), (many, exchange.cols), PEER)
    own = (sent.pieces - PROGRAM + programs - 1) // programs
    let = (("piece", PROGRAM + Index("number") * programs),)
    move = For("number", own, (Move((source,), (target,)),), let)
    told = Notify(signals.arrived(exchange.name), (rank, 0), PEER, call, programs)
    order = ("peer", rank_at(exchange.order.ranks, (TILE + PROGRAM) % ranks))
    title = "each program moves pieces of the rows that ranks need, each row to its place"
    return Phase(ranks, (move, told), (order,), every=True, title=title)


# ---- across nodes ------------------------------------------------------------------------------------------------------


def put(schedule: Schedule, exchange: Exchange, sent: Sent) -> Phase:
    """Own rows to the rails of the nodes that need them, behind the word that the rank there has ended the last call."""
    local, nodes = _local(exchange), schedule.num_ranks // _local(exchange)
    lists, peer, node = sent.far(schedule.num_ranks, local), GROUP * local + rank % local, rank // local
    rows = rows_box(exchange, _rows(lists, GROUP, 0))
    source = chunk_region(schedule, exchange.source, exchange, None, rows)
    target = chunk_region(schedule, from_nodes(exchange), exchange, node, rows, peer)
    each, move = -(-lists.blocks // sent.strips), Move((source,), (target,))
    past = Index("max", (BLOCK + 1 - lists.blocks, 0))  # of a last strip, which may have fewer blocks
    some = If(past, 0, (move,)) if lists.blocks % sent.strips else move
    body = (
        Wait(signals.DONE_FAR, (GROUP,), call - 1),
        For("number", each, (some,), (("block", STRIP * each + Index("number")),)),
        Sync(Order.LANDED),
        Notify(signals.far(exchange.name), (node, STRIP), peer, call),
    )
    group = (node + nodes - 1 - TILE // sent.strips) % nodes
    let = ("group", group), ("strip", TILE % sent.strips)
    return Phase((nodes - 1) * sent.strips, body, let, title="rows that nodes need, to the rails")


def _inside(schedule: Schedule, exchange: Exchange, sent: Sent, programs: int) -> Iterator[Phase]:
    """To the ranks of the node that need them: own rows, then those that have come along the rail, in the order in which they
    come."""
    local, ranks = _local(exchange), schedule.num_ranks
    nodes, node = ranks // local, rank // local
    lists, peer = sent.near(ranks, local), node * local + Index("place")
    arrived, share = signals.arrived(exchange.name), _share(lists, programs)

    def handed(buffer: str, number: Number | None, owner: Number) -> tuple[For, Notify]:
        rows = rows_box(exchange, _rows(lists, Index("place"), owner))
        source = chunk_region(schedule, buffer, exchange, number, rows)
        target = chunk_region(schedule, exchange.target, exchange, owner, rows, peer)
        return _blocks(source, target), Notify(arrived, (owner, 0), peer, call, programs)

    let = ("place", (rank + 1 + TILE + PROGRAM) % local), *share
    title = "each program moves the own rows that ranks of the node need"
    yield Phase(local, handed(exchange.source, None, rank), let, every=True, title=title)
    come = Wait(signals.far(exchange.name), (GROUP, STRIP), call, (from_nodes(exchange),))
    waits: Step = For("strip", sent.strips, (come,))
    if local > 1:
        waits = If(Index("%", (TILE, local)), 0, (waits,))
    let = ("group", (node + 1 + TILE // local) % nodes), ("owner", GROUP * local + rank % local), *let
    title = "each program hands on what ranks of the node need of rows that have come from other nodes"
    yield Phase(
        (nodes - 1) * local, (waits, *handed(from_nodes(exchange), GROUP, Index("owner"))), let, every=True, title=title
    )


def _local(exchange: Exchange) -> int:
    return exchange.order.ranks.ranks_per_node
