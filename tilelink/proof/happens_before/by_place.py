"""Rows that are written where a table says, each once: they are told apart by their places in the table.

A table that has no value twice gives each place a row of its own. So a buffer of which every write finds rows by that table is
one of places: two writes meet where they are of one place, and nowhere else. A read may be of any place. Where no value is on two
ranks either, each rank has places of its own in the buffers of peers, of which it counts rows from the same one as others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilelink.schedule.index import Index, Number, less, names_in, rank, replaced
from tilelink.schedule.memory import Buffer, Law, Region
from tilelink.schedule.roles import Schedule
from tilelink.schedule.walk import all_steps, written


@dataclass(frozen=True, slots=True)
class Places:
    """Along dimension `dim` of a buffer: those of `table`, of which each rank has so many. `at`: the name of the rank in whose
    buffer a write is, if that is a peer; rows are then less by `before`."""

    dim: int
    table: str
    each: int
    ranks: int = 1
    at: str = ""
    before: Number = 0

    @property
    def places(self) -> int:
        return self.each * self.ranks

    def of(self, start: Number) -> Number:
        """Where an access begins: at a place, or where no place is known, so that it may be of any."""
        found, _ = less(start)
        if isinstance(found, Index) and found.op == self.table:
            return (rank * self.each if self.ranks > 1 else 0) + replaced(found.args[-1], {"lane": 0})
        return Index(self.table, (0,))


def written_by_place(schedule: Schedule) -> dict[str, Places]:
    """Buffers whose rows are all written by one table without a value twice, along one dimension."""
    laws = {table.name: table.laws for table in schedule.tables}
    found: dict[str, set[Places | None]] = {}
    for step in all_steps(schedule):
        for region in written(step):
            found.setdefault(region.buffer, set()).add(_places(region, laws, schedule))
    return {name: one for name, (one, *more) in found.items() if one is not None and not more}


def _places(region: Region, laws: dict[str, tuple[Law, ...]], schedule: Schedule) -> Places | None:
    for dim, start in enumerate(region.start):
        row, before = less(start)
        if isinstance(row, Index) and Law.DIFFERS in laws.get(row.op, ()):
            *lists, place = row.args
            one_each = isinstance(place, Index) and place.op == "+" and place.args[1] == Index("lane")
            if one_each and "lane" not in names_in(place.args[0]):  # type: ignore[union-attr]
                each = schedule.shapes[row.op][-1]
                if region.at == rank and before == 0 and not lists:
                    return Places(dim, row.op, each)
                at = region.at.op if isinstance(region.at, Index) and region.at.is_name else ""
                # of a table of lists, each rank's is that of its number
                if at and Law.APART in laws[row.op] and names_in(before) <= {at} and lists in ([], [region.at]):
                    return Places(dim, row.op, each, schedule.num_ranks, at, before)
    return None


def by_place(buffer: Buffer, places: dict[str, Places]) -> Buffer:
    """The buffer, of places instead of rows."""
    if buffer.name not in places:
        return buffer
    found = places[buffer.name]
    shape = tuple(found.places if dim == found.dim else extent for dim, extent in enumerate(buffer.shape))
    return replace(buffer, shape=shape)
