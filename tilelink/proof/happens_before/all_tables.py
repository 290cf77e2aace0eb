"""A proof for all tables, other ones in every call too: of the schedule that does everything any table could make it do.

*Static skeleton.* If no wait, no raise, no access to data that say themselves that they have come, depends on a table or stands
where a table says whether or how often it is done, then segments and what they know are the same for every table. A table
decides only which accesses there are. So it suffices that all accesses which any table could bring about are ordered: those of
one table are some of them, and in the same order. What circles and words do does not depend on tables at all.

    store y -> h[rows[m + lane]]                ->  store y -> h[m : +most], and reads are of all places of `rows`
    for i < rows[s, rank]: a = recv[s, i]       ->  for i < (the largest entry of rows): a = recv[s, i]
    store y -> back[token[s, rank, i]]@s        ->  store y -> back[0 : +all]@s
    move x[tile] -> recv[row[tile]]@to[tile]    ->  for each rank: move x[tile] -> recv[0 : +all]@(that rank)
    if kind[tile] == 1: ... else: ...           ->  ... and ...
    tiles rows[0] to n - 1                      ->  tiles 0 to n - 1

Whoever reads a row is to find one that this call has written, where a table says which are. Rows that are written and read in
loops `for i < rows[...]` only are looked at once more, with the entry of the table and the round as further dimensions: what is
read in a round was written in the same round under the same entry, so that it was, if it is read. Elsewhere this follows from
laws of the tables, as does that each entry which is looked up is there. `assumed` names the other buffers; `check` with given
tables, and emulated runs, look at them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isinf

from tilelink.ir.enums import Protocol
from tilelink.proof.happens_before.by_place import by_place, written_by_place
from tilelink.proof.happens_before.check import Outcome, ordered, unlike_move
from tilelink.proof.happens_before.refuted import Refutation
from tilelink.schedule.index import Index, Number, less, names_in, rank, replaced, spelled, tables_in, terms
from tilelink.schedule.instance import instantiated
from tilelink.schedule.memory import Memory, Region
from tilelink.schedule.printing import in_a_line
from tilelink.schedule.ranges import Range, combined, range_of
from tilelink.schedule.roles import Phase, Plain, Role, Schedule
from tilelink.schedule.steps import Call, For, If, Let, Load, Move, Notify, Step, Store, Wait
from tilelink.schedule.walk import notifies, read, synchronises, written

ANY_RANK = "any rank"


class Dynamic(Exception):
    """What synchronises depends on a table, so that given tables can be proved, and no more."""


@dataclass(frozen=True, slots=True)
class ForAllTables:
    """`refutation`: of the schedule that does all that any table could. It may be of accesses that no table brings together.

    `dynamic`: the step that makes what synchronises depend on a table; then nothing was proved. `assumed`: buffers whose
    readers find what their call wrote only by laws of the tables.
    """

    refutation: Refutation | None = None
    dynamic: str = ""
    assumed: tuple[str, ...] = ()
    order: Outcome | None = None

    @property
    def proved(self) -> bool:
        return self.refutation is None and not self.dynamic


def check_all_tables(schedule: Schedule, calls: int = 0) -> ForAllTables:
    """Whether `schedule` holds for all tables, which may be others in every call; in any number of calls (0) or so many."""
    try:
        every = _Everything(instantiated(schedule))
        most = every.schedule()
    except Dynamic as dynamic:
        return ForAllTables(dynamic=str(dynamic))
    order = ordered(most, calls=calls, assumed=frozenset(every.assumed))
    found = unlike_move(schedule) or order.refutation
    guarded = every.guarded()
    assumed = every.assumed - guarded.keys()
    if guarded and not found:
        rounds = _Everything(instantiated(schedule), guarded).schedule()
        found = ordered(rounds, calls=calls, assumed=frozenset(assumed)).refutation
    return ForAllTables(found, "", tuple(sorted(assumed)), order)


@dataclass(frozen=True, slots=True)
class Guard:
    """A loop over `variable` as far as an entry of a table says."""

    entry: Index
    variable: str

    def alike(self, other: Guard) -> bool:
        return self.entry.op == other.entry.op and len(self.entry.args) == len(other.entry.args)


class _Everything:
    """The schedule that does everything that any table could make it do."""

    def __init__(self, schedule: Schedule, guarded: Mapping[str, Guard] | None = None) -> None:
        self.given, self.shapes = schedule, schedule.shapes
        self.entries: dict[str, Range] = {}
        for table in schedule.tables:
            most = range_of(table.below, {}, self.entries).high
            self.entries[table.name] = Range(0, most - 1)
        self.by_data = frozenset(one.name for one in schedule.buffers if one.protocol is not Protocol.SIMPLE)
        self.assumed: set[str] = set()  # buffers that are written where or as far as a table says
        self.around: list[Guard | None] = []  # loops and branches whose rounds or condition a table says
        self.uses: dict[str, list[Guard | None]] = {}  # of each buffer, under what
        self.shadows = guarded or {}
        self.places = written_by_place(schedule)

    def guarded(self) -> dict[str, Guard]:
        """Buffers that are accessed in loops of the length of one table only, by no other look-up; with one of these loops."""
        callers = {one.name for one in self.given.buffers if one.for_caller or one.memory is Memory.OUTPUT}
        found = {}
        for name in self.assumed - callers:
            first, *others = self.uses[name]
            if first is not None and all(one is not None and one.alike(first) for one in others):
                found[name] = first
        return found

    def schedule(self) -> Schedule:
        launches = tuple(replace(one, roles=tuple(map(self._role, one.roles))) for one in self.given.launches)
        buffers = tuple(
            replace(one, shape=(*one.shape, *self._dims(self.shadows[one.name]))) if one.name in self.shadows else one
            for one in (by_place(one, self.places) for one in self.given.buffers)
        )
        return replace(self.given, launches=launches, buffers=buffers, tables=())

    def _dims(self, guard: Guard) -> tuple[int, ...]:
        return (*self.shapes[guard.entry.op], self._most(guard.entry))

    def _role(self, role: Role) -> Role:
        return replace(role, phases=tuple(map(self._phase, role.phases)))

    def _phase(self, phase: Phase) -> Phase:
        let, names = self._let(phase.let, {})
        first, count = phase.first, phase.count
        if tables_in(first):  # from the first position of all on, to the same end
            end, before = less(count)
            first, count = 0, end if before == first else count + self._most(first)
        count, body = self._count("tile", count, phase.body, f"{spelled(count)} positions", names)
        if not isinstance(phase.pipelining, Plain) and len(body) != len(phase.body):
            raise Dynamic("a branch of a pipelined phase")
        return replace(phase, count=count, let=let, first=first, body=body)

    def _count(
        self, variable: str, count: Number, body: tuple[Step, ...], where: str, names: Mapping[str, Number]
    ) -> tuple[Number, tuple[Step, ...]]:
        """The rounds of a loop, at most, and its body."""
        if not tables_in(count):
            return count, self._body(body, names)
        assert isinstance(count, Index)
        exactly = count.is_lookup and not any(map(tables_in, count.args))
        guard = Guard(count, variable) if exactly else None
        return self._most(count), self._where_a_table_says(body, where, names, guard)

    def _where_a_table_says(
        self, body: tuple[Step, ...], where: str, names: Mapping[str, Number], guard: Guard | None = None
    ) -> tuple[Step, ...]:
        if synchronises(body, self.by_data):
            raise Dynamic(where)
        self.around.append(guard)
        new = self._body(body, names)
        self.around.pop()
        return new

    def _let(self, let: Let, names: Mapping[str, Number]) -> tuple[Let, dict[str, Number]]:
        """Names that depend on no table, and what the others stand for."""
        kept, found = [], dict(names)
        for name, index in let:
            index = replaced(index, found)
            if tables_in(index):
                found[name] = index
            else:
                kept.append((name, index))
                found.pop(name, None)
        return tuple(kept), found

    def _body(self, body: tuple[Step, ...], names: Mapping[str, Number]) -> tuple[Step, ...]:
        return tuple(new for step in body for new in self._step(step, names))

    def _step(self, step: Step, names: Mapping[str, Number]) -> tuple[Step, ...]:
        match step:
            case For(variable, count, body, let):
                self._not_again({variable, *(name for name, _ in let)}, step)
                kept, inner = self._let(let, {name: one for name, one in names.items() if name != variable})
                count, body = self._count(variable, replaced(count, names), body, in_a_line(step), inner)
                return (replace(step, count=count, let=kept, body=body),)
            case If(left, right, body, others):
                sides = replaced(left, names), replaced(right, names)
                if any(map(tables_in, sides)):
                    return self._where_a_table_says(body + others, in_a_line(step), names)
                body, others = self._body(body, names), self._body(others, names)
                return (replace(step, left=sides[0], right=sides[1], body=body, others=others),)  # type: ignore[arg-type]
            case Wait(_, index, until):
                self._static((*index, until), names, step)
            case Load() | Store() | Move() | Call() | Notify():
                for notify in notifies(step):
                    to = () if notify.to is None else (notify.to,)
                    self._static((*notify.index, notify.at, notify.last_of, *to), names, step)
                return self._accesses(step, names)
        return (step,)

    def _not_again(self, names: set[str], step: Step) -> None:
        """A loop inside of one that a table bounds gives no other meaning to the names of its bound."""
        if any(one and names & {one.variable, *names_in(one.entry)} for one in self.around):
            raise Dynamic(f"{in_a_line(step)}, where a name has two meanings")

    def _static(self, indices: tuple[Number, ...], names: Mapping[str, Number], step: Step) -> None:
        if any(tables_in(replaced(one, names)) for one in indices):
            raise Dynamic(in_a_line(step))

    def _most(self, index: Number) -> int:
        most = range_of(index, {}, self.entries).high
        if isinf(most):
            raise Dynamic(f"{spelled(index)}, which nothing bounds")
        return max(int(most), 0)

    def _accesses(self, step: Step, names: Mapping[str, Number]) -> tuple[Step, ...]:
        """The step on all that any table could mean; on every rank, if a table says on which."""
        regions = (*read(step), *written(step))
        every = [self._region(region, names, step) for region in regions]
        for region, new in zip(regions, every, strict=True):
            by_table = any(tables_in(replaced(one, names)) for one in (*region.start, *region.extent, region.at))
            if by_table and region.buffer in self.by_data:
                raise Dynamic(in_a_line(step))
            if region in written(step) and (by_table or self.around):
                self.assumed.add(new.buffer)
            guard = self.around[0] if len(self.around) == 1 and not by_table else None
            self.uses.setdefault(new.buffer, []).append(guard)
        every = [self._shadowed(region) for region in every]
        if any(region.at == Index(ANY_RANK) for region in every):
            at = (rank + Index(ANY_RANK)) % self.given.num_ranks
            turned = [replace(one, at=at) if one.at == Index(ANY_RANK) else one for one in every]
            alone = replace(step, notify=None) if isinstance(step, Move) else step
            loop = For(ANY_RANK, self.given.num_ranks, (_with_regions(alone, turned),))
            return (loop, *notifies(step))
        return (_with_regions(step, every),)

    def _region(self, region: Region, names: Mapping[str, Number], step: Step) -> Region:
        start, extent = list(region.start), list(region.extent)
        shape = self.shapes.get(region.buffer, ())
        for number, (given, many, most) in enumerate(zip(region.start, region.extent, shape, strict=False)):
            first, long = replaced(given, names), replaced(many, names)
            if (place := self.places.get(region.buffer)) is not None and place.dim == number:
                first, most = place.of(first), place.places
            if tables_in(first):
                first, long = (
                    (0, most) if place is not None and place.dim == number else self._around(first, long, most)
                )
            elif tables_in(long):
                bound = range_of(long, {}, self.entries).high
                long = most if isinf(bound) else int(bound)
                first = 0 if isinf(bound) else first
            start[number], extent[number] = first, long
        at = replaced(region.at, names)
        if tables_in(at):
            if not range_of(at, {}, self.entries).within(0, self.given.num_ranks - 1):
                raise Dynamic(f"{in_a_line(step)}: no law says that {spelled(at)} is a rank")
            at = Index(ANY_RANK)
        return replace(region, start=tuple(start), extent=tuple(extent), at=at)

    def _around(self, first: Number, long: Number, most: Number) -> tuple[Number, Number]:
        """(start, extent) of all that an access may touch which begins at `first`: behind what no table says, the range of what
        tables say; everywhere where nothing bounds that."""
        by_lane, start = "lane" in names_in(first), list[tuple[Number, int]]()
        reach = 0.0 if by_lane else max(range_of(long, {}, self.entries).high - 1, 0.0)
        said = Range(0, reach)
        for term, factor in terms(first):
            if "lane" in names_in(term) or tables_in(term):
                said = combined("+", said, combined("*", range_of(term, {}, self.entries), Range(factor, factor)))
            else:
                start.append((term, factor))
        if said.low < 0 or isinf(said.high):
            return 0, most
        begin = sum((term * factor for term, factor in start), int(said.low))
        return begin, int(said.high - said.low) + 1

    def _shadowed(self, region: Region) -> Region:
        if region.buffer not in self.shadows:
            return region
        (guard,) = self.around
        assert guard is not None
        start = (*region.start, *guard.entry.args, Index(guard.variable))
        return replace(region, start=start, extent=(*region.extent, *(1 for _ in guard.entry.args), 1))


def _with_regions(step: Step, regions: list[Region]) -> Step:
    match step:
        case Load() | Store():
            return replace(step, region=regions[0])
        case Move(source):
            return replace(step, source=tuple(regions[: len(source)]), target=tuple(regions[len(source) :]))
        case Call(_, _, operands):
            return replace(step, operands=tuple(regions[: len(operands)]), results=tuple(regions[len(operands) :]))
    return step
