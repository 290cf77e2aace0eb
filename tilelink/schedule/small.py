"""A small form of a schedule: its own steps at sizes and choices at which they are run and judged in a second.

    M_SIZE = 8192, TILE_M = 128, GROUP_M = 8, PROGRAMS = 132    ->    M_SIZE = 64, TILE_M = 16, GROUP_M = 2, PROGRAMS = 2

Nothing is planned again: names of dims get other values. Every branch stays: what was several is several, what divides what does
so still, what is ragged stays ragged, and who had several tiles has several. What was one is one as well where that can be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, product
from math import gcd

from tilelink.schedule.errors import NoSmallForm
from tilelink.schedule.index import Index, Number, names_in, subindices, value_of
from tilelink.schedule.instance import instantiated, with_indices
from tilelink.schedule.memory import Dim
from tilelink.schedule.roles import Phase, Schedule, Who
from tilelink.schedule.steps import Compute, Notify, Wait
from tilelink.schedule.walk import all_steps, notifies, phases, read, written

TILE = 16  # the least extent of a tile, along each axis, that tensor cores multiply
PROGRAMS, COUNT, ITEMS = 2, 2, 7  # at most
_UNITS = 6  # of the largest tile, in a size that is tried
_TRIED = 20_000

Values = Mapping[str, int]


def small_form(schedule: Schedule) -> Schedule:
    """`schedule` in numbers, small ones. Raises NoSmallForm."""
    return instantiated(schedule, small_values(schedule))


def small_values(schedule: Schedule) -> dict[str, int]:
    """Other values for the dims that do not follow from others. Raises NoSmallForm."""
    if not schedule.dims:
        return {}
    uses = _Uses(schedule)
    uses.check()
    fixed = {name: value for dim in uses.free if (value := uses.small(dim)) is not None for name in (dim.name,)}
    sizes = [dim.name for dim in uses.free if dim.name not in fixed]
    equal = [
        [name for name in sizes if uses.given[name] == value] for value in dict.fromkeys(map(uses.given.get, sizes))
    ]
    for groups, exactly in product((equal, [[name] for name in sizes]), (True, False)):  # sizes that are equal stay so
        tried = [sorted({size for name in group for size in uses.candidates(name, fixed)}) for group in groups]
        for found in islice(_ascending(tried), _TRIED):
            values = fixed | {name: size for group, size in zip(groups, found, strict=True) for name in group}
            if uses.alike(values, exactly):
                return values
    raise NoSmallForm(schedule=schedule.name, reason="no smaller sizes that were tried keep all of its branches")


def _ascending(candidates: list[list[int]]) -> Iterator[tuple[int, ...]]:
    """All combinations, small ones first."""
    yield from sorted(product(*candidates), key=sum)


@dataclass(frozen=True)
class _Uses:
    """What the dims of a schedule are for, by where their names stand."""

    schedule: Schedule

    @cached_property
    def free(self) -> list[Dim]:
        return [dim for dim in self.schedule.dims if isinstance(dim.size, int)]

    @cached_property
    def derived(self) -> list[Dim]:
        return [dim for dim in self.schedule.dims if isinstance(dim.size, Index)]

    @cached_property
    def given(self) -> dict[str, int]:
        return self.schedule.sizes

    @cached_property
    def ranks(self) -> frozenset[str]:
        return _names(axis.size for axis in self.schedule.mesh)

    @cached_property
    def elements(self) -> frozenset[str]:
        """Sizes: what buffers have along their dimensions, what that follows from, and what else is cut into tiles."""
        found = _names(extent for buffer in self.schedule.buffers for extent in buffer.shape)
        for dim in reversed(self.schedule.dims):
            found |= names_in(dim.size) if dim.name in found else frozenset()
        cut = _names(whole for whole, _ in self.cuts)
        found |= {dim.name for dim in self.free if not dim.chosen and dim.name in cut}
        return found - self.ranks - self.counts - self.tiles

    @cached_property
    def tiles(self) -> frozenset[str]:
        """Extents of tiles, alone or as the most that there are."""
        found = set[str]()
        for step in all_steps(self.schedule):
            extents = list(step.shape) if isinstance(step, Compute) else []
            extents += [one for region in (*read(step), *written(step)) for one in region.extent]
            for extent in extents:
                if isinstance(extent, Index):
                    inner = extent.args if extent.op == "min" else (extent,)
                    found |= {one.op for one in inner if isinstance(one, Index) and one.is_name}
        cut = _names(by for _, by in self.cuts)
        return frozenset(name for name in found & cut if isinstance(self._dim(name).size, int))

    @cached_property
    def counts(self) -> frozenset[str]:
        """What signals have words for, and slots."""
        return _names(extent for signal in self.schedule.signals for extent in signal.shape) - self.ranks

    @cached_property
    def programs(self) -> frozenset[str]:
        return _names(role.engine.programs for launch in self.schedule.launches for role in launch.roles)

    def _dim(self, name: str) -> Dim:
        return next(dim for dim in self.schedule.dims if dim.name == name)

    @cached_property
    def indices(self) -> tuple[Index, ...]:
        found = dict[Index, None]()

        def noted(index: Number) -> Number:
            found.update(dict.fromkeys(subindices(index)))
            return index

        with_indices(self.schedule, noted)
        return tuple(found)

    @cached_property
    def cuts(self) -> tuple[tuple[Number, Number], ...]:
        """(what is cut, into pieces of what): all quotients of dims."""
        names = set(self.given)
        found = [_quotient(index) for index in self.indices if index.op == "//" and names_in(index) <= names]
        return (*found, *((Index(dim.name), by) for dim in self.schedule.dims for by in dim.multiples))

    @cached_property
    def parts(self) -> tuple[tuple[Number, Number, Number], ...]:
        """(what is cut, into how many parts, of what size at most), where no part is empty."""
        quotients = [
            (*_quotient(dim.size), Index(dim.name))
            for dim in self.derived
            if isinstance(dim.size, Index) and dim.size.op == "//"
        ]
        return tuple(one for one in quotients if self._filled(one, self.given))

    def _filled(self, part: tuple[Number, Number, Number], found: Values) -> bool:
        whole, number, size = (value_of(one, found) for one in part)
        return -(-whole // max(size, 1)) == number

    # ---- small values

    def check(self) -> None:
        """Raises NoSmallForm where numbers without names stand for what depends on sizes."""
        for step in all_steps(self.schedule):
            counted: Iterable[Number] = [one.last_of for one in notifies(step)]
            if isinstance(step, Wait):
                counted = [step.until]
            for index in counted:
                if any(number > 1 for number in _numbers(index)):
                    what = "a count" if isinstance(step, Notify) else "what is waited for"
                    raise NoSmallForm(
                        schedule=self.schedule.name, reason=f"{what} is a number that follows from no name"
                    )

    def small(self, dim: Dim) -> int | None:
        """The small value of a choice; None for a size."""
        name, value = dim.name, self.given[dim.name]
        if name in self.tiles:
            halved = any(index.op == "//" and index.args == (Index(name), 2) for index in self.indices)
            return min(value, 2 * TILE if halved else TILE) if dim.chosen else value
        if name in self.programs:
            return min(value, PROGRAMS)
        if name in self.counts:
            even = all(value_of(whole, self.given) % value == 0 for whole, by in self.cuts if by == Index(name))
            return min(value, COUNT + (not even) if dim.chosen else ITEMS)
        if name in self.elements:
            return None
        return min(value, COUNT) if dim.chosen else value  # a group; ranks

    def candidates(self, name: str, fixed: Values) -> Iterator[int]:
        """Sizes to try, and the one that it has."""
        value = self.given[name]
        follow = {name, *(one.name for one in self.derived if name in names_in(one.size))}
        pieces = [by for whole, by in self.cuts if names_in(whole) & follow and names_in(by) <= fixed.keys()]
        unit = max([value_of(by, fixed) for by in pieces], default=TILE // 2)
        step = gcd(value, TILE // 2)  # words of packets, and of descriptors, hold so many elements
        tails = sorted({0, step, unit // 2 // step * step, unit - step} - {unit})
        for units in range(_UNITS + 1):
            yield from (size for tail in tails if 0 < (size := units * unit + tail) < value)
        yield value

    def alike(self, values: Values, exactly: bool) -> bool:
        """Whether all that decides what the steps do is as it was. `exactly`: also how often a loop runs once, which programs
        do not depend on."""
        try:
            found = self._all(values)
        except ZeroDivisionError:  # a part of no elements
            return False
        for whole, by in self.cuts:
            (a, b), (c, d) = ((value_of(whole, each), value_of(by, each)) for each in (self.given, found))
            if d == 0 or (a % b == 0) != (c % d == 0) or not self._as_many(-(-a // b), -(-c // d), by, exactly):
                return False
        if not all(self._filled(part, found) for part in self.parts):
            return False
        pieces = ((self.given[dim.name], found[dim.name], dim.size) for dim in self.derived)
        return all(self._as_many(*one, exactly) for one in pieces) and all(
            self._rounds(phase, programs, found) for phase, programs in self.shared
        )

    def _as_many(self, before: int, now: int, by: Number, exactly: bool) -> bool:
        """Whether one is one, and several are several. A number that is fixed always has to be as it was."""
        names = names_in(by)
        if exactly or names & self.fixed_tiles:
            return min(before, 2) == min(now, 2)
        return now > 1 or before <= 1 or not names & self.tiles

    @cached_property
    def fixed_tiles(self) -> frozenset[str]:
        return frozenset(name for name in self.tiles if not self._dim(name).chosen)

    def _all(self, values: Values) -> dict[str, int]:
        found: dict[str, int] = {}
        for dim in self.schedule.dims:
            found[dim.name] = values[dim.name] if dim.name in values else value_of(dim.size, found)
        return found

    @cached_property
    def shared(self) -> list[tuple[Phase, Number]]:
        """Phases whose positions programs share."""
        return [
            (phase, role.engine.programs)
            for _, role, phase in phases(self.schedule)
            if phase.who is Who.EACH and not phase.every and names_in(phase.count) <= self.given.keys()
        ]

    def _rounds(self, phase: Phase, programs: Number, found: Values) -> bool:
        """Whether a program comes to several positions, if it did."""
        before, now = (value_of(phase.count, each) - value_of(programs, each) for each in (self.given, found))
        return before <= 0 or now > 0


def _names(indices: Iterable[Number]) -> frozenset[str]:
    return frozenset[str]().union(*map(names_in, indices))


def _quotient(index: Index) -> tuple[Number, Number]:
    """What `index` divides, and by what; of one that is rounded up, too."""
    whole, by = index.args
    match whole:
        case Index("-", (Index("+", (inner, other)), 1)) if other == by:
            return inner, by
    return whole, by


def _numbers(index: Number) -> Iterator[int]:
    if isinstance(index, int):
        yield abs(index)
    elif not (index.op == "//" or index.op == "%"):
        for one in index.args:
            yield from _numbers(one)
