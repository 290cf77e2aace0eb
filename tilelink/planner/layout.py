"""Where values live and what signals exist: buffers, signals and exchanges of a schedule, from graph and choices."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from tilelink.ir.graph import Relation, TileGraph
from tilelink.ir.nodes import (
    Algorithm,
    Buffer,
    CommSms,
    ComputeRole,
    CopyEngine,
    Exchange,
    Fused,
    Kind,
    Memory,
    Scope,
    Signal,
    TileShape,
    Transfer,
)
from tilelink.ir.order import ChunkOrder, Nest, RankOrder
from tilelink.ir.user_op import UserOp
from tilelink.planner.choices import Choices, ExchangeChoice, LibraryCompute
from tilelink.planner.group import Group
from tilelink.proof.links import why_no_exchange
from topologies.topology import Fabric, Topology

_ITEM_ELEMENTS = 32768  # of the largest item: 128 registers a thread of 8 warps


class Illegal(Exception):
    """These choices do not go together; the text says why. Caught by the planner, never by the user."""


Roles = dict[object, ComputeRole | str]  # or why there is none, by all that decides it; filled by compute_role


@dataclass(frozen=True)
class Problem:
    """What build functions need: the graph, its groups, the machine, and the choices made."""

    graph: TileGraph
    groups: tuple[Group, ...]
    topology: Topology
    choices: Choices
    exchanges: dict[str, Exchange] = field(default_factory=dict, compare=False, repr=False)  # filled by make_exchange
    roles: Roles = field(default_factory=dict, compare=False, repr=False)  # of equal graphs, groups and machines

    @property
    def num_ranks(self) -> int:
        return self.topology.num_ranks

    def maker(self, value: str) -> int:
        """Index of the group that makes `value`, -1 for an input or a relation."""
        return self._makers.get(value, -1)

    @cached_property
    def _makers(self) -> dict[str, int]:
        return {value: i for i, group in enumerate(self.groups) for value in group.made}

    def readers(self, value: str) -> tuple[int, ...]:
        """Indices of the groups that read `value`."""
        return tuple(i for i, group in enumerate(self.groups) if value in group.reads())

    def is_library(self, index: int) -> bool:
        return isinstance(self.choices.compute(self.groups[index].name).loop, LibraryCompute)

    def is_made_by_library(self, value: str) -> bool:
        return self.maker(value) >= 0 and self.is_library(self.maker(value))

    def by_tiles(self, value: str) -> bool:
        """Whether tiles of a Triton loop make `value` during the call."""
        return self.maker(value) >= 0 and not self.is_library(self.maker(value))

    def is_kept(self, value: str) -> bool:
        """Whether the plain tensor is needed after its maker: by the user, by other groups, or as source of a SHIFT."""
        shifted = any(r.source == value and r.kind is Kind.SHIFT for r in self.graph.relations())
        others = any(reader != self.maker(value) for reader in self.readers(value))
        return value in self.graph.outputs or others or shifted

    def in_place(self, relation: Relation) -> bool:
        """Whether peers put their parts straight into an output, which the caller reads after the call."""
        return relation.name in self.graph.outputs and relation.kind is Kind.GATHER and not relation.library

    def pooled(self, relation: Relation) -> bool:
        """Whether that output lies in a pool, in another place from call to call."""
        return self.in_place(relation) and dict(self.choices.algorithms).get(relation.name) is Algorithm.POOLED

    def queue_of(self, group: Group) -> Relation | None:
        """The bounded relation whose items the tiles of `group` are."""
        relation = self.graph.relation(group.anchor.reads[0].value)
        return relation if relation is not None and relation.kind is Kind.SHIFT else None

    def choice(self, relation: Relation) -> ExchangeChoice:
        return self.choices.exchange(relation.name)

    def is_plain(self, relation: Relation) -> bool:
        """Whether the target is one ordinary tensor that is complete when its readers are launched."""
        return relation.library and (relation.summed or relation.dim == 0)

    @cached_property
    def _hosts(self) -> tuple[int, ...]:
        return tuple(self._host(index) for index in range(len(self.groups)))

    def host(self, index: int) -> int:
        """Group whose kernel runs group `index`: itself, or the maker of the parts that it adds in its epilogue."""
        return self._hosts[index]

    def _host(self, index: int) -> int:
        group = self.groups[index]
        if not self.choices.compute(group.name).sum_in_epilogue:
            return index
        relation = self.graph.relation(group.anchor.reads[0].value)
        return self.maker(relation.source) if relation is not None else index

    def split_source(self, relation: Relation) -> bool:
        """Whether a library matmul makes the source chunk by chunk for this relation."""
        choice = self.choice(relation)
        return (
            self.is_made_by_library(relation.source)
            and isinstance(choice.mover, CopyEngine)
            and choice.transfer is Transfer.PUSH
            and relation.kind is Kind.SCATTER
            and relation.dim == 0
        )


def rank_order(topology: Topology, first: int, direction: int = 1) -> RankOrder:
    return RankOrder(topology.num_ranks, topology.ranks_per_node, first, direction)


def needs_own_copy(problem: Problem, relation: Relation) -> bool:
    """A user's body that reduces over the gathered axis wants one plain tensor."""
    for op in problem.graph.consumers(relation.name):
        if isinstance(op.operation, UserOp) and not relation.stacked:
            for read in op.reads:
                if read.value == relation.name and op.axis(read.axis_of(relation.dim)).reduction:
                    return True
    return False


def source_buffer(problem: Problem, relation: Relation) -> str:
    """Buffer that the exchange reads; empty if tiles store straight to their peers."""
    source = relation.source
    if relation.in_tiles:
        return ""
    if relation.kind is Kind.SHIFT:
        return source
    if relation.kind is Kind.REDUCE and problem.maker(source) >= 0:
        return relation.name  # summed in place
    if problem.maker(source) < 0:
        pulled = not relation.library and problem.choice(relation).transfer is Transfer.PULL
        return _source_name(problem, relation, "shared") if pulled else source
    if not relation.library:
        choice = problem.choice(relation)
        if isinstance(choice.mover, Fused) and choice.transfer is Transfer.PUSH:
            return ""
    if problem.in_place(relation):
        return relation.name
    return _source_name(problem, relation, "staged")


def _source_name(problem: Problem, relation: Relation, what: str) -> str:
    """`y_staged`; with the relation's name where several relations send the same value, each in its own layout."""
    same = [other for other in problem.graph.relations() if other.source == relation.source]
    return f"{relation.source}_{what}" if len(same) == 1 else f"{relation.name}_{what}"


def make_exchange(problem: Problem, relation: Relation) -> Exchange:
    """The exchange of a relation that tilelink itself carries out. Raises Illegal."""
    if relation.name not in problem.exchanges:
        problem.exchanges[relation.name] = _new_exchange(problem, relation)
    return problem.exchanges[relation.name]


def _new_exchange(problem: Problem, relation: Relation) -> Exchange:
    choice = problem.choice(relation)
    rows, cols = relation.part[0], relation.part[1] if len(relation.part) > 1 else 1
    if not 1 <= choice.chunks <= rows:
        raise Illegal(f"{rows} rows cannot be cut into {choice.chunks} chunks")
    if (choice.chunks - 1) * -(-rows // choice.chunks) >= rows:
        raise Illegal(
            f"{rows} rows in chunks of {-(-rows // choice.chunks)} rows are fewer than {choice.chunks} chunks"
        )
    if not peer_atomics(problem.topology):
        reason = why_no_exchange(choice.mover, choice.transfer, by_tiles=problem.by_tiles(relation.source))
        if reason:
            raise Illegal(f"{relation.name}: {reason}; the links of {problem.topology.name} carry none")
    if relation.kind is Kind.SHIFT:
        return _bounded_exchange(problem, relation, choice)
    fused = isinstance(choice.mover, Fused)
    push = choice.transfer is Transfer.PUSH
    in_place = problem.in_place(relation)
    if in_place and (not push or isinstance(choice.mover, CommSms)):
        raise Illegal(f"{relation.name} is put together in place by pushes of tiles or of copy engines")
    if problem.pooled(relation) and not fused:
        raise Illegal(f"the host tells copy engines addresses, and peers tell only tiles where {relation.name} lies")
    if in_place and fused and choice.chunks > 1:
        raise Illegal(f"tiles that store {relation.name} in place signal nothing, so that there are no chunks")
    if fused and push and not problem.by_tiles(relation.source):
        raise Illegal(f"{relation.source} is not made by tiles that could store to peers")
    if (
        fused
        and not push
        and (needs_own_copy(problem, relation) or any(problem.is_library(i) for i in problem.readers(relation.name)))
    ):
        raise Illegal(f"{relation.name} is read whole, so its tiles cannot be loaded from peers one by one")
    # Readers of a gather go through ranks upwards, and so do makers of what is scattered. What an owner pushes arrives in
    # that order, and what a reader pulls has been made by its owner first, if it goes the other way.
    reverse = (relation.kind is Kind.GATHER) == push
    order = rank_order(problem.topology, 1, -1 if reverse else 1)
    return Exchange(
        name=relation.name,
        kind=relation.kind,
        source=source_buffer(problem, relation),
        target="" if fused and not push else relation.name,
        rows=rows,
        cols=cols,
        chunks=choice.chunks,
        mover=choice.mover,
        transfer=choice.transfer,
        order=ChunkOrder(order, choice.nest),
        own_copied=(fused and push) or needs_own_copy(problem, relation) or in_place,
        met=in_place,
    )


def _bounded_exchange(problem: Problem, relation: Relation, choice: ExchangeChoice) -> Exchange:
    rows, cols = relation.part[0], relation.part[1] if len(relation.part) > 1 else 1
    item_rows, topology = -(-rows // choice.chunks), problem.topology
    if item_rows & (item_rows - 1):
        fact = f"{rows} rows in {choice.chunks} items are {item_rows} rows each, and a tile has a power of two"
        raise Illegal(f"{fact}; legal numbers of items: {', '.join(map(str, item_counts(rows)))}")
    if topology.ranks_per_node != topology.num_ranks:
        raise Illegal(f"{topology.name} has several nodes, between which no slots lie")
    return Exchange(
        name=relation.name,
        kind=relation.kind,
        source=relation.source,
        target=relation.name,
        rows=rows,
        cols=cols,
        chunks=choice.chunks,
        mover=choice.mover,
        transfer=choice.transfer,
        order=ChunkOrder(rank_order(topology, 1), choice.nest),
        own_copied=False,
        by=relation.by,
        slots=choice.slots,
    )


def item_counts(rows: int) -> list[int]:
    """Into how many items `rows` rows can be cut: the rows of an item are a power of two, as those of a tile are."""
    sizes = [1 << power for power in range(rows.bit_length() + 1)]
    return [-(-rows // size) for size in sizes if -(-rows // -(-rows // size)) == size]


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
    if not exchanges or not peer_atomics(problem.topology):
        return False
    pulled = {x.source for x in exchanges if x.transfer is Transfer.PULL}
    stored = {source_buffer(problem, r) for r in problem.graph.relations() if problem.is_made_by_library(r.source)}
    by_library = by_programs(exchanges) and bool(pulled & stored)
    return any(x.met for x in exchanges) or by_library or not waits_late(problem.topology, exchanges)


def waits_late(topology: Topology, exchanges: tuple[Exchange, ...]) -> bool:
    """Whether whoever touches memory of peers can wait by itself until the peers have finished the last call: only copy
    engines do, whose streams wait while the first tiles are computed; or only programs do."""
    pushed = all(isinstance(x.mover, CopyEngine) and x.transfer is Transfer.PUSH for x in exchanges)
    return topology.gpu.stream_wait_value if pushed else by_programs(exchanges)


def by_programs(exchanges: tuple[Exchange, ...]) -> bool:
    """Whether only programs of kernels touch memory of peers, on the one stream of the operator."""
    return not any(isinstance(x.mover, CopyEngine) for x in exchanges)


def peer_atomics(topology: Topology) -> bool:
    return all(level.peer_atomics for level in topology.levels)


def streams_per_peer(topology: Topology, nest: Nest) -> bool:
    """Whether a copy program has a stream for each peer unless a pin says so: where peers have links of their own and get
    their chunks in turns. Where all chunks leave through the same port it was not measured to be faster."""
    return topology.levels[0].fabric is Fabric.FULL_MESH and nest is Nest.CHUNK_MAJOR


def make_signals(
    problem: Problem, exchanges: tuple[Exchange, ...], *, turns: bool, ended: bool, copied: int
) -> tuple[Signal, ...]:
    """`done` for the whole operator, and for each exchange what its transfer needs; slots lie behind each other.

    `turns`: `done` is a count. `ended`: also a count of the programs of the kernel that finishes the call. `copied`: and a word
    for each of so many side streams.
    """
    wanted: list[tuple[str, Scope, int]] = []
    if exchanges:
        wanted.append(("done", Scope.PEER_COUNT, 1) if turns else ("done", Scope.PEER, problem.num_ranks))
    for exchange in exchanges:
        relation = problem.graph.relation(exchange.name)
        assert relation is not None
        if exchange.slots:
            wanted += [(f"{exchange.name}_{what}", Scope.PEER, exchange.slots) for what in ("arrived", "free")]
            continue
        slots = problem.num_ranks * exchange.chunks
        if problem.pooled(relation):
            wanted.append((f"{exchange.name}_place", Scope.PLACE, problem.num_ranks))
        if exchange.met and not exchange.source:
            continue
        if problem.by_tiles(relation.source) or problem.split_source(relation):
            parts = problem.num_ranks if exchange.kind is Kind.SCATTER else 1
            wanted.append((f"{exchange.name}_count", Scope.LOCAL, parts * exchange.chunks))
        if exchange.transfer is Transfer.PULL:
            wanted.append((f"{exchange.name}_ready", Scope.PEER, slots))
        if exchange.met:
            continue
        if exchange.transfer is Transfer.PUSH:
            wanted.append((f"{exchange.name}_arrived", Scope.PEER, slots))
        elif not isinstance(exchange.mover, Fused):
            wanted.append((f"{exchange.name}_arrived", Scope.LOCAL, slots))
        if isinstance(exchange.mover, CommSms) and exchange.transfer is Transfer.PUSH:
            wanted.append((f"{exchange.name}_sent", Scope.LOCAL, slots))
    if ended:
        wanted.append(("ended", Scope.LOCAL, 1))
    if copied:
        wanted.append(("copied", Scope.LOCAL, copied))
    signals, first = [], {"here": 0, "by peers": 0}
    for name, scope, slots in wanted:
        words = "here" if scope is Scope.LOCAL else "by peers"
        signals.append(Signal(name, scope, slots, first[words]))
        first[words] += slots
    return tuple(signals)


def make_buffers(problem: Problem, exchanges: tuple[Exchange, ...]) -> tuple[Buffer, ...]:
    """Every tensor: inputs, outputs, values that other groups read, sources and targets of exchanges."""
    graph, buffers = problem.graph, dict[str, Buffer]()

    def add(name: str, memory: Memory, shape: tuple[int, ...], dtype: str) -> None:
        if name:
            buffers.setdefault(name, Buffer(name, memory, shape, dtype))

    for name in graph.inputs:
        add(name, Memory.INPUT, graph.values[name].shape, graph.values[name].dtype)
    by_name = {exchange.name: exchange for exchange in exchanges}
    for name in graph.outputs:
        if name not in by_name:  # what an exchange puts together in place lies in symmetric memory
            add(name, Memory.OUTPUT, graph.values[name].shape, graph.values[name].dtype)
    for relation in graph.relations():
        source, target = graph.values[relation.source], graph.values[relation.name]
        exchange = by_name.get(relation.name)
        symmetric = Memory.SYMMETRIC if exchange and exchange.transfer is Transfer.PULL else Memory.LOCAL
        if exchange is not None and exchange.slots:
            memory = Memory.LOCAL  # of a source that is no input and no output
            add(relation.source, memory, source.shape, source.dtype)
            item = (exchange.slots, exchange.chunk_rows, *relation.part[1:])
            add(exchange.target, Memory.SYMMETRIC, item, target.dtype)
            continue
        parts = (problem.num_ranks, *relation.part)
        shape = parts if relation.kind is Kind.SCATTER else source.shape
        if exchange is None or exchange.source != exchange.target:
            add(source_buffer(problem, relation), symmetric, shape, source.dtype)
        if exchange is None:
            add(relation.name, Memory.LOCAL, target.shape if problem.is_plain(relation) else parts, target.dtype)
        elif exchange.target:
            found = target_buffer(problem, relation, exchange)
            buffers.setdefault(found.name, found)
    for op in graph.ops():
        index = problem.maker(op.name)
        if any(reader != index for reader in problem.readers(op.name)):
            add(op.name, Memory.LOCAL, graph.values[op.name].shape, graph.values[op.name].dtype)
    return tuple(buffers.values())


def target_buffer(problem: Problem, relation: Relation, exchange: Exchange) -> Buffer:
    """The buffer that the exchange of `relation` puts its parts into."""
    memory = Memory.SYMMETRIC if exchange.transfer is Transfer.PUSH else Memory.LOCAL
    memory = Memory.POOL if problem.pooled(relation) else memory
    parts = (problem.num_ranks, *relation.part)
    return Buffer(exchange.target, memory, parts, problem.graph.values[relation.name].dtype)
