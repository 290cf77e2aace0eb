"""The structure of a schedule: which tile graph it has and how that is cut into groups. All else are fields (`choices`)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

from tilelink.ir.choices import ExchangeChoice
from tilelink.ir.collective import Collective, Landing
from tilelink.ir.graph import Relation, TileGraph
from tilelink.ir.movers import Issuer, Transfer
from tilelink.ir.nodes import Kind
from tilelink.ir.routed import MOST_SENT_ROWS, Follows, Placed, Routed, Sent
from tilelink.ir.spec import Attend, BoundSpec
from tilelink.ir.user_op import UserOp
from tilelink.planner.group import Group
from tilelink.planner.in_library import in_library, why_not_in_library
from tilelink.planner.memo import Memo, remembered
from topologies.topology import Topology


@dataclass(frozen=True, eq=False)
class Structure:
    """How each collective is carried out, what the library computes, and of each one that could run in the loop of
    another one whether it does; the graph and the groups that follow, and the machine.

    A structure compares by identity, so that it is a cheap part of keys. Its methods are facts of all its schedules;
    `memo`: what was computed of them.
    """

    spec: BoundSpec
    topology: Topology
    collectives: tuple[tuple[str, Collective], ...]
    library: frozenset[str]
    loops: tuple[tuple[str, bool], ...]
    graph: TileGraph
    groups: tuple[Group, ...]
    memo: Memo = field(default_factory=dict, repr=False)

    @cached_property
    def relations(self) -> tuple[Relation, ...]:
        """Those that are carried out by exchanges, in program order."""
        return tuple(relation for relation in self.graph.relations() if not relation.library)

    def maker(self, value: str) -> int:
        """Index of the group that makes `value`, -1 for an input or a relation."""
        return self._makers.get(value, -1)

    @cached_property
    def _makers(self) -> dict[str, int]:
        return {value: i for i, group in enumerate(self.groups) for value in group.made}

    def readers(self, value: str) -> tuple[int, ...]:
        """Indices of the groups that read `value`."""
        return self._readers.get(value, ())

    @cached_property
    def _readers(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        for index, group in enumerate(self.groups):
            for value in group.reads():
                found[value] = (*found.get(value, ()), index)
        return found

    def is_library(self, index: int) -> bool:
        """Whether the library computes group `index`."""
        return self.groups[index].anchor.name in self.library

    @property
    def all_by_library(self) -> bool:
        """Whether it carries out all collectives and computes all that it can."""
        if not all(how.by_library for _, how in self.collectives):
            return False
        attention = (op for op in self.graph.ops() if isinstance(op.operation, Attend))
        cannot = {op.name for op in attention if why_not_in_library(self.graph, op, self.topology.gpu)}
        return self.library == set(in_library(self.spec)) - cannot

    def is_made_by_library(self, value: str) -> bool:
        return self.maker(value) >= 0 and self.is_library(self.maker(value))

    def by_tiles(self, value: str) -> bool:
        """Whether tiles of a Triton loop make `value` during the call."""
        return self.maker(value) >= 0 and not self.is_library(self.maker(value))

    def by_experts(self, value: str) -> bool:
        """Whether tiles whose rows follow a routing make `value`."""
        return self.by_tiles(value) and any(one.routed for one in self.groups[self.maker(value)].anchor.axes)

    def reach(self, relation: Relation) -> int | None:
        """How many of the ranks behind a rank need its part, where causal attention alone reads it; None: all ranks may."""
        readers = [(op, op.operation) for op in self.graph.consumers(relation.name)]
        if relation.kind is not Kind.GATHER or relation.dim != 0 or relation.name in self.graph.outputs or not readers:
            return None
        found = 0
        for op, how in readers:
            rows = self.graph.values[op.reads[0].value].shape[0]
            if not isinstance(how, Attend) or not how.causal or how.zigzag or not how.apart or rows != relation.part[0]:
                return None
            if op.reads[0].value == relation.name:
                return None
            found = max(found, how.reach(rows // how.sequences, relation.num_ranks))
        return found

    def is_kept(self, value: str) -> bool:
        """Whether the plain tensor is needed after its maker: by the user, by other groups, or as source of a SHIFT."""
        shifted = any(r.source == value and r.kind is Kind.SHIFT for r in self.graph.relations())
        others = any(reader != self.maker(value) for reader in self.readers(value))
        merged = any(value in one.reads for one in self.graph.merges)
        return value in self.graph.outputs or others or shifted or merged

    def in_place(self, relation: Relation) -> bool:
        """Whether peers put their parts straight into an output, which the caller reads after the call."""
        return relation.name in self.graph.outputs and relation.kind is Kind.GATHER and not relation.library

    def pooled(self, relation: Relation) -> bool:
        """Whether that output lies in a pool, in another place from call to call."""
        chosen = dict(self.collectives).get(relation.name)
        return self.in_place(relation) and chosen is not None and chosen.landing is Landing.POOLED

    def queue_of(self, group: Group) -> Relation | None:
        """The bounded relation whose items the tiles of `group` are."""
        relation = self.graph.relation(group.anchor.reads[0].value)
        return relation if relation is not None and relation.kind is Kind.SHIFT else None

    def source_in_parts(self, relation: Relation) -> bool:
        """Whether makers of the source keep to the parts of ranks. A launch that takes parts of rows when all of them are there
        takes one ordinary tensor, whose tiles need not end with parts."""
        whole = relation.in_tiles or (relation.library and relation.dim == 0)
        return relation.kind is Kind.SCATTER and not whole

    def split_source(self, relation: Relation, choice: ExchangeChoice) -> bool:
        """Whether a library matmul makes the source chunk by chunk for this relation."""
        return (
            self.is_made_by_library(relation.source)
            and choice.mover.issuer is Issuer.STREAMS
            and choice.transfer is Transfer.PUSH
            and relation.kind is Kind.SCATTER
            and relation.dim == 0
        )

    def needs_own_copy(self, relation: Relation) -> bool:
        """A user's body that reduces over the gathered axis wants one plain tensor."""
        for op in self.graph.consumers(relation.name):
            if self.by_routing(relation):
                return True
            if isinstance(op.operation, UserOp) and not relation.stacked:
                for read in op.reads:
                    if read.value == relation.name and op.axis(read.axis_of(relation.dim)).reduction:
                        return True
        return False

    def by_routing(self, relation: Relation) -> bool:
        """Whether somebody finds rows of all parts by a routing."""
        return relation.name in self._found_by_routing

    def head_of(self, relation: Relation) -> int:
        """Columns of a head, if only attention reads what the relation delivers, as keys or values; else 0."""
        readers = self.graph.consumers(relation.name)
        widths = {
            op.operation.width if isinstance(op.operation, Attend) and op.reads[0].value != relation.name else 0
            for op in readers
        }
        return widths.pop() if len(widths) == 1 and relation.name not in self.graph.outputs else 0

    @cached_property
    def _found_by_routing(self) -> frozenset[str]:
        return frozenset(read.value for op in self.graph.ops() for read in op.reads if any(read.along))

    def sent(self, relation: Relation) -> Sent | None:
        """Rows of a gather that its readers need, if all of them find rows of tokens by one routing to experts of ranks."""
        found, _ = self._sent.get(relation.name, (None, None))
        return found

    def placed(self, relation: Relation, height: int) -> Placed | None:
        """The same rows in the order of tiles of `height` rows that read them."""
        _, routed = self._sent.get(relation.name, (None, None))
        return None if routed is None else Placed(relation.name, routed, height)

    @cached_property
    def _sent(self) -> dict[str, tuple[Sent, Routed]]:
        found = {}
        for relation in self.relations:
            reads = [(op, read) for op in self.graph.consumers(relation.name) for read in op.reads]
            ways = {read.along[0] if read.along else None for _, read in reads if read.value == relation.name}
            routings = {axis.routed for op, _ in reads for axis in op.axes if axis.routed is not None}
            by_token = all(way is not None and way.how is Follows.TOKEN for way in ways)
            if (
                relation.kind is not Kind.GATHER
                or relation.name in self.graph.outputs
                or not by_token
                or len(routings) != 1
            ):
                continue
            (one,) = routings
            ids = self.graph.relation(one.ids)
            if ids is not None and one.parts > 1:
                tokens = relation.part[0]
                rows = math.gcd(tokens, MOST_SENT_ROWS)
                numbers = tokens, one.choices, one.experts, rows
                found[relation.name] = Sent(relation.name, ids.source, ids.name, *numbers), one
        return found

    def finds_own_rows(self, group: Group) -> bool:
        """Whether tiles of `group` find rows of tokens by a routing, and all that they wait for are such rows."""
        reads = [(read, self.graph.relation(read.value)) for op in group.ops for read in op.reads]
        awaited = [(read, relation) for read, relation in reads if relation is not None and not relation.library]
        return bool(awaited) and all(
            relation.kind is Kind.GATHER
            and read.along
            and read.along[0] is not None
            and read.along[0].how is Follows.TOKEN
            for read, relation in awaited
        )

    def goes_on(self, index: int) -> bool:
        """Whether a matmul may run in the launch of the one before: neither needs the other, and nothing of them is sent."""
        if not 0 < index < len(self.groups):
            return False
        before, group = self.groups[index - 1], self.groups[index]
        if not before.matmuls or not group.matmuls or self.is_library(index) or self.is_library(index - 1):
            return False
        sent = {relation.source for relation in self.graph.relations()}
        if any(axis.routed is not None for one in (before, group) for axis in one.anchor.axes):
            return False  # the device knows how many tiles there are, so that positions cannot be counted on
        alone = not sent & (before.made | group.made) and not before.made & set(group.reads())
        return alone and all(self.queue_of(one) is None for one in (before, group))

    def folds_into(self, index: int) -> int:
        """The group in whose epilogue group `index` adds parts if it runs there, else -1: the maker of these parts."""
        relation = self.graph.relation(self.groups[index].anchor.reads[0].value)
        return self.maker(relation.source) if relation is not None else index


@remembered
def around(structure: Structure, members: tuple[int, ...]) -> tuple[str, ...]:
    """Relations by exchanges whose parts groups of `members` read or make."""
    groups = structure.groups
    return tuple(
        relation.name
        for relation in structure.relations
        if any(groups[i].makes(relation.source) or relation.name in groups[i].reads() for i in members)
    )


@remembered
def group_of(structure: Structure, name: str) -> Group:
    return next(group for group in structure.groups if group.name == name)
