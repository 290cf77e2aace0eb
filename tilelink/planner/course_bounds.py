"""The course of a call at least: loops behind each other, each after what its tiles wait for, and transfers after what makes
their source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tilelink.ir.graph import Sum
from tilelink.planner.calls import calls_us
from tilelink.planner.cost import meet_share
from tilelink.planner.exchange_bounds import Least, beside
from tilelink.planner.loop_bounds import Busy
from tilelink.planner.memo import remembered
from tilelink.planner.structure import Structure
from tilelink.planner.tile_run import RETURNED_US, SKEW_SHARE, SKEW_US


def course_us(structure: Structure, least: Mapping[str, Least], loops: Mapping[str, Busy], begin: float) -> float:
    """When loops and transfers of a call have ended, at least. `begin`: of the first loop, without calls before it."""
    course = _Course(structure, least, loops, begin)
    for index, group in enumerate(structure.groups):
        around = _around(structure, index)
        host = group.name if group.name in loops else around.maker
        if host in loops:  # else they do not go together
            course.pass_by(host, around, folded=host != group.name)
        course.now += calls_us(structure, index)
    return max([course.now, *course.done.values()])


class _Around(NamedTuple):
    """What a group has to do with, by name: exchanges of which its tiles read all rows, or rows that a routing chooses; those
    that no group before reads, those that no tiles make and programs beside its own may move, those whose parts it makes, the
    one whose parts it adds; and the group that makes those parts."""

    reads: tuple[str, ...]
    chosen: tuple[str, ...]
    first_read: tuple[str, ...]
    fed: tuple[str, ...]
    makes: tuple[str, ...]
    summed: str
    maker: str


@remembered
def _around(structure: Structure, index: int) -> _Around:
    group, relations = structure.groups[index], structure.relations
    rows = {one.name for one in relations if one.dim == 0}
    reads = {read.value: structure.graph.window(op, read) for op in group.ops for read in op.reads}
    by_routing = {read.value for op in group.ops for read in op.reads if any(read.along)}
    adds, host = isinstance(group.anchor.operation, Sum), structure.folds_into(index)
    return _Around(
        reads=tuple(value for value, window in reads.items() if value in rows and not window),
        chosen=tuple(one.name for one in relations if one.name in by_routing),
        first_read=tuple(one.name for one in relations if min(structure.readers(one.name), default=-1) == index),
        fed=tuple(name for name in _not_made(structure) if beside(structure, name) == group.name),
        makes=tuple(one.name for one in relations if structure.maker(one.source) == index),
        summed=group.anchor.reads[0].value if adds else "",
        maker=structure.groups[host].name if host >= 0 else "",
    )


@remembered
def _not_made(structure: Structure) -> tuple[str, ...]:
    """Relations by exchanges whose source no group makes."""
    return tuple(relation.name for relation in structure.relations if structure.maker(relation.source) < 0)


class _Course:
    """`now`: on the compute stream. By exchange: `there`, when its first chunk has come from every peer; `done`, when its
    transfers have ended; `arrived`, when readers have all of it from peers that may be late. By loop: when it has `begun`, and
    what loops take that are `behind` it."""

    def __init__(
        self, structure: Structure, least: Mapping[str, Least], loops: Mapping[str, Busy], begin: float
    ) -> None:
        self.topology, self.least, self.loops = structure.topology, least, loops
        self.launch_us = self.topology.gpu.kernel_launch_us
        self.now = begin + calls_us(structure, -1) + sum(one.publish for one in least.values())
        self.there, self.done, self.arrived = dict[str, float](), dict[str, float](), dict[str, float]()
        self.begun, self.behind = dict[str, float](), dict[str, float]()
        for name in _not_made(structure):
            self._feed(name, least[name].start)

    def _feed(self, name: str, start: float) -> None:
        """Move what no group makes, from `start` on."""
        self.there[name] = start + self.least[name].lead
        self.done[name] = self.arrived[name] = start + self.least[name].transfers

    def pass_by(self, host: str, around: _Around, *, folded: bool) -> None:
        """A group that runs in the loop of `host`: its own one, or that of the maker of what it adds if it is `folded`."""
        busy, behind = self.loops[host], self.behind
        if not folded:
            self._begin(host, busy, around)
        ready = self.there.get(around.summed, 0.0)
        if ready > 0.0:
            self.now = max(self.now, ready + busy.adds + behind[host], self.arrived[around.summed] + behind[host])
        for name in around.makes:
            begin = busy.first_own if folded else self.least[name].first * busy.tiles
            self._send(name, host, max(self.begun[host] + begin, ready))

    def _begin(self, name: str, busy: Busy, around: _Around) -> None:
        self.now += sum(self.least[one].copy for one in around.first_read)
        for one in around.fed:
            if self.least[one].beside:
                self._feed(one, self.now + self.launch_us)
        if not busy.library and busy.rest is None:  # no tile begins before
            self.now = max([self.now, *(self._first(one) - self.launch_us for one in around.chosen)])
        self.begun[name] = self.now
        for before in self.behind:
            self.behind[before] += busy.us
        self.behind[name] = 0.0
        self.now += busy.us
        if busy.rest is not None:
            self.now = max([self.now, *(self.arrived.get(one, 0.0) + busy.rest for one in around.chosen)])
        if not busy.library:
            self.now = max([self.now, *(self.arrived.get(one, 0.0) for one in around.reads)])

    def _first(self, name: str) -> float:
        """When tiles begin that find rows of it by a routing: with all of it, with first columns, or when they may load it."""
        if name not in self.least:
            return 0.0
        one = self.least[name]
        loaded = one.returns and not one.lead
        return (self.there if one.columns or loaded else self.arrived).get(name, 0.0)

    def _send(self, name: str, host: str, begin: float) -> None:
        """What the group makes, from `begin` on."""
        one, busy, begun = self.least[name], self.loops[host], self.begun[host]
        last = begun + one.last * busy.tiles
        if 0 < one.rows < busy.tile[one.dim]:  # the model takes a chunk to be there in which no tile ends
            begin = last = 0.0
        if one.returns or one.whole:
            begin = last = self.now + (RETURNED_US if one.returns else 0.0)
        self.there[name] = max(begin + one.lead, last)
        self.done[name] = max(begin + one.transfers, last + one.tail, begun + one.made * busy.tiles + one.final)
        if one.gathers:  # what comes behind the last chunk is as much as what comes until the first one is there
            last = self.now if one.lead == one.transfers else begun + busy.last_own
            self.done[name] = max(self.done[name], last + one.lead)
        done = self.done[name]
        late = meet_share(self.topology) * done if one.gathers else min(SKEW_US, SKEW_SHARE * done)
        self.arrived[name] = done + (late if one.counted else 0.0)
