"""Packets as they lie in memory: 64 bits each, which hold so many elements of a row of its buffer.

out_packets: 2 x 4 x 16 x 4096 bf16, Lamport     2 x 4 x 16 x 1024 packets
v -> out_packets[call % 2, rank, m : +16, n : +64]   v -> out_packets[call % 2, rank, m : +16, n // 4 : +16]

A line is 16 of them, the last of which holds no elements. Each row has whole ones.

out_packets: 2 x 4 x 16 x 4096 bf16, LL128       2 x 4 x 16 x 1104 packets
v -> out_packets[call % 2, rank, m : +16, n : +480]  v -> out_packets[call % 2, rank, m : +16, n // 60 * 16 : +128]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import gcd

from lowering.steps.dtypes import BYTES, element
from lowering.steps.errors import NotPrinted
from tilelink.ir.enums import LINE_BYTES, PACKET_BYTES, Protocol
from tilelink.schedule.edges import divisor, divisors
from tilelink.schedule.index import Index, Number, least, made
from tilelink.schedule.known import Known
from tilelink.schedule.memory import Buffer, Dim, Region
from tilelink.schedule.printing import in_a_line
from tilelink.schedule.roles import Phase, Role, Schedule
from tilelink.schedule.steps import For, If, Load, Move, Step, Store
from tilelink.schedule.walk import steps_in, with_phases


def elements_in_packets(schedule: Schedule) -> dict[str, int]:
    """How many elements a packet of each buffer holds: as many as fit, and whole packets make a row. A word of a line is one."""
    return {one.name: _in_packet(schedule, one) for one in schedule.buffers if one.protocol is not Protocol.SIMPLE}


def _in_packet(schedule: Schedule, buffer: Buffer) -> int:
    size = BYTES[element(buffer)]
    if has_lines(buffer):
        return PACKET_BYTES // size
    return gcd(buffer.protocol.data_bytes // size, schedule.shapes[buffer.name][-1])


def elements_in_line(schedule: Schedule, phase: Phase) -> int:
    """How many a line has of the tiles of the phase, if these go through lines; else 0."""
    each = {one.name: _line(schedule, one) for one in schedule.buffers if has_lines(one)}
    moved = (step.region.buffer for step in steps_in(phase.body) if isinstance(step, Load | Store))
    return next((each[name] for name in moved if name in each), 0)


def has_lines(buffer: Buffer) -> bool:
    """Whether its packets are lines."""
    return buffer.protocol is Protocol.LL128


LINE_WORDS = Known(LINE_BYTES // PACKET_BYTES, Index("LINE_WORDS"))


def _line(schedule: Schedule, buffer: Buffer) -> Known:
    """Elements in a line."""
    return Known((int(LINE_WORDS) - 1) * _in_packet(schedule, buffer), Index(f"LINE_OF_{element(buffer)}".upper()))


def _line_dims(schedule: Schedule) -> tuple[Dim, ...]:
    """What constants of lines are called."""
    kinds = {element(one): _line(schedule, one) for one in schedule.buffers if has_lines(one)}
    words = Dim(LINE_WORDS.index.op, int(LINE_WORDS), "words of a line, the last of which holds no elements")
    each = (
        Dim(line.index.op, (LINE_WORDS.index - 1) * (line // (int(LINE_WORDS) - 1)), f"elements of {kind} in a line")
        for kind, line in kinds.items()
    )
    return (words, *each) if kinds else ()


def in_packets(schedule: Schedule) -> Schedule:
    """`schedule`, in which buffers of packets have packets along their last dimension, and so have regions of them. Raises
    NotPrinted for a region that begins or ends inside of a packet."""
    packed = _Packed(schedule, elements_in_packets(schedule))
    if all(count == 1 for count in packed.elements.values()) and not packed.lines:
        return schedule
    made = with_phases(schedule, packed.phase)
    dims = (*_line_dims(schedule), *(packed.dim(one) for one in schedule.dims))
    return replace(made, buffers=tuple(map(packed.buffer, schedule.buffers)), dims=dims)


class _Packed:
    def __init__(self, schedule: Schedule, elements: Mapping[str, int]) -> None:
        self.schedule, self.elements = schedule, elements
        self.blocks: dict[str, Index] = {}  # sizes of blocks of lines, and what divides them
        self.lines = frozenset(one.name for one in schedule.buffers if has_lines(one))

    def dim(self, dim: Dim) -> Dim:
        """Edited blocks have whole lines, too."""
        more = (self.blocks[dim.name],) if dim.chosen and dim.name in self.blocks else ()
        return replace(dim, multiples=(*dim.multiples, *more))

    def buffer(self, buffer: Buffer) -> Buffer:
        count = self.elements.get(buffer.name, 1)
        if buffer.name in self.lines:
            lines = -(-self.schedule.shapes[buffer.name][-1] // _line(self.schedule, buffer))
            return replace(buffer, shape=(*buffer.shape[:-1], lines * LINE_WORDS))
        return replace(buffer, shape=(*buffer.shape[:-1], self.schedule.shapes[buffer.name][-1] // count))

    def phase(self, role: Role, phase: Phase) -> Phase:
        return replace(phase, body=self._body(role, phase.body, divisors(phase.let)))

    def _body(self, role: Role, body: tuple[Step, ...], names: Mapping[str, int]) -> tuple[Step, ...]:
        return tuple(self._step(role, step, names) for step in body)

    def _step(self, role: Role, step: Step, names: Mapping[str, int]) -> Step:
        match step:
            case For():
                return replace(step, body=self._body(role, step.body, divisors(step.let, names)))
            case If():
                others = self._body(role, step.others, names)
                return replace(step, body=self._body(role, step.body, names), others=others)
            case Load() | Store():
                return replace(step, region=self._region(role, step, step.region, names))
            case Move():
                source = tuple(self._region(role, step, one, names) for one in step.source)
                target = tuple(self._region(role, step, one, names) for one in step.target)
                return replace(step, source=source, target=target)
        return step

    def _region(self, role: Role, step: Step, region: Region, names: Mapping[str, int]) -> Region:
        count = self.elements.get(region.buffer, 1)
        if region.buffer in self.lines:
            return self._in_lines(role, step, region, names)
        start, extent = region.start[-1], region.extent[-1]
        if divisor(start, names) % count or divisor(extent, names) % count:
            raise NotPrinted(
                what=f"a region that begins or ends inside of a packet of {count} elements",
                role=role.name,
                step=in_a_line(step),
                legal=f"multiples of {count} elements",
            )
        return replace(
            region,
            start=(*region.start[:-1], _divided(start, count, names)),
            extent=(*region.extent[:-1], _divided(extent, count, names)),
        )

    def _in_lines(self, role: Role, step: Step, region: Region, names: Mapping[str, int]) -> Region:
        """The lines that a region begins, of which the last one need not be full."""
        each = _line(self.schedule, next(one for one in self.schedule.buffers if one.name == region.buffer))
        start, extent = region.start[-1], region.extent[-1]
        if divisor(start, names) % each:
            raise NotPrinted(
                what=f"a region that begins inside of a line of {each} elements",
                role=role.name,
                step=in_a_line(step),
                legal=f"multiples of {each} elements",
            )
        for one in extent.args if isinstance(extent, Index) else (extent,):
            if isinstance(one, Known) and one.index.is_name:
                self.blocks[one.index.op] = each.index
        first = _divided(start, each, names) * LINE_WORDS
        return replace(
            region,
            start=(*region.start[:-1], first),
            extent=(*region.extent[:-1], _words(extent, each, names)),
        )


def _words(extent: Number, each: int, names: Mapping[str, int]) -> Number:
    """Of the lines that so many elements take, `each` in one."""
    if isinstance(extent, Index) and extent.op == "min":
        return least(*(_words(one, each, names) for one in extent.args))
    if isinstance(extent, Index) and extent.op == "-" and divisor(extent.args[1], names) % each == 0:
        return _words(extent.args[0], each, names) - _divided(extent.args[1], each, names) * LINE_WORDS
    whole = divisor(extent, names) % each == 0
    return (_divided(extent, each, names) if whole else (extent + (each - 1)) // each) * LINE_WORDS


def _divided(index: Number, by: int, names: Mapping[str, int]) -> Number:
    """`index // by`, where `by` divides it: down to the terms and factors that it divides."""
    if by == 1 or isinstance(index, int):
        return index // by
    if index.op in ("+", "-", "min", "max") and all(divisor(one, names) % by == 0 for one in index.args):
        return made(index.op, *(_divided(one, by, names) for one in index.args))
    if index.op == "*":
        left, right = index.args
        for one, other in ((right, left), (left, right)):
            if divisor(one, names) % by == 0:
                return other * _divided(one, by, names)
    return index // by
