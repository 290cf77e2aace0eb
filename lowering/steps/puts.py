"""Steps of programs that put over a network, in either language that has puts: a move with its signal is one call, and so is a
word by itself."""

from __future__ import annotations

from dataclasses import replace

from lowering.source import Chain
from lowering.steps.errors import EngineCannot
from lowering.steps.flat import is_flat, run
from lowering.steps.programs import Programs
from tilelink.schedule.index import Index, names_in, rank, sum_of, terms_of
from tilelink.schedule.memory import Region
from tilelink.schedule.printing import in_a_line
from tilelink.schedule.roles import Network
from tilelink.schedule.steps import Move, Notify, Order, Sync


def _listed(region: Region) -> Index | None:
    """The entries of a table that say which rows a region has, if they do and nothing else differs from row to row."""
    if len(region.start) < 2:
        return None
    by_lane = [term for term in terms_of(region.start[-2]) if "lane" in names_in(term)]
    others = (*region.start[:-2], *region.start[-1:])
    if len(by_lane) != 1 or any("lane" in names_in(one) for one in others):
        return None
    (entry,) = by_lane
    return entry if isinstance(entry, Index) and entry.is_lookup and entry.args[-1] == Index("lane") else None


def _from_first(region: Region, entry: Index) -> Region:
    """Rows from that on of which entry 0 would be the first one."""
    row = sum_of({term: factor for term, factor in terms_of(region.start[-2]).items() if term != entry})
    return replace(region, start=(*region.start[:-2], row, region.start[-1]))


class Puts(Programs):
    def move(self, step: Move) -> None:
        """NVSHMEM takes addresses of this rank, and the number of the other one."""
        (source, *_), (target, *_), told = step.source, step.target, step.notify
        if not self._on_network() or target.at == rank:
            super().move(step)
            return
        if told is None and (listed := _listed(source)) is not None and listed == _listed(target):
            self._put_rows(source, target, listed)
            return
        unknown = told is not None and (told.to is None or told.at != target.at)
        if len(step.source) > 1 or unknown or not is_flat(self.scope, step, packets=True):
            legal = "one run of elements, or of packets, and a word that is set where it lands"
            raise EngineCannot(
                engine="a put", role=self.scope.role, what="put several regions", step=in_a_line(step), legal=legal
            )
        found = run(self.scope, source)
        assert found is not None, "it is one run"
        rows, columns = found
        here = replace(target, at=rank)
        ends = [self.stored_to(here), self.first_of(source)]
        size = self.spell(rows * columns)
        if told is None:  # packets tell by themselves
            self.out.call("put_alone(", [*ends, size, self.spell(target.at)])
            return
        word = self.word(self.own(told.signal), told.signal, told.index)
        assert told.to is not None, "it is set"
        self.out.call("put(", [*ends, size, word, self.spell(told.to), self.spell(told.at)])

    def _put_rows(self, source: Region, target: Region, listed: Index) -> None:
        """Rows that a table lists."""
        whole = all(one.extent[-1] == self.schedule.shapes[one.buffer][-1] for one in (source, target))
        if not whole or any(extent != 1 for one in (source, target) for extent in one.extent[:-2]):
            legal = "whole rows of one part, all that a list has of a block"
            step = in_a_line(Move((source,), (target,)))
            raise EngineCannot(engine="a put", role=self.scope.role, what="put parts of rows", step=step, legal=legal)
        ends = [
            self.stored_to(_from_first(replace(target, at=rank), listed)),
            self.first_of(_from_first(source, listed)),
        ]
        entries = Chain(tuple(self.spell.entry(Index(listed.op, (*listed.args[:-1], 0)))))
        cols = self.spell.constant(self.spell.step(source.buffer, len(source.start) - 2))
        self.out.call("put_rows(", [*ends, entries, self.spell(source.extent[-2]), cols, self.spell(target.at)])

    def first_of(self, region: Region) -> Chain:
        """The address of its first element."""
        return Chain((self.regions.base(region), *self.spell.flat(region.start, region.buffer, 0)))

    def stored_to(self, region: Region) -> Chain:
        """The same of what is stored to."""
        return self.first_of(region)

    def _on_network(self) -> bool:
        roles = (role for launch in self.schedule.launches for role in launch.roles)
        return any(role.name == self.scope.role and isinstance(role.engine, Network) for role in roles)

    def raised(self, step: Notify) -> None:
        if step.at == rank or step.to is None or not self.puts_words():  # of this node, by an atomic
            super().raised(step)
            return
        word = self.word(self.own(step.signal), step.signal, step.index)
        self.out.call("put_word(", [word, self.spell(step.to), self.spell(step.at)])

    def puts_words(self) -> bool:
        """Whether these programs set words of other ranks by puts."""
        return self._on_network()

    def sync(self, step: Sync) -> None:
        if step.order in (Order.QUIET, Order.LANDED) and self._on_network():
            self.out.line("quiet()")
            return
        super().sync(step)
