"""Steps of movers: copies by engines and by programs beside the tiles, and publications."""

from __future__ import annotations

from dataclasses import replace

from tilelink.elaborate import listed, rail_sums, rails, signals
from tilelink.elaborate.positions import TILE, peer_and_chunk
from tilelink.elaborate.regions import (
    Box,
    chunk_box,
    chunk_region,
    chunk_rows,
    rows_box,
    source_part,
    whole_region,
)
from tilelink.elaborate.stores import STEP, places_of
from tilelink.elaborate.tiles import SLOT, USE, in_tiles, item_lets
from tilelink.ir.counting import counting_step, source_arrivals
from tilelink.ir.movers import Transfer
from tilelink.ir.nodes import CommRole, CopyOwn, CopyProgram, Exchange, Kind, Publish
from tilelink.ir.routed import Sent
from tilelink.ir.schedule import Schedule
from tilelink.schedule.index import Index, Number, call, least, rank
from tilelink.schedule.memory import Access, Region
from tilelink.schedule.roles import CopyEngine, Host, Network, Phase, Role
from tilelink.schedule.steps import Compute, For, If, Move, Notify, Step, Store, Wait

PEER, CHUNK, PROGRAM = Index("peer"), Index("chunk"), Index("program")


def ends(schedule: Schedule, exchange: Exchange, inside: Box) -> tuple[Region, Region]:
    """(source, target) of what is `inside` of the part that goes to `peer`, or comes from there."""
    if exchange.transfer is Transfer.PUSH:
        source = chunk_region(schedule, exchange.source, exchange, source_part(schedule, exchange, PEER), inside)
        return source, chunk_region(schedule, exchange.target, exchange, rank, inside, PEER)
    number = rank if exchange.kind is Kind.SCATTER else None
    source = chunk_region(schedule, exchange.source, exchange, number, inside, PEER)
    return source, chunk_region(schedule, exchange.target, exchange, PEER, inside)


def ready(schedule: Schedule, exchange: Exchange) -> tuple[Step, ...]:
    """The wait for the source of a chunk: for the tiles that make it, or for the peer that has it."""
    if exchange.transfer is Transfer.PULL:
        return (Wait(signals.ready(exchange.name), (PEER, CHUNK), call, (exchange.source,)),)
    if not exchange.counted:
        return ()
    number = PEER if exchange.kind is Kind.SCATTER else 0
    until = call * _by_chunk(_arrivals(schedule, exchange))
    return (Wait(signals.counted(exchange.name), (number, CHUNK), until, (exchange.source,)),)


def _arrivals(schedule: Schedule, exchange: Exchange) -> list[int]:
    """How many tiles, or calls of a library, make each chunk of the source."""
    found, counted = source_arrivals(schedule, exchange), counting_step(schedule, exchange)
    if counted is None or len(set(found)) > 1:
        return [int(tiles) for tiles in found]
    role, step, own = counted
    return [in_tiles(role, step, exchange, own, found[0])] * len(found)


def _by_chunk(numbers: list[int]) -> Number:
    """The number of the chunk `chunk`: as an index that changes where the numbers do."""
    found: Number = numbers[0]
    for chunk in range(1, len(numbers)):
        if by := numbers[chunk] - numbers[chunk - 1]:
            found = found + _at_least(chunk) * by
    return found


def _at_least(chunk: int) -> Number:
    """1 from `chunk` on, 0 before."""
    return (CHUNK + 1) // (chunk + 1) if chunk == 0 else Index("min", (1, Index("//", (CHUNK, chunk))))


def _within_reach(exchange: Exchange, body: tuple[Step, ...]) -> tuple[Step, ...]:
    """What is done for a peer that needs the part: whoever reads stands behind the rank whose part it is, and not too far."""
    if exchange.reach is None:
        return body
    reader, owner = (PEER, rank) if exchange.transfer is Transfer.PUSH else (rank, PEER)
    if exchange.reach < exchange.order.ranks.num_ranks - 1:
        body = (If(Index("max", (reader - owner - exchange.reach, 0)), 0, body),)
    return (If(Index("max", (owner + 1 - reader, 0)), 0, body),)


def copies(schedule: Schedule, launch: CopyProgram) -> tuple[Role, ...]:
    """Chunks by copy engines, in the order of the exchange, each behind its source and before its signal; those along rails
    perhaps by a library. Roles follow each other: several streams share one wait for peers, whose word they could see at
    different times."""
    exchange = schedule.exchange(launch.exchange)
    engine: CopyEngine | Host | Network = CopyEngine(launch.streams)
    ranks = exchange.order.ranks
    if launch.between == ranks.ranks_per_node and exchange.mover.along_rails:
        if exchange.mover.puts:
            engine = Network(enqueued=True)
        elif exchange.mover.library_sms:
            engine = Host(1, exchange.mover.library_sms)
        phases = [*rails.sent(schedule, exchange, ready(schedule, exchange))]
    elif not exchange.mover.along_rails:
        phases = [_copied(schedule, launch)]
    elif exchange.relayed and launch.between > 1:
        phases = [rail_sums.sent_beside(schedule, exchange)]
    elif exchange.relayed:
        phases = [rail_sums.brought(schedule, exchange, ready(schedule, exchange))]
    else:
        size = ranks.ranks_per_half if launch.between > 1 else 1
        phases = [*rails.handed(schedule, exchange, ready(schedule, exchange), size)]
    roles: list[Role] = []
    if launch.awaits_done:
        done = Phase(1, (Wait(signals.DONE, (0,), (call - 1) * (schedule.ranks_per_node - 1)),), every=True)
        if launch.streams > 1:
            roles.append(Role(f"{launch.stream}_begin", CopyEngine(), (done,)))
        else:
            phases.insert(0, done)
    if launch.tells_end:
        word = schedule.copied_word(launch) + (PROGRAM if launch.streams > 1 else 0)
        phases.append(Phase(1, (Notify(signals.COPIED, (word,), rank, call),), every=True))
    return (*roles, Role(launch.stream, engine, tuple(phases)))


def _copied(schedule: Schedule, launch: CopyProgram) -> Phase:
    """Chunks from or to peers, one after the other."""
    exchange = schedule.exchange(launch.exchange)
    source, target = ends(schedule, exchange, chunk_box(exchange, CHUNK))
    told: tuple[Step, ...] = ()
    if exchange.transfer is Transfer.PULL:
        told = (Notify(signals.arrived(exchange.name), (PEER, CHUNK), rank, call),)
    elif not exchange.met:
        told = (Notify(signals.arrived(exchange.name), (rank, CHUNK), PEER, call),)
    let = peer_and_chunk(exchange.order, exchange.chunks, streams=launch.streams > 1)
    count = (schedule.num_ranks - 1) * exchange.chunks
    body = _within_reach(exchange, (*ready(schedule, exchange), Move((source,), (target,)), *told))
    return Phase(count, body, let)


def programs(schedule: Schedule, comm: CommRole) -> Phase:
    """Chunks by programs, each a share of the rows of every chunk; or whole items in turn, each into its slot."""
    exchange = schedule.exchange(comm.exchange)
    if exchange.slots:
        return _items(schedule, exchange)
    if exchange.mover.along_rails:
        if isinstance(exchange.sent, Sent):
            return listed.put(schedule, exchange, exchange.sent)
        along = rail_sums.relayed if exchange.relayed else rails.puts
        return along(schedule, exchange, ready(schedule, exchange))
    first, rows = chunk_rows(exchange, CHUNK)
    begin = rows * PROGRAM // comm.programs
    share = (("begin", first + begin), ("share", rows * (PROGRAM + 1) // comm.programs - begin))
    source, target = ends(schedule, exchange, rows_box(exchange, (Index("begin"), Index("share"))))
    if exchange.transfer is Transfer.PUSH:
        told = Notify(signals.arrived(exchange.name), (rank, CHUNK), PEER, call, comm.programs)
    else:
        told = Notify(signals.arrived(exchange.name), (PEER, CHUNK), rank)
    body = _within_reach(exchange, (*ready(schedule, exchange), Move((source,), (target,)), told))
    let = (*peer_and_chunk(exchange.order, exchange.chunks, shifted=True), *share)
    title = "each program moves its share of every chunk"
    return Phase((schedule.num_ranks - 1) * exchange.chunks, body, let, every=True, title=title)


def by_warps(schedule: Schedule, comm: CommRole) -> Phase:
    """Chunks by a warp of each program, which take rows of them in turn and tell of these."""
    exchange, piece = schedule.exchange(comm.exchange), Index("piece")
    pieces, begin = signals.moves_of(exchange, comm), piece * comm.rows
    rows = comm.rows if not exchange.rows % comm.rows else least(comm.rows, exchange.rows - begin)
    (_, cols) = chunk_box(exchange, CHUNK)
    source, target = ends(schedule, exchange, ((begin, rows), cols))
    source, target = replace(source, access=Access.DESCRIPTOR), replace(target, access=Access.PACED)
    told = Notify(signals.arrived(exchange.name), (rank, CHUNK), PEER)
    body = _within_reach(exchange, (Move((source,), (target,)), told))
    let = (*peer_and_chunk(exchange.order, exchange.chunks, position=TILE // pieces), ("piece", TILE % pieces))
    title = "rows of chunks, in turn, a few at a time"
    return Phase((schedule.num_ranks - 1) * exchange.chunks * pieces, body, let, title=title)


def _items(schedule: Schedule, exchange: Exchange) -> Phase:
    receiver = (rank + exchange.by) % schedule.num_ranks
    first, rows = chunk_rows(exchange, TILE)
    source = chunk_region(schedule, exchange.source, exchange, None, rows_box(exchange, (first, rows)))
    target = chunk_region(schedule, exchange.target, exchange, SLOT, rows_box(exchange, (0, rows)), receiver)
    before = Wait(signals.free(exchange.name), (SLOT,), USE)
    after = Notify(signals.arrived(exchange.name), (SLOT,), receiver, USE + 1)
    return Phase(exchange.chunks, (before, Move((source,), (target,)), after), item_lets(exchange, TILE))


def publish(schedule: Schedule, launch: Publish) -> tuple[Step, ...]:
    """Every peer may pull the own part now, which is copied to where they can first."""
    exchange = schedule.exchange(launch.exchange)
    staged: tuple[Step, ...] = ()
    if launch.copy_from:
        whole = [whole_region(schedule, name) for name in (launch.copy_from, exchange.source)]
        staged = (Move((whole[0],), (whole[1],)),)
    peers = (("peer", (rank + 1 + STEP) % schedule.num_ranks),)

    def told(chunk: Number) -> Step:
        notify = Notify(signals.ready(exchange.name), (rank, chunk), PEER, call)
        return For("step", schedule.num_ranks - 1, (notify,), peers)

    return (*staged, told(0) if exchange.chunks == 1 else For("chunk", exchange.chunks, (told(CHUNK),)))


def tell_place(schedule: Schedule, exchange: str) -> tuple[Step, ...]:
    """Every rank may put its parts into the place that this call has: it is told where that is."""
    ranks = schedule.num_ranks
    peer = (rank + STEP) % ranks
    told = Store("place", Region(places_of(exchange), (rank,), (1,), peer))
    return (
        Compute(("place",), "own_place", (schedule.exchange(exchange).target,), (1,)),
        For("step", ranks, (told, Notify(signals.place(exchange), (rank,), peer, call))),
    )


def copy_own(schedule: Schedule, launch: CopyOwn) -> Move:
    exchange = schedule.exchange(launch.exchange)
    if launch.copy_from:
        return Move((whole_region(schedule, launch.copy_from),), (whole_region(schedule, exchange.source),))
    rows = rows_box(exchange, (0, exchange.rows))
    number = rank if exchange.kind is Kind.SCATTER else None
    source = chunk_region(schedule, exchange.source, exchange, number, rows)
    return Move((source,), (chunk_region(schedule, exchange.target, exchange, rank, rows),))
