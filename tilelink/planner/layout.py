"""Where values live: buffers and exchanges of a schedule, from graph and choices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from tilelink.ir.choices import APART, FOLDED, Choices, ExchangeChoice, TritonLoop
from tilelink.ir.graph import Relation, TileGraph
from tilelink.ir.movers import Issuer, Transfer
from tilelink.ir.node_sums import from_nodes, landings
from tilelink.ir.nodes import Buffer, Exchange, Kind, Memory, TileShape
from tilelink.ir.ops.attention import Attend
from tilelink.ir.order import ChunkOrder, Cut, Nest, RankOrder
from tilelink.ir.routed import Placed, Sent
from tilelink.planner.group import Group
from tilelink.planner.in_library import attends_to_parts
from tilelink.planner.memo import Memo, remembered
from tilelink.planner.rails import Groups, groups_of, held_sms, rail_ranks
from tilelink.planner.rules import peer_atomics, why_illegal
from tilelink.planner.structure import Structure, around
from topologies.topology import Topology

_ITEM_ELEMENTS = 32768  # of the largest item: 128 registers a thread of 8 warps


class Illegal(Exception):
    """These choices do not go together; the text says why. Caught by the planner, never by the user."""


@dataclass(frozen=True)
class Problem:
    """What build functions need: a structure on its machine, and the choices made in it."""

    structure: Structure
    choices: Choices

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.structure, self.choices))

    @property
    def memo(self) -> Memo:
        return self.structure.memo

    @property
    def graph(self) -> TileGraph:
        return self.structure.graph

    @property
    def groups(self) -> tuple[Group, ...]:
        return self.structure.groups

    @property
    def topology(self) -> Topology:
        return self.structure.topology

    @property
    def num_ranks(self) -> int:
        return self.structure.topology.num_ranks

    def choice(self, relation: Relation) -> ExchangeChoice:
        return self.choices.exchange(relation.name)

    def split_source(self, relation: Relation) -> bool:
        """Whether a library matmul makes the source chunk by chunk for this relation."""
        return self.structure.split_source(relation, self.choice(relation))

    def host(self, index: int) -> int:
        """Group whose kernel runs group `index`: itself, or the maker of the parts that it adds in its epilogue."""
        return self.hosts[index]

    @cached_property
    def hosts(self) -> tuple[int, ...]:
        """`host` of each group."""
        return tuple(
            self.structure.folds_into(index) if choice.sum_in_epilogue else index
            for index, choice in enumerate(self.choices.compute(group.name) for group in self.groups)
        )

    def members(self, index: int) -> tuple[int, ...]:
        """Groups that the kernel of group `index` runs."""
        return tuple(i for i, host in enumerate(self.hosts) if host == index)

    def with_loop(self, group: str, loop: TritonLoop) -> Problem:
        """The problem with another loop of that group."""
        computes = tuple(
            (name, replace(choice, loop=loop) if name == group else choice) for name, choice in self.choices.computes
        )
        return Problem(self.structure, replace(self.choices, computes=computes))

    def seen_by(self, index: int) -> Problem:
        """The problem with what decides the tiles of group `index` and no other choice: how it and what is folded into it are
        computed, and exchange what they read and make; of all other groups in whose kernel they run. So it is the whole key
        of what follows from these, and code that asks for a choice that is not in the key finds none."""
        members = self.members(index)
        names = around(self.structure, members)
        computes = tuple(
            (name, choice if at in members else (FOLDED if choice.sum_in_epilogue else APART))
            for at, (name, choice) in enumerate(self.choices.computes)
        )
        exchanges = tuple((name, self.choices.exchange(name)) for name in names)
        return Problem(self.structure, Choices(self.choices.collectives, exchanges, computes))


def rank_order(topology: Topology, first: int, direction: int = 1, groups: Groups | None = None) -> RankOrder:
    """Through groups of ranks, by default nodes."""
    node, half = groups or (topology.ranks_per_node, 0)
    return RankOrder(topology.num_ranks, node, first, direction, half)


def source_buffer(structure: Structure, relation: Relation, choice: ExchangeChoice | None) -> str:
    """Buffer that the exchange reads; empty if tiles store straight to their peers. `choice`: None of what is no exchange."""
    source = relation.source
    if relation.in_tiles:
        return ""
    if relation.kind is Kind.SHIFT:
        return source
    if relation.kind is Kind.REDUCE and structure.maker(source) >= 0:
        return relation.name  # summed in place
    if structure.maker(source) < 0:
        shared = choice is not None and (choice.transfer is Transfer.PULL or _put_from_source(relation, choice))
        return _source_name(structure, relation, "shared") if shared else source
    if choice is not None and choice.mover.issuer is Issuer.TILES and choice.transfer is Transfer.PUSH:
        return ""
    if structure.in_place(relation):
        return relation.name
    return _source_name(structure, relation, "staged")


def _put_from_source(relation: Relation, choice: ExchangeChoice) -> bool:
    """Whether the source is put, and nothing of other ranks lies beside it."""
    by_itself = choice.mover.puts is Issuer.STREAMS or (choice.mover.puts is not None and choice.mover.listed)
    return relation.kind is Kind.GATHER and by_itself


def source_of(problem: Problem, relation: Relation) -> str:
    """`source_buffer` with the choices of the problem."""
    return source_buffer(problem.structure, relation, None if relation.library else problem.choice(relation))


def _source_name(structure: Structure, relation: Relation, what: str) -> str:
    """`y_staged`; with the relation's name where several relations send the same value, each in its own layout."""
    same = [other for other in structure.graph.relations() if other.source == relation.source]
    return f"{relation.source}_{what}" if len(same) == 1 else f"{relation.name}_{what}"


def make_exchange(problem: Problem, relation: Relation) -> Exchange:
    """The exchange of a relation that tilelink itself carries out. Raises Illegal."""
    found = exchange_of(problem.structure, relation.name, problem.choice(relation))
    if isinstance(found, str):
        raise Illegal(found)
    return found


@remembered
def exchange_of(structure: Structure, name: str, choice: ExchangeChoice) -> Exchange | str:
    """The exchange, or why there is none."""
    relation = structure.graph.relation(name)
    assert relation is not None
    reason = why_illegal(structure, relation, choice)
    if reason:
        return reason
    fused, push = choice.mover.issuer is Issuer.TILES, choice.transfer is Transfer.PUSH
    in_place, bounded = structure.in_place(relation), relation.kind is Kind.SHIFT
    source = source_buffer(structure, relation, choice)
    made = structure.by_tiles(relation.source) or structure.split_source(relation, choice)
    # a network card reads symmetric memory alone: what it puts of an input lies there first, among the parts of others
    gathered = relation.kind is Kind.GATHER and structure.maker(relation.source) < 0
    put = gathered and choice.mover.puts is Issuer.PROGRAMS and not choice.mover.listed
    # Readers of a gather go through ranks upwards, and so do makers of what is scattered. What an owner pushes arrives in
    # that order, and what a reader pulls has been made by its owner first, if it goes the other way. Who reads parts of the ranks
    # before it alone begins with the last of them.
    reach = structure.reach(relation)
    reverse = ((relation.kind is Kind.GATHER) == push) != (reach is not None) and not bounded
    return Exchange(
        name=relation.name,
        kind=relation.kind,
        source=source,
        target="" if fused and not push else relation.name,
        rows=relation.part[0],
        cols=relation.part[1] if len(relation.part) > 1 else 1,
        chunks=choice.chunks,
        mover=choice.mover,
        transfer=choice.transfer,
        order=_chunk_order(structure, -1 if reverse else 1, choice.nest, groups_of(structure.topology, choice.mover)),
        own_copied=not bounded and ((fused and push) or put or structure.needs_own_copy(relation) or in_place),
        met=in_place,
        by=relation.by,
        slots=choice.slots if bounded else 0,
        counted=made and not bounded and not (in_place and not source),
        sent=_sent_rows(structure, relation, choice),
        cut=choice.cut or Cut.ROWS,
        reach=reach,
    )


def _sent_rows(structure: Structure, relation: Relation, choice: ExchangeChoice) -> Sent | Placed | None:
    """Rows that alone are moved, as tables say."""
    if choice.mover.tile_rows:
        return structure.placed(relation, choice.mover.tile_rows)
    found = structure.sent(relation) if choice.mover.listed else None
    if found is None:
        return None
    blocks, programs = found.tokens // found.rows, max(1, choice.mover.sms)
    rails, each = choice.mover.along_rails, -(-blocks // programs)
    strips = -(-blocks // each)
    return replace(found, pulled=choice.transfer is Transfer.PULL, by_node=rails, strips=strips if rails else 1)


def copies_own(exchange: Exchange) -> bool:
    """Whether a launch copies the own part to those that have come from peers: tiles that push store it there themselves, and
    programs that move listed rows move own ones as well."""
    return exchange.own_copied and exchange.mover.issuer is not Issuer.TILES and exchange.sent is None


@remembered
def _chunk_order(structure: Structure, direction: int, nest: Nest, groups: Groups) -> ChunkOrder:
    return ChunkOrder(rank_order(structure.topology, 1, direction, groups), nest)


def item_tile(problem: Problem, relation: Relation) -> TileShape:
    """The tile that is one item: its rows, and a power of two of columns. Raises Illegal."""
    exchange = make_exchange(problem, relation)
    cols = 1 << (exchange.cols - 1).bit_length()
    elements = exchange.chunk_rows * cols
    if elements > _ITEM_ELEMENTS:
        fact = f"an item of {exchange.chunk_rows} x {exchange.cols} does not fit the registers of a program"
        raise Illegal(f"{fact}, {_ITEM_ELEMENTS} elements do")
    warps = min(8, max(1, elements // 1024))
    return TileShape(exchange.chunk_rows, cols, 0, 1 << (warps.bit_length() - 1), 1)


def meets_at_end(problem: Problem, exchanges: tuple[Exchange, ...]) -> bool:
    """Whether calls end together, so that nothing at the beginning of one waits for the peers: for what is put together in
    place, where such a wait would hold up the stream for all that follows, and where copy engines and programs would each
    have to wait. Elsewhere waiting late is better: behind the first tiles, which hides that peers are late."""
    if not exchanges or not peer_atomics(problem.topology, inside=True):
        return False
    pulled = {x.source for x in exchanges if x.transfer is Transfer.PULL}
    made = (r for r in problem.graph.relations() if problem.structure.is_made_by_library(r.source))
    stored = {source_of(problem, relation) for relation in made}
    by_library = by_programs(exchanges) and bool(pulled & stored)
    return any(x.met for x in exchanges) or by_library or not waits_late(problem.topology, exchanges)


def waits_late(topology: Topology, exchanges: tuple[Exchange, ...]) -> bool:
    """Whether whoever touches memory of peers can wait by itself until the peers have finished the last call: only copy
    engines do, whose streams wait while the first tiles are computed; or only programs do."""
    pushed = all(x.mover.issuer is Issuer.STREAMS and x.transfer is Transfer.PUSH for x in exchanges)
    return topology.gpu.stream_wait_value if pushed else by_programs(exchanges)


def copy_streams(problem: Problem, relation: Relation) -> int:
    """Streams of the copy program of a relation; none where a node has one rank, to which nothing is copied."""
    mover = problem.choice(relation).mover
    if mover.along_rails:
        return 1 if rail_ranks(problem.topology, mover) > 1 else 0
    return problem.num_ranks - 1 if problem.choice(relation).per_peer else 1


def copies_between(name: str, exchange: Exchange) -> Iterator[tuple[str, int]]:
    """(stream, groups of ranks) of each program that copies inside of nodes, from the outer level inwards."""
    if half := exchange.order.ranks.ranks_per_half:
        yield f"copy_{name}_halves", half
    yield f"copy_{name}", 1 if exchange.mover.along_rails else 0


def spinning_sms(problem: Problem, exchange: Exchange) -> int:
    """SMs that calls of a library hold, and one-program kernels while they wait on the exchange's stream: until a peer has set a
    word to the number of the call, which the host does not know; or for any word, if streams wait for none."""
    relation = problem.graph.relation(exchange.name)
    assert relation is not None
    if exchange.mover.issuer is not Issuer.STREAMS:
        return 0
    if exchange.mover.along_rails:
        return held_sms(problem.topology, exchange.mover)
    streams = copy_streams(problem, relation)
    if exchange.transfer is Transfer.PULL:
        return streams
    counted = problem.structure.by_tiles(relation.source) or problem.split_source(relation)
    return streams if counted and not problem.topology.gpu.stream_wait_value else 0


def by_programs(exchanges: tuple[Exchange, ...]) -> bool:
    """Whether only programs of kernels touch memory of peers, on the one stream of the operator."""
    return not any(x.mover.issuer is Issuer.STREAMS for x in exchanges)


def logs_of_parts(out: str) -> str:
    """The buffer of the logarithms of the sums of weights in what `out` has been merged of."""
    return f"{out}_logs"


def make_buffers(problem: Problem, exchanges: Mapping[str, Exchange]) -> tuple[Buffer, ...]:
    """Every tensor: inputs, outputs, values that other groups read, sources and targets of exchanges."""
    graph, buffers = problem.graph, dict[str, Buffer]()

    def add(name: str, memory: Memory) -> None:
        buffers.setdefault(name, Buffer(name, memory, graph.values[name].shape, graph.values[name].dtype))

    for name in graph.inputs:
        add(name, Memory.INPUT)
    for name in graph.outputs:
        if name not in exchanges:  # what an exchange puts together in place lies in symmetric memory
            add(name, Memory.OUTPUT)
    for relation in graph.relations():
        if relation.library or relation.name in exchanges:
            for buffer in _sent(problem, relation, exchanges.get(relation.name)):
                buffers.setdefault(buffer.name, buffer)
    for merging in graph.merges:
        for name in (*merging.made, *merging.reads):
            add(name, Memory.LOCAL)
    for op in graph.ops():
        if isinstance(op.operation, Attend) and op.operation.logs:
            add(op.operation.logs, Memory.LOCAL)
        elif op.name in problem.structure.library and attends_to_parts(graph, op):
            assert isinstance(op.operation, Attend), "it attends"
            shape = graph.values[op.reads[0].value].shape[0], op.operation.heads
            buffers[logs_of_parts(op.name)] = Buffer(logs_of_parts(op.name), Memory.LOCAL, shape, "fp32")
        index = problem.structure.maker(op.name)
        if any(reader != index for reader in problem.structure.readers(op.name)):
            add(op.name, Memory.LOCAL)
    return tuple(buffers.values())


def _sent(problem: Problem, relation: Relation, exchange: Exchange | None) -> Iterator[Buffer]:
    """Source and target of a relation, which a call carries out if it is no exchange."""
    source, target = problem.graph.values[relation.source], problem.graph.values[relation.name]
    if exchange is not None and exchange.slots:
        # memory of a source that is no input and no output
        yield Buffer(relation.source, Memory.LOCAL, source.shape, source.dtype)
        item = (exchange.slots, exchange.chunk_rows, *relation.part[1:])
        yield Buffer(exchange.target, Memory.SYMMETRIC, item, target.dtype)
        return
    parts = (problem.num_ranks, *relation.part)
    name = source_of(problem, relation)
    if name and (exchange is None or exchange.source != exchange.target):
        seen = exchange is not None and (exchange.transfer is Transfer.PULL or exchange.mover.puts)
        symmetric = Memory.SYMMETRIC if seen else Memory.LOCAL
        shape = parts if problem.structure.source_in_parts(relation) else source.shape
        yield Buffer(name, symmetric, shape, source.dtype)
    if exchange is None:
        shape = target.shape if relation.plain else parts
        yield Buffer(relation.name, Memory.LOCAL, shape, target.dtype)
        return
    if exchange.target:
        yield target_buffer(problem, relation, exchange)
    for landing, room in landings(exchange):
        received = landing == from_nodes(exchange) and exchange.mover.library_sms
        memory = Memory.LOCAL if received else Memory.SYMMETRIC
        yield Buffer(landing, memory, (room, *relation.part), target.dtype)


def target_buffer(problem: Problem, relation: Relation, exchange: Exchange) -> Buffer:
    """The buffer that the exchange of `relation` puts its parts into."""
    memory = Memory.SYMMETRIC if exchange.transfer is Transfer.PUSH else Memory.LOCAL
    memory = Memory.POOL if problem.structure.pooled(relation) else memory
    parts = (problem.num_ranks, *relation.part)
    if problem.structure.by_routing(relation):  # which knows rows of the whole, and no parts
        parts = problem.graph.values[relation.name].shape
        if isinstance(exchange.sent, Placed):
            parts = exchange.sent.places, *parts[1:]
    return Buffer(exchange.target, memory, parts, problem.graph.values[relation.name].dtype)
