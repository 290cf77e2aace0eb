"""Cuts what programs move into tiles that registers hold; engines of their own move whole regions.

move x[a : +512, 0 : +8192] -> y[b : +512, 0 : +8192], then notify
for x_row < 512: for x_col < 2: move x[a + x_row : +1, x_col * 4096 : +4096] -> ...; notify

A run of elements in memory stays whole: programs copy it block by block.
"""

from __future__ import annotations

from dataclasses import replace

from lowering.steps.flat import is_flat
from lowering.steps.indices import Scope
from tilelink.schedule.index import Index, Number, least, names_in, rounded_up
from tilelink.schedule.memory import Access, Region
from tilelink.schedule.roles import Network, Phase, Role, Schedule
from tilelink.schedule.steps import For, If, Move, Step
from tilelink.schedule.walk import with_phases

ELEMENTS = 4096  # of a piece at most, a power of two: 32 for each thread of four warps
OF_ROWS = 32768  # the same of rows that a table finds, so that many loads are in flight behind each look-up


def in_pieces(schedule: Schedule, *, puts: bool = False) -> Schedule:
    """`schedule` with loops around what moves more than `ELEMENTS` elements. `puts`: programs on the network put it as it is."""

    def changed(role: Role, phase: Phase) -> Phase:
        if role.by_host or (puts and isinstance(role.engine, Network)):
            return phase
        scope = Scope(schedule, role.name, role.programs)
        with scope.inside("tile", phase.count, phase.first, phase.let):
            return replace(phase, body=_body(scope, phase.body))

    return with_phases(schedule, changed)


def _body(scope: Scope, body: tuple[Step, ...]) -> tuple[Step, ...]:
    found: list[Step] = []
    for step in body:
        match step:
            case For():
                with scope.inside(step.variable, step.count, let=step.let):
                    found.append(replace(step, body=_body(scope, step.body)))
            case If():
                others = _body(scope, step.others)
                found.append(replace(step, body=_body(scope, step.body), others=others))
            case Move() if _by_pointers(step) and not is_flat(scope, step, packets=True):
                found += _cut(scope, step)
            case _:
                found.append(step)
    return tuple(found)


def _by_pointers(step: Move) -> bool:
    """Else a warp moves a few rows at a time, whatever there is."""
    return all(one.access is Access.POINTER for one in (*step.source, *step.target))


def _cut(scope: Scope, step: Move) -> tuple[Step, ...]:
    pairs = list(zip(step.source, step.target, strict=True))
    if all(_elements(scope.schedule, source) <= ELEMENTS for source, _ in pairs):
        return (step,)
    loops = [_loop(scope, source, target) for source, target in pairs]
    return (*loops, step.notify) if step.notify else tuple(loops)


def _elements(schedule: Schedule, region: Region) -> int:
    """Elements of a region whose extents are numbers; of others those of the rows that its buffer has."""
    shape = schedule.shapes[region.buffer]
    count = 1
    for extent, size in zip(region.extent, shape, strict=True):
        count *= extent if isinstance(extent, int) else size
    return count


def _loop(scope: Scope, source: Region, target: Region) -> Step:
    """A pair of regions piece by piece: parts of a row, or several whole rows, where rows and columns come last. Rows that are
    looked up stay together."""
    cols = source.extent[-1]
    width = cols if isinstance(cols, int) else scope.schedule.shapes[source.buffer][-1]
    wide = min(ELEMENTS, 1 << (width - 1).bit_length())
    sizes = (max(1, ELEMENTS // wide), wide)[-len(source.extent) :]
    if "lane" in names_in(source.start[0]):
        rows = 1 << (int(scope.range(source.extent[0]).high) - 1).bit_length()
        sizes = rows, min(max(1, OF_ROWS // rows), wide)
    names = (f"{source.buffer}_row", f"{source.buffer}_col")[-len(sizes) :]
    loops: list[tuple[str, Number]] = []  # inner ones first
    for back, (name, size) in enumerate(zip(reversed(names), reversed(sizes), strict=True), start=1):
        extent = source.extent[-back]
        count = rounded_up(extent, size)
        if count != 1 and "lane" not in names_in(source.start[-back]):
            loops.append((name, count))
            first = Index(name) * size
            left = _left(extent, first, size)
            source, target = (_part(one, back, first, left) for one in (source, target))
    step: Step = Move((source,), (target,))
    for name, count in loops:
        step = For(name, count, (step,))
    return step


def _left(extent: Number, start: Number, size: int) -> Number:
    return size if isinstance(extent, int) and extent % size == 0 else least(size, extent - start)


def _part(region: Region, back: int, first: Number, extent: Number) -> Region:
    """`region` from `first` on along the dimension that is `back` from the end."""
    start, width = list(region.start), list(region.extent)
    start[-back] = start[-back] + first
    width[-back] = extent
    return replace(region, start=tuple(start), extent=tuple(width))
