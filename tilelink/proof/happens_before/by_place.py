"""Rows that are written where a table says, each once: they are told apart by their places in the table.

A table that has no value twice gives each place a row of its own. So a buffer of which every write finds rows by that table is
one of places: two writes meet where they are of one place, and nowhere else. A read may be of any place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilelink.schedule.index import Index, Number, names_in, replaced
from tilelink.schedule.memory import Buffer, Law, Region
from tilelink.schedule.roles import Schedule
from tilelink.schedule.walk import all_steps, written


@dataclass(frozen=True, slots=True)
class Places:
    """Along dimension `dim` of a buffer: those of `table`, which has so many."""

    dim: int
    table: str
    places: int

    def of(self, start: Number) -> Number:
        """Where an access begins: at a place, or where no place is known, so that it may be of any."""
        if isinstance(start, Index) and start.op == self.table:
            return replaced(start.args[0], {"lane": 0})
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
        if isinstance(start, Index) and Law.DIFFERS in laws.get(start.op, ()) and len(start.args) == 1:
            (place,) = start.args
            one_each = isinstance(place, Index) and place.op == "+" and place.args[1] == Index("lane")
            if one_each and "lane" not in names_in(place.args[0]):  # type: ignore[union-attr]
                return Places(dim, start.op, schedule.shapes[start.op][0])
    return None


def by_place(buffer: Buffer, places: dict[str, Places]) -> Buffer:
    """The buffer, of places instead of rows."""
    if buffer.name not in places:
        return buffer
    found = places[buffer.name]
    shape = tuple(found.places if dim == found.dim else extent for dim, extent in enumerate(buffer.shape))
    return replace(buffer, shape=shape)
