"""What exchanges take at least."""

from __future__ import annotations

import math
from typing import NamedTuple

from tilelink.ir.choices import ExchangeChoice
from tilelink.ir.graph import Relation
from tilelink.ir.movers import COPY_START_US, Issuer, Transfer
from tilelink.ir.nodes import Kind
from tilelink.ir.order import Cut, Nest
from tilelink.ir.spec import DTYPE_BYTES
from tilelink.planner.cost import STREAM_US
from tilelink.planner.layout import copies_own, exchange_of
from tilelink.planner.links import SIGNAL_COPY_US, SUM_LOAD_SHARE, chunk_us, drag_us
from tilelink.planner.memo import remembered
from tilelink.planner.rails import held_sms, hops_us
from tilelink.planner.structure import Structure


class Least(NamedTuple):
    """Microseconds at least of an exchange."""

    transfers: float = 0.0  # through the one queue of a rank's mover
    lead: float = 0.0  # of these until the first chunk has come from every peer
    start: float = 0.0  # before the first one, of what no tiles make
    drag: float = 0.0  # beside all else
    publish: float = 0.0  # before it on the compute stream
    copy: float = 0.0  # of the own part, there
    # shares of the loop that makes the source: before the first transfer, before that of the first chunk to the last peer, and
    # until all that peers get is made; the two behind these end `tail` and `final` us later at least
    first: float = 0.0
    last: float = 0.0
    made: float = 0.0
    tail: float = 0.0
    final: float = 0.0
    counted: bool = False  # made in the call, so that ranks may be late with it
    beside: bool = False  # moved by programs beside tiles, or before them
    gathers: bool = False  # the part of a rank goes to all
    columns: bool = False  # whose chunks tiles need one after the other
    returns: bool = False  # rows go when all of them are made, and peers are told at the end
    whole: bool = False  # made before the first transfer, by the library
    rows: int = 0  # of a chunk that is scattered along dimension `dim`
    dim: int = 0
    spins: int = 0  # SMs that wait


def relation_of(structure: Structure, name: str) -> Relation:
    relation = structure.graph.relation(name)
    assert relation is not None
    return relation


@remembered
def beside(structure: Structure, name: str) -> str:
    """The group beside which programs communicate: the maker of what they send, or else its first reader."""
    relation = relation_of(structure, name)
    if structure.by_tiles(relation.source) and relation.kind is not Kind.SHIFT:
        return structure.groups[structure.maker(relation.source)].name
    readers = structure.readers(name)
    return structure.groups[min(readers)].name if readers else ""


@remembered
def least_of_exchange(structure: Structure, name: str, choice: ExchangeChoice) -> Least:
    exchange, topology, relation = (
        exchange_of(structure, name, choice),
        structure.topology,
        relation_of(structure, name),
    )
    if isinstance(exchange, str) or exchange.slots:
        return Least()
    graph, scatters = structure.graph, relation.kind is Kind.SCATTER
    size, peers = DTYPE_BYTES[graph.values[name].dtype], topology.num_ranks - 1
    by_tiles, copied = structure.by_tiles(relation.source), exchange.mover.issuer is Issuer.STREAMS
    num_bytes = math.prod(graph.values[relation.source].shape) * DTYPE_BYTES[graph.values[relation.source].dtype]
    copied_us = topology.gpu.kernel_launch_us + 2 * num_bytes / topology.gpu.memory_gb_per_s / 1e3
    copy = copied_us if copies_own(exchange) and structure.readers(name) else 0.0
    publish = 0.0
    if exchange.transfer is Transfer.PULL and relation.source in graph.inputs:  # published from a copy
        publish = copied_us + SIGNAL_COPY_US * peers
    if not exchange.target:  # tiles load every part once at least: no mover
        moved = (peers if scatters else 1) * math.prod(relation.part) * size
        loads = moved / (topology.link_gb_per_s(0, 1) * SUM_LOAD_SHARE) / 1e3
        returns = relation.kind is Kind.RETURN
        loads *= peers / topology.num_ranks if returns else 1.0
        counted = scatters and exchange.counted
        made = peers / topology.num_ranks if counted else 0.0
        return Least(loads, publish=publish, made=made, counted=counted, returns=returns)
    if exchange.mover.along_rails:
        all_us, first_us = hops_us(topology, exchange, size)
        drag, spins = drag_us(topology, exchange, size), held_sms(topology, exchange.mover)
        if scatters:
            counted = exchange.counted
            return Least(all_us, drag=drag, counted=counted, beside=True, spins=spins, dim=min(relation.dim, 1))
        return Least(
            all_us, first_us, STREAM_US if copied else 0.0, drag, copy=copy, beside=True, gathers=True, spins=spins
        )
    made = by_tiles or structure.split_source(relation, choice)
    waits = exchange.transfer is Transfer.PULL or (made and not topology.gpu.stream_wait_value)
    hidden = COPY_START_US if choice.per_peer else 0.0
    peers = peers if exchange.reach is None else exchange.reach  # of the rank that sends to most
    transfers = peers * exchange.chunks * max(0.0, chunk_us(topology, exchange, size, made=made) - hidden)
    chunks, ranks = exchange.chunks, topology.num_ranks
    first = ((peers - 1) * chunks + 1 if choice.nest is Nest.RANK_MAJOR else peers) / peers / chunks
    scattered = scatters and by_tiles
    return Least(
        transfers=transfers,
        lead=first * transfers,
        drag=drag_us(topology, exchange, size),
        publish=publish,
        copy=copy,
        first=1.0 / ranks / chunks if scattered and exchange.source else 0.0,
        last=first * peers / ranks if scattered and choice.nest is Nest.RANK_MAJOR else 0.0,
        made=peers / ranks if scattered else 0.0,
        final=transfers / peers / chunks if scattered else 0.0,
        counted=exchange.counted,
        tail=transfers / peers if scattered and choice.nest is Nest.RANK_MAJOR else 0.0,
        beside=exchange.mover.beside_tiles(scattered=scatters) or exchange.sent is not None,
        start=STREAM_US if copied and not made else 0.0,
        gathers=relation.kind is Kind.GATHER,
        columns=exchange.cut is Cut.COLUMNS,
        returns=relation.kind is Kind.RETURN,
        whole=structure.is_made_by_library(relation.source) and not made,
        rows=exchange.chunk_rows if scattered else 0,
        dim=min(relation.dim, 1),
        spins=(peers if choice.per_peer else 1) if copied and waits else 0,
    )
