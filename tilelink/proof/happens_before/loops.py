"""Loops that nothing synchronises, as one access of a region: `for k < 8: a = x[m, k * 64 : +64]` is `a = x[m, 0 : +512]`.

Between two waits or raises the order of a program's accesses decides nothing, as long as no buffer is both read and written
there. So a loop whose body neither waits nor raises touches what its rounds touch together, at once. That is done where it is
exactly a box: along one dimension at most the start moves, by a constant, by no more than the extent. A last round that ends
where a tensor does ends the box there. Other loops stay loops.
"""

from __future__ import annotations

from dataclasses import replace

from tilelink.ir.enums import Protocol
from tilelink.schedule.index import Index, Number, least, names_in, replaced
from tilelink.schedule.instance import with_indices
from tilelink.schedule.memory import Region
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import Call, For, If, Load, Move, Step, Store
from tilelink.schedule.walk import bodies, read, steps_in, synchronises, with_bodies, written


class _NoBox(Exception):
    """What the rounds of a loop touch is no box, or this cannot see it."""


def widened(schedule: Schedule) -> Schedule:
    """`schedule` with each loop that is one box for each of its regions replaced by its body on these boxes."""
    by_data = frozenset(one.name for one in schedule.buffers if one.protocol is not Protocol.SIMPLE)

    def change(body: tuple[Step, ...]) -> tuple[Step, ...]:
        out: list[Step] = []
        for step in body:
            match step:
                case For():
                    out += _loop(replace(step, body=change(step.body)), by_data)
                case If():
                    out.append(replace(step, body=change(step.body), others=change(step.others)))
                case _:
                    out.append(step)
        return tuple(out)

    return with_bodies(schedule, change)


def _loop(loop: For, by_data: frozenset[str]) -> tuple[Step, ...]:
    inner = list(steps_in(loop.body))
    reads = {region.buffer for step in inner for region in read(step)}
    writes = {region.buffer for step in inner for region in written(step)}
    if synchronises(loop.body, by_data) or reads & writes or any(isinstance(step, For) for step in inner):
        return (loop,)
    lets: dict[str, Number] = {}
    for name, index in loop.let:
        lets[name] = replaced(index, lets)
    try:
        return _as_one(with_indices(loop.body, lambda index: replaced(index, lets)), loop.variable, loop.count)
    except _NoBox:
        return (loop,)


def _as_one(body: tuple[Step, ...], variable: str, count: Number) -> tuple[Step, ...]:
    def wide(regions: tuple[Region, ...]) -> tuple[Region, ...]:
        return tuple(_wide(region, variable, count) for region in regions)

    out: list[Step] = []
    for step in body:
        match step:
            case Load(_, region) | Store(_, region):
                out.append(replace(step, region=_wide(region, variable, count)))
            case Move(source, target):
                out.append(replace(step, source=wide(source), target=wide(target)))
            case Call(_, results, operands):
                out.append(replace(step, results=wide(results), operands=wide(operands)))
            case If(left, right):
                if variable in names_in(left) | names_in(right):
                    raise _NoBox
                inner, others = (_as_one(one, variable, count) for one in bodies(step))
                out.append(replace(step, body=inner, others=others))
            case _:
                out.append(step)
        out += _ends(step, variable, count)
    return tuple(out)


def _ends(step: Step, variable: str, count: Number) -> tuple[Step, ...]:
    """The step in the first and in the last round, where rounds go through parts: what sticks out of a box of several parts is
    masked, and a part that does not exist is a mistake."""
    through_parts = any(
        extent == 1 and variable in names_in(start)
        for region in (*read(step), *written(step))
        for start, extent in zip(region.start, region.extent, strict=True)
    )
    if not through_parts or not isinstance(count, int) or count < 1:
        return ()
    ends = dict.fromkeys((0, count - 1))
    return tuple(with_indices(step, lambda index, end=end: replaced(index, {variable: end})) for end in ends)  # type: ignore[misc]


def _wide(region: Region, variable: str, count: Number) -> Region:
    start, extent = list(region.start), list(region.extent)
    moving = [number for number, one in enumerate(start) if variable in names_in(one)]
    still = [one for number, one in enumerate(extent) if number not in moving]
    if len(moving) > 1 or any(variable in names_in(one) for one in (*still, region.at)):
        raise _NoBox
    for number in moving:
        by, (long, end) = slope(start[number], variable), _up_to(extent[number], variable)
        ragged = end is not None and (by is None or slope(end, variable) != -by or by < 0)
        if by is None or ragged or not 0 < abs(by) <= long:
            raise _NoBox
        first = {variable: count - 1 if by < 0 else 0}
        start[number] = replaced(start[number], first)
        whole = (count - 1) * abs(by) + long
        extent[number] = whole if end is None else least(whole, replaced(end, first))
    if not isinstance(count, int) or count < 1:  # no round, no access
        extent = [least(1, _positive(count)) * one for one in extent[:1]] + extent[1:]
    return replace(region, start=tuple(start), extent=tuple(extent))


def _up_to(extent: Number, variable: str) -> tuple[int, Number | None]:
    """An extent as a number, and what there is at most in this round: less in the last one. Raises _NoBox."""
    if isinstance(extent, int):
        return extent, None
    if extent.op == "min" and len(extent.args) == 2:
        numbers = [one for one in extent.args if isinstance(one, int)]
        others = [one for one in extent.args if not isinstance(one, int)]
        if numbers and others and variable in names_in(others[0]):
            return numbers[0], others[0]
    raise _NoBox


def _positive(count: Number) -> Number:
    return max(count, 0) if isinstance(count, int) else Index("max", (count, 0))


def slope(index: Number, variable: str) -> int | None:
    """By how much `index` grows from round to round, if by a constant."""
    if isinstance(index, int) or variable not in names_in(index):
        return 0
    if index.is_name:
        return 1
    if index.is_lookup:
        return None
    left, right = index.args
    a, b = slope(left, variable), slope(right, variable)
    match index.op:
        case "+" if a is not None and b is not None:
            return a + b
        case "-" if a is not None and b is not None:
            return a - b
        case "*" if isinstance(right, int) and a is not None:
            return a * right
        case "*" if isinstance(left, int) and b is not None:
            return left * b
    return None
