"""Choices -> Schedule: put roles, copies and library calls in launch order. Deterministic; raises Illegal."""

from __future__ import annotations

from dataclasses import replace

from tilelink.ir.calls import PacketCollective
from tilelink.ir.graph import Copy, Merging, Relation
from tilelink.ir.movers import Issuer, Transfer
from tilelink.ir.nodes import (
    AwaitPeers,
    BeforeKernel,
    Begin,
    CommRole,
    CopyOwn,
    CopyProgram,
    Finish,
    Kernel,
    Kind,
    Launch,
    Machine,
    Publish,
    TellPlace,
)
from tilelink.ir.order import Die
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import Elementwise
from tilelink.ir.steps import Wait
from tilelink.planner.choices import texts
from tilelink.planner.collective import collective, gather_within, moved_first, side_by_side, with_tables
from tilelink.planner.cooperative import beside_tiles
from tilelink.planner.cost import draft_us
from tilelink.planner.decisions import decided
from tilelink.planner.draft import Draft
from tilelink.planner.layout import (
    Illegal,
    Problem,
    by_programs,
    copies_between,
    copies_own,
    copy_streams,
    make_exchange,
    meets_at_end,
    source_of,
    spinning_sms,
)
from tilelink.planner.library import library_op
from tilelink.planner.one_launch import in_one_launch, launched_alike, may_share
from tilelink.planner.peer_writes import writes
from tilelink.planner.roles import compute_role, loop_of
from tilelink.planner.rules import NOTHING_ELSE, peer_atomics
from tilelink.planner.states import state_merge, why_no_merge
from tilelink.planner.tile_loops import known_loops, parts_of
from tilelink.planner.tile_run import TileLoop


def build(problem: Problem) -> Schedule:
    """The schedule that `problem.choices` stand for, with its predicted time. Raises Illegal with the reason if they do not go
    together."""
    builder, topology = Builder(problem), problem.topology
    draft = builder.draft()
    return Schedule(
        spec=problem.structure.spec,
        machine=Machine(
            topology.name,
            topology.num_ranks,
            topology.gpu.arch,
            topology.gpu.num_sms,
            topology.gpu.tensor_descriptors,
            topology.gpu.stream_wait_value,
            peer_atomics(topology, inside=True),
            topology.multicast,
        ),
        choices=tuple(texts(decided(problem.structure, problem.choices)).items()),
        decided=problem.choices,
        buffers=tuple(draft.parts.buffers.values()),
        exchanges=builder.exchanges,
        launches=draft.launches,
        predicted_us=round(draft_us(draft, topology, builder.loops()), 3),
    )


class Builder:
    """Puts a schedule together; `exchanges` and `kernel` can be asked for before."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.graph = problem.graph
        self.relations = [r for r in problem.graph.relations() if not r.library]
        self.exchanges = tuple(make_exchange(problem, relation) for relation in self.relations)
        self.meets = meets_at_end(problem, self.exchanges)
        self.turns = peer_atomics(problem.topology, inside=True)
        self.out: list[Launch] = []
        self.kernels: list[tuple[int, Problem, Kernel]] = []  # so far, of which group, and what decides it
        self.known: dict[int, tuple[Problem, Kernel]] = {}  # by group, before the kernels are put in order
        self.done: set[str] = set()  # relations whose host-side launches are out
        self.before_tiles: list[Relation] = []  # gathered by the first kernel that reads them, which is to come
        self.unread: dict[str, set[str]] = {one.name: set(one.reads) for one in self.graph.merges}  # not there yet

    def draft(self) -> Draft:
        return Draft(parts_of(self.problem.structure, self.problem.choices.exchanges), self.launches())

    def loops(self) -> dict[str, TileLoop]:
        """Tile loops by kernel, after `launches`."""
        return known_loops(self.kernels, self.out)

    def launches(self) -> tuple[Launch, ...]:
        """Begin, what inputs feed, then each group with what it needs before and what it feeds after, Finish."""
        for index in range(len(self.problem.groups)):
            self._check_fold(index)
        for relation in self.relations:
            self._hosted_by(relation)
        if self.exchanges and not self.turns:
            self.out.append(Begin())
        for name in self.graph.inputs:
            self._after_source(name)
        for index in range(len(self.problem.groups)):
            if self.problem.host(index) != index:
                continue
            self._before_group(index)
            self._group(index)
            for member in self._members(index):
                for op in self.problem.groups[member].ops:
                    self._after_source(op.name)
        if self.before_tiles:
            raise Illegal(f"no tile loop reads {self.before_tiles[0].name}")
        self.out = with_tables(side_by_side(self.out, self.graph, self._free_sms()), self.exchanges)
        if self.exchanges:
            by_copy = not self.turns
            programs = self.turns and by_programs(self.exchanges)
            within = self.turns and self._ends_in_kernel()
            if within:
                told = (replace(x, tells_end=True) if isinstance(x, CopyProgram) else x for x in self.out)
                self.out = list(told)
            self.out.append(Finish(by_copy=by_copy, turns=self.turns, within=within, meets=self.meets))
            if programs and not self.meets:
                self._await_peers()
            self._tell_places()
            if programs:
                self._carry()
        return tuple(self.out)

    def _ends_in_kernel(self) -> bool:
        """Whether the last thing on the compute stream is a kernel, and no side stream begins behind it. Side streams tell
        their end by writing words, which is asked of drivers only that make streams wait for words."""
        copies = any(isinstance(launch, CopyProgram) for launch in self.out)
        if copies and not self.problem.topology.gpu.stream_wait_value:
            return False
        for launch in reversed(self.out):
            if not isinstance(launch, CopyProgram):
                return isinstance(launch, Kernel) and self._tells_all(launch)
            if launch.after_source:
                return False
        return False

    def _tells_all(self, kernel: Kernel) -> bool:
        """Whether programs of the kernel reach all ranks that are told of the end of a call: those to which programs put, too."""
        puts = {one.name: one.mover.puts for one in self.exchanges if one.mover.puts}
        packets = any(isinstance(one, PacketCollective) and one.per_node for one in self.out)
        return not (puts or packets) or any(puts.get(comm.exchange) is Issuer.PROGRAMS for comm in kernel.comm)

    def _tell_places(self) -> None:
        """As early as a program can: peers that are later than this rank find the place there."""
        for relation in self.relations:
            if self.problem.structure.pooled(relation):
                first = next(index for index, launch in enumerate(self.out) if isinstance(launch, Kernel))
                self.out.insert(first, TellPlace(relation.name))

    def _await_peers(self) -> None:
        """Put the wait for peers before the first launch that writes what they may still use."""
        symmetric = {x.target if x.transfer is Transfer.PUSH else x.source for x in self.exchanges}
        first = next(i for i, launch in enumerate(self.out) if writes(launch, symmetric))
        self.out.insert(first, AwaitPeers(within=False))

    def _carry(self) -> None:
        """Into a kernel that comes right behind go the wait for peers and publications that copy nothing."""
        for index in reversed(range(len(self.out) - 1)):
            launch, behind = self.out[index : index + 2]
            into = isinstance(behind, Kernel) or (isinstance(behind, BeforeKernel) and behind.within)
            if into and (isinstance(launch, AwaitPeers) or (isinstance(launch, Publish) and not launch.copy_from)):
                self.out[index] = replace(launch, within=True)

    def _check_fold(self, index: int) -> None:
        """A sum in the epilogue of its maker: the maker is a tile loop, and all else the sum reads is there before it."""
        problem, group = self.problem, self.problem.groups[index]
        if not problem.choices.compute(group.name).sum_in_epilogue:
            return
        relation = self.graph.relation(group.anchor.reads[0].value)
        if relation is None or relation.kind is not Kind.SCATTER or not problem.structure.by_tiles(relation.source):
            raise Illegal(
                f"{group.name} adds no parts that a tile loop scatters, so there is no epilogue to add them in"
            )
        maker = problem.structure.maker(relation.source)
        if problem.host(maker) != maker:
            raise Illegal(f"{relation.source} is itself made in an epilogue")
        for value in group.reads():
            if value != relation.name and not self._made_before(value, maker):
                raise Illegal(f"{group.name} needs {value}, which is not there when {relation.source} is computed")

    def _made_before(self, value: str, index: int) -> bool:
        relation = self.graph.relation(value)
        if relation is not None:
            return self._made_before(relation.source, index)
        merged = next((one for one in self.graph.merges if value in one.made), None)
        if merged is not None:
            return all(self._made_before(one, index) for one in merged.reads)
        maker = self.problem.structure.maker(value)
        return maker < 0 or self.problem.host(maker) < index

    def _after_source(self, value: str) -> None:
        """Launches that wait for nothing but the value `value`: library calls, copies, publications; merges of states whose last
        operand it is."""
        for merging in self.graph.merges:
            if value in self.unread[merging.name]:
                self.unread[merging.name].remove(value)
                if not self.unread[merging.name]:
                    self._merge(merging)
        for relation in self.graph.relations():
            if relation.source == value:
                self._relation(relation)

    def _relation(self, relation: Relation) -> None:
        problem = self.problem
        source = source_of(problem, relation)
        if relation.in_tiles:
            if not problem.structure.by_tiles(relation.source):
                raise Illegal(f"{relation.source} is not made by tiles that could add what those of peers make")
            self._after_source(relation.name)
            return
        if relation.within:
            self.before_tiles.append(relation)
            return
        if relation.library:
            dtype = self.graph.values[relation.name].dtype
            self.out.append(collective(relation, source, dtype, self._free_sms(), self.problem.topology))
            if relation.summed:
                self._after_source(relation.name)
            return
        exchange = make_exchange(problem, relation)
        tiles = problem.structure.by_tiles(relation.source)
        shared = relation.source if problem.structure.maker(relation.source) < 0 else ""  # unless it is as it is given
        if exchange.transfer is Transfer.PULL and not tiles:
            self.out.append(Publish(relation.name, shared, within=False))
        elif shared not in (exchange.source, ""):
            self.out.append(CopyOwn(relation.name, shared))
        if exchange.mover.issuer is Issuer.STREAMS:
            counted = tiles or problem.split_source(relation)
            awaits_done = self.turns and not self.meets
            if exchange.mover.along_rails and exchange.mover.puts is not Issuer.PROGRAMS:
                to_peers, local = awaits_done and not exchange.mover.crosses_nodes, exchange.order.ranks.ranks_per_node
                name = f"copy_{relation.name}_rails"
                self.out.append(CopyProgram(relation.name, name, 1, not counted, to_peers, between=local))
            streams = copy_streams(problem, relation)
            for name, groups in copies_between(relation.name, exchange) if streams else ():
                self.out.append(CopyProgram(relation.name, name, streams, not counted, awaits_done, between=groups))

    def _merge(self, merging: Merging) -> None:
        by, machine = dict(self.problem.structure.collectives)[merging.name], self.problem.topology
        if fact := why_no_merge(merging, by, self.graph.values[merging.reads[0]].dtype, machine):
            raise Illegal(fact)
        self.out.append(state_merge(merging, by, machine, self._free_sms()))
        for name in merging.made:
            self._after_source(name)

    def _before_group(self, index: int) -> None:
        for member in self._members(index):
            for value in self.problem.groups[member].reads():
                relation = self.graph.relation(value)
                if relation is None or relation.library or value in self.done:
                    continue
                self.done.add(value)
                exchange = make_exchange(self.problem, relation)
                if copies_own(exchange):
                    self.out.append(CopyOwn(value))

    def _members(self, index: int) -> list[int]:
        return [i for i in range(len(self.problem.groups)) if self.problem.host(i) == index]

    def _group(self, index: int) -> None:
        problem = self.problem
        if problem.structure.is_library(index):
            if self._gathered_by(index):
                raise Illegal(f"the library computes {problem.groups[index].name}, and its kernels gather nothing")
            if self._free_sms() < 1:
                raise Illegal("communication leaves no SM for the library")
            self.out.append(library_op(self.problem, self.problem.groups[index]))
            return
        seen, kernel = self.kernel(index)
        role = kernel.compute
        assert role is not None
        if role.warpgroups > 1 and self._gathered_by(index):
            raise Illegal(NOTHING_ELSE)
        if self._goes_on(index, kernel):
            steps = [self._for_own(step) if isinstance(step, Wait) else step for step in role.body]
            kernel = replace(kernel, compute=replace(role, body=tuple(steps)), joined=True)
        elif self._beside(index, kernel):
            kernel = self._in_turn(kernel)
        for relation in self._gathered_by(index):
            self.before_tiles.remove(relation)
            dtype = self.graph.values[relation.name].dtype
            self.out.append(gather_within(relation, source_of(problem, relation), dtype, kernel))
        self.out += moved_first(problem, self.exchanges, index, kernel)
        self.out.append(kernel)
        self.kernels.append((index, seen, kernel))

    def kernel(self, index: int) -> tuple[Problem, Kernel]:
        """The kernel of a group by itself, and what decides it."""
        if index in self.known:
            return self.known[index]
        problem = self.problem
        hosted = [make_exchange(problem, relation) for relation in self.relations if self._hosted_by(relation) == index]
        comm = tuple(CommRole(one.name, one.programs) for one in hosted if one.programs)
        loop = loop_of(problem, index)
        per_sm = loop.tile.per_sm
        if per_sm > 1 and comm:
            raise Illegal(f"programs that communicate take whole SMs, and {per_sm} programs of the tiles share one")
        if loop.tile.warpgroups > 1 and comm:
            raise Illegal(NOTHING_ELSE)
        free = self._free_sms() * per_sm - sum(role.programs for role in comm)
        if free < 1:
            raise Illegal("communication leaves no SM for compute")
        seen = problem.seen_by(index)
        role = compute_role(seen, index, self._consumers(index, free))
        dies = Die(problem.topology.gpu.num_dies)
        inside = beside_tiles(problem, role, [one for one in hosted if not one.programs])
        comm += inside
        self.known[index] = (
            seen,
            Kernel(f"{role.name}_kernel", comm, role, loop.tile.warps, loop.tile.stages, per_sm, dies),
        )
        return self.known[index]

    def _gathered_by(self, index: int) -> list[Relation]:
        """What programs of this group's kernel gather before their tiles."""
        reads = {value for member in self._members(index) for value in self.problem.groups[member].reads()}
        return [relation for relation in self.before_tiles if relation.name in reads]

    def _goes_on(self, index: int, kernel: Kernel) -> bool:
        """Whether programs of the kernel before can go on with `kernel`: it only reads what tiles of that one store at every
        rank, this one too, and tell of, or what was there before; and it is launched in the same way."""
        launches = [launch for launch in self.out if not isinstance(launch, CopyProgram)]
        if not launched_alike(launches[-1] if launches else None, kernel):
            return False
        group = self.problem.groups[index]
        if any(not isinstance(op.operation, Copy | Elementwise) for op in group.ops):
            return False
        launched = next(at for at, _, one in reversed(self.kernels) if not one.joined)
        told = [value for value in group.reads() if self._told_of(value)]
        return bool(told) and all(value in told or self._made_before(value, launched) for value in group.reads())

    def _beside(self, index: int, kernel: Kernel) -> bool:
        """Whether programs of a matmul before can go on with this one, which reads nothing that theirs make."""
        if not self.problem.structure.goes_on(index) or self._gathered_by(index):
            return False
        if not self.kernels or self.out[-1] is not self.kernels[-1][2] or not may_share(self.out[-1], kernel):
            return False
        launched = next(at for at, _, one in reversed(self.kernels) if not one.joined)
        return all(self._made_before(value, launched) for value in self.problem.groups[index].reads())

    def _in_turn(self, kernel: Kernel) -> Kernel:
        """The kernel as what programs of those before go on with."""
        *self.out, last = in_one_launch(self.out, kernel, self._free_sms() * kernel.per_sm)
        named = {one.name: one for one in (*self.out, last) if isinstance(one, Kernel)}
        self.kernels = [(index, seen, named[one.name]) for index, seen, one in self.kernels]
        return named[kernel.name]

    def _told_of(self, value: str) -> bool:
        relation = self.graph.relation(value)
        if relation is None or relation.library or relation.kind is not Kind.GATHER:
            return False
        exchange = make_exchange(self.problem, relation)
        return exchange.mover.issuer is Issuer.TILES and exchange.transfer is Transfer.PUSH and not exchange.met

    def _for_own(self, wait: Wait) -> Wait:
        """The own part is made in this launch as well, where tiles make the parts."""
        return replace(wait, own=self._told_of(wait.exchange))

    def _consumers(self, index: int, free: int) -> int:
        """Programs of the tile loop: all that are free, or those that were asked for to take the items of a queue."""
        queue = self.problem.structure.queue_of(self.problem.groups[index])
        wanted = self.problem.choice(queue).consumers if queue is not None else 0
        if wanted > free:
            raise Illegal(f"{wanted} consumers do not fit beside the producers: {free} SMs are left")
        return wanted or free

    def _free_sms(self) -> int:
        """SMs that nothing holds while it waits on a side stream."""
        return self.problem.topology.gpu.num_sms - sum(spinning_sms(self.problem, one) for one in self.exchanges)

    def _hosted_by(self, relation: Relation) -> int:
        """Group whose launch carries the communication programs: the maker's, or else the first reader's."""
        if not make_exchange(self.problem, relation).mover.beside_tiles(scattered=relation.kind is Kind.SCATTER):
            return -1
        # through slots items go only while they are taken, so that their producers run beside the tiles that take them
        if self.problem.structure.by_tiles(relation.source) and relation.kind is not Kind.SHIFT:
            return self.problem.host(self.problem.structure.maker(relation.source))
        hosts = sorted(self.problem.host(reader) for reader in self.problem.structure.readers(relation.name))
        if not hosts or self.problem.structure.is_library(hosts[0]):
            raise Illegal(f"the first reader of {relation.name} is no tile loop beside which SMs could communicate")
        return hosts[0]
