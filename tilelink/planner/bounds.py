"""What choices take at least: cheap bounds of the cost model, by which a search passes most over."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from tilelink.ir.choices import ComputeChoice, ExchangeChoice, LibraryCompute, TritonLoop
from tilelink.ir.graph import Relation, Sum
from tilelink.ir.movers import COPY_START_US, Issuer, Transfer
from tilelink.ir.nodes import Exchange, Kind
from tilelink.ir.order import Nest
from tilelink.ir.spec import DTYPE_BYTES, Matmul
from tilelink.planner.collective import FUNCTIONS
from tilelink.planner.cost import DRAG_US, MEET_US, WITHIN_US, meet_share, most_boost_us
from tilelink.planner.decisions import Chosen, Option
from tilelink.planner.layout import exchange_of, waits_late
from tilelink.planner.links import SIGNAL_COPY_US, SUM_LOAD_SHARE, chunk_us
from tilelink.planner.links import library_us as collective_us
from tilelink.planner.loop_bounds import Around, Busy, group_of, library_us, loop_us, num_tiles
from tilelink.planner.memo import remembered
from tilelink.planner.rules import peer_atomics
from tilelink.planner.structure import Structure, around
from tilelink.planner.tile_cost import COUNT_US, LATE_COUNT_US


class Least(NamedTuple):
    """Microseconds at least of an exchange.

    `transfers`: through the one queue of a rank's mover. `lead`: of these until the first chunk has come from every peer.
    `drag`: beside all else. `publish`: before it on the compute stream. `first`, `last`: shares of the loop that makes the
    source, before the first transfer, and before that of the first chunk to the last peer; `tail`: from then on. `gathers`: the
    part of a rank goes to all. `rows`: of a chunk that is scattered along dimension `dim`. `spins`: SMs that wait."""

    transfers: float = 0.0
    lead: float = 0.0
    drag: float = 0.0
    publish: float = 0.0
    first: float = 0.0
    last: float = 0.0
    tail: float = 0.0
    gathers: bool = False
    rows: int = 0
    dim: int = 0
    spins: int = 0


def least_us(structure: Structure, chosen: Chosen) -> float:
    """What a call with these choices takes at least, whether or not they go together."""
    exchanges = {name: one for (_, name), one in chosen.items() if isinstance(one, ExchangeChoice)}
    least = {name: _of_exchange(structure, name, one) for name, one in exchanges.items()}
    loops = _loops(structure, chosen, exchanges, sum(one.spins for one in least.values()))
    total = _library_collectives_us(structure) + sum(one.us for one in loops.values())
    total += sum(one.publish for one in least.values())
    total = max(total, _in_a_row(structure, least, loops))
    if exchanges:
        total += WITHIN_US
        if _meets(structure, tuple(exchanges.items())):
            in_step = any(one.kind is Kind.RETURN for one in structure.relations)
            total += MEET_US + (0.0 if in_step else meet_share(structure.topology) * total)
    total += sum(one.drag for one in least.values())
    return total - most_boost_us(total, sum(one.tensor for one in loops.values()))


def _in_a_row(structure: Structure, least: Mapping[str, Least], loops: Mapping[str, Busy]) -> float:
    """What loops take behind each other, each after what its tiles wait for, and transfers after what makes their source."""
    there, done, now = dict[str, float](), dict[str, float](), 0.0
    begun, behind = dict[str, float](), dict[str, float]()  # by loop, and what loops take that come later
    for name in _not_made(structure):
        there[name], done[name] = least[name].lead, least[name].transfers
    for index, group in enumerate(structure.groups):
        reads, makes, summed, maker = _around(structure, index)
        folded = group.name not in loops
        host = maker if folded else group.name
        if host not in loops:  # they do not go together
            continue
        busy = loops[host]
        if not folded:
            begun[host] = now
            for before in behind:
                behind[before] += busy.us
            behind[host] = 0.0
            now += busy.us
            if not busy.library:
                now = max([now, *(done.get(name, 0.0) for name in reads)])
        ready = there.get(summed, 0.0)
        if ready > 0.0:
            now = max(now, ready + busy.adds + behind[host])
        for name in makes:
            one = least[name]
            begin = max(begun[host] + (busy.first_own if folded else one.first * busy.tiles), ready)
            last = begun[host] + one.last * busy.tiles
            if 0 < one.rows < busy.tile[one.dim]:  # the model takes a chunk to be there in which no tile ends
                begin = last = 0.0
            there[name] = max(begin + one.lead, last)
            done[name] = max(begin + one.transfers, last + one.tail)
            if one.gathers:  # what comes behind the last chunk is as much as what comes until the first one is there
                last = now if one.lead == one.transfers else begun[host] + busy.last_own
                done[name] = max(done[name], last + one.lead)
    return max([now, *done.values()])


@remembered
def _not_made(structure: Structure) -> tuple[str, ...]:
    """Relations by exchanges whose source no group makes."""
    return tuple(relation.name for relation in structure.relations if structure.maker(relation.source) < 0)


@remembered
def _around(structure: Structure, index: int) -> tuple[tuple[str, ...], tuple[str, ...], str, str]:
    """Of a group the relations of rows by exchanges of which its tiles read all, those whose parts it makes, the one whose parts
    it adds, and the group that makes those."""
    group, names = structure.groups[index], {one.name for one in structure.relations if one.dim == 0}
    reads = {read.value: structure.graph.window(op, read) for op in group.ops for read in op.reads}
    whole = tuple(value for value, window in reads.items() if value in names and not window)
    makes = tuple(relation.name for relation in structure.relations if structure.maker(relation.source) == index)
    host = structure.folds_into(index)
    return whole, makes, _summed(structure, index), structure.groups[host].name if host >= 0 else ""


def _summed(structure: Structure, index: int) -> str:
    """The exchange whose parts the group adds, each of whose tiles needs those of all peers."""
    if index < 0 or not isinstance(structure.groups[index].anchor.operation, Sum):
        return ""
    return structure.groups[index].anchor.reads[0].value


def _loops(structure: Structure, chosen: Chosen, exchanges: dict[str, ExchangeChoice], spins: int) -> dict[str, Busy]:
    """All loops but those in the epilogue of others."""
    free, found = structure.topology.gpu.num_sms - spins, dict[str, Busy]()
    folded, beside = dict[str, str](), dict[str, int]()
    for index, group in enumerate(structure.groups):
        option = chosen["compute", group.name]
        if isinstance(option, ComputeChoice) and option.sum_in_epilogue and (maker := structure.folds_into(index)) >= 0:
            folded[structure.groups[maker].name] = group.name
    hosts = {inner: outer for outer, inner in folded.items()}
    for name, exchange in exchanges.items():
        if exchange.mover.sms:
            host = _beside(structure, name)
            host = hosts.get(host, host)
            beside[host] = beside.get(host, 0) + exchange.mover.sms
    for index, group in enumerate(structure.groups):
        option = chosen["compute", group.name]
        if not isinstance(option, ComputeChoice) or option.sum_in_epilogue:
            continue
        if isinstance(option.loop, LibraryCompute):
            found[group.name] = library_us(structure, group.name, _pieces(structure, group.name, exchanges))
        elif isinstance(option.loop, TritonLoop):
            inner = folded.get(group.name, "")
            near: Around = tuple((name, exchanges[name]) for name in _near(structure, index, inner))
            found[group.name] = loop_us(structure, group.name, option, free - beside.get(group.name, 0), inner, near)
    return found


@remembered
def _near(structure: Structure, index: int, folded: str) -> tuple[str, ...]:
    members = (index,) if not folded else (index, structure.maker(folded))
    return around(structure, members)


@remembered
def _beside(structure: Structure, name: str) -> str:
    """The group beside which programs communicate: the maker of what they send, or else its first reader."""
    relation = _relation(structure, name)
    if structure.by_tiles(relation.source) and relation.kind is not Kind.SHIFT:
        return structure.groups[structure.maker(relation.source)].name
    readers = structure.readers(name)
    return structure.groups[min(readers)].name if readers else ""


def _relation(structure: Structure, name: str) -> Relation:
    relation = structure.graph.relation(name)
    assert relation is not None
    return relation


@remembered
def _maker(structure: Structure, name: str) -> str:
    """The group that makes the source of relation `name`, empty for an input."""
    index = structure.maker(_relation(structure, name).source)
    return structure.groups[index].name if index >= 0 else ""


def _pieces(structure: Structure, name: str, exchanges: dict[str, ExchangeChoice]) -> int:
    """Of a matmul of the library: one for each chunk of the exchange that brings its left operand, or that sends its result."""
    read = group_of(structure, name).anchor.reads[0].value
    if read in exchanges:
        return structure.topology.num_ranks * exchanges[read].chunks
    for other, choice in exchanges.items():
        if _maker(structure, other) == name and structure.split_source(_relation(structure, other), choice):
            return structure.topology.num_ranks * choice.chunks
    return 1


@remembered
def _meets(structure: Structure, exchanges: Around) -> bool:
    """Whether it is known that calls end together."""
    made = [exchange_of(structure, name, choice) for name, choice in exchanges]
    found = tuple(one for one in made if isinstance(one, Exchange))
    if len(found) < len(made) or not peer_atomics(structure.topology):
        return False
    return any(one.met for one in found) or not waits_late(structure.topology, found)


@remembered
def _library_collectives_us(structure: Structure) -> float:
    """Collectives that the library carries out one after the other on the compute stream."""
    values, total = structure.graph.values, 0.0
    for relation in structure.graph.relations():
        if relation.library and not relation.by_packets:
            sizes = (math.prod(values[name].shape) for name in (relation.source, relation.name))
            num_bytes = max(sizes) * DTYPE_BYTES[values[relation.name].dtype]
            total += collective_us(structure.topology, FUNCTIONS[relation.kind], num_bytes)
    return total


def alone_us(structure: Structure, name: str, option: Option) -> float:
    """What one decision takes at least by itself: of an exchange its transfers."""
    if isinstance(option, ExchangeChoice):
        one = _of_exchange(structure, name, option)
        return one.transfers + one.drag + one.publish
    if isinstance(option.loop, TritonLoop) and not option.sum_in_epilogue:
        return loop_us(structure, name, option, structure.topology.gpu.num_sms, "", ()).us
    return 0.0


def taken_sms(structure: Structure, chosen: Chosen) -> tuple[int, ...]:
    """How many SMs the tiles of a loop may lack: those of programs that communicate, and of kernels that wait on side streams."""
    topology, movers = structure.topology, {0}
    for option in chosen.values():
        if isinstance(option, ExchangeChoice):
            waits = option.transfer is Transfer.PULL or not topology.gpu.stream_wait_value
            most = option.mover.sms
            if option.mover.issuer is Issuer.STREAMS and waits:
                most = topology.num_ranks - 1 if option.per_peer else 1
            movers = {one + more for one in movers for more in (0, most)}
    return tuple(sorted(movers))


@remembered
def may_halve(structure: Structure, name: str, choice: ComputeChoice, taken: tuple[int, ...]) -> bool:
    """Whether the last wave of a matmul may be halves, where tiles lack one of these numbers of SMs. True if it is not known."""
    loop = choice.loop
    if not isinstance(loop, TritonLoop) or not isinstance(group_of(structure, name).anchor.operation, Matmul):
        return True
    tiles, sms = num_tiles(structure, name, loop.tile.m, loop.tile.n), structure.topology.gpu.num_sms
    return any(
        0 < 2 * (tiles % programs) <= programs for programs in ((sms - n) * loop.tile.per_sm for n in taken if n < sms)
    )


def most_gained_us(structure: Structure, chosen: Chosen, name: str, then: ComputeChoice) -> float:
    """What a loop may take less with other values of the fields that come last: a last wave of halves, or counts that the next
    tile hides."""
    now = chosen["compute", name]
    if not isinstance(then.loop, TritonLoop) or not then.loop.late:
        return max(0.0, alone_us(structure, name, now) - alone_us(structure, name, then))
    rows = [
        -(-relation.part[0] // option.chunks)
        for relation in structure.relations
        if isinstance(option := chosen["exchange", relation.name], ExchangeChoice)
        and _maker(structure, relation.name) == name
    ]
    tile, programs = then.loop.tile, structure.topology.gpu.num_sms * then.loop.tile.per_sm
    counts = max((-(-max(tile.m, tile.n) // one) for one in rows), default=0)
    return -(-num_tiles(structure, name, tile.m, tile.n) // programs) * counts * (COUNT_US - LATE_COUNT_US)


@remembered
def _of_exchange(structure: Structure, name: str, choice: ExchangeChoice) -> Least:
    exchange, topology, relation = exchange_of(structure, name, choice), structure.topology, _relation(structure, name)
    if isinstance(exchange, str) or exchange.slots:
        return Least()
    graph, scatters = structure.graph, relation.kind is Kind.SCATTER
    size, peers = DTYPE_BYTES[graph.values[name].dtype], topology.num_ranks - 1
    by_tiles, copied = structure.by_tiles(relation.source), exchange.mover.issuer is Issuer.STREAMS
    publish = 0.0
    if exchange.transfer is Transfer.PULL and relation.source in graph.inputs:  # published from a copy
        num_bytes = math.prod(graph.values[relation.source].shape) * DTYPE_BYTES[graph.values[relation.source].dtype]
        publish = (
            topology.gpu.kernel_launch_us + 2 * num_bytes / topology.gpu.memory_gb_per_s / 1e3 + SIGNAL_COPY_US * peers
        )
    if not exchange.target:  # tiles load every part once at least: no mover
        moved = (peers if scatters else 1) * math.prod(relation.part) * size
        return Least(moved / (topology.link_gb_per_s(0, 1) * SUM_LOAD_SHARE) / 1e3, publish=publish)
    made = by_tiles or structure.split_source(relation, choice)
    waits = exchange.transfer is Transfer.PULL or (made and not topology.gpu.stream_wait_value)
    hidden = COPY_START_US if choice.per_peer else 0.0
    transfers = peers * exchange.chunks * max(0.0, chunk_us(topology, exchange, size, made=made) - hidden)
    chunks, ranks = exchange.chunks, topology.num_ranks
    first = ((peers - 1) * chunks + 1 if choice.nest is Nest.RANK_MAJOR else peers) / peers / chunks
    scattered = scatters and by_tiles
    return Least(
        transfers=transfers,
        lead=first * transfers,
        drag=DRAG_US * peers * chunks if copied else 0.0,
        publish=publish,
        first=1.0 / ranks / chunks if scattered and exchange.source else 0.0,
        last=first * peers / ranks if scattered and choice.nest is Nest.RANK_MAJOR else 0.0,
        tail=transfers / peers if scattered and choice.nest is Nest.RANK_MAJOR else 0.0,
        gathers=relation.kind is Kind.GATHER,
        rows=exchange.chunk_rows if scattered else 0,
        dim=min(relation.dim, 1),
        spins=(peers if choice.per_peer else 1) if copied and waits else 0,
    )
