"""Packets as they lie in memory: 64 bits each, which hold so many elements of a row of its buffer.

out_packets: 2 x 4 x 16 x 4096 bf16, Lamport     2 x 4 x 16 x 1024 packets
v -> out_packets[call % 2, rank, m : +16, n : +64]   v -> out_packets[call % 2, rank, m : +16, n // 4 : +16]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import gcd

from lowering.steps.dtypes import BYTES, element
from lowering.steps.errors import NotPrinted
from tilelink.ir.enums import Protocol
from tilelink.schedule.edges import divisor, divisors
from tilelink.schedule.index import Number, made
from tilelink.schedule.memory import Buffer, Region
from tilelink.schedule.printing import in_a_line
from tilelink.schedule.roles import Phase, Role, Schedule
from tilelink.schedule.steps import For, If, Load, Move, Step, Store
from tilelink.schedule.walk import with_phases


def elements_in_packets(schedule: Schedule) -> dict[str, int]:
    """How many elements a packet of each buffer holds: as many as fit, and whole packets make a row."""
    shapes = schedule.shapes
    return {
        one.name: gcd(one.protocol.data_bytes // BYTES[element(one)], shapes[one.name][-1])
        for one in schedule.buffers
        if one.protocol is not Protocol.SIMPLE
    }


def in_packets(schedule: Schedule) -> Schedule:
    """`schedule`, in which buffers of packets have packets along their last dimension, and so have regions of them. Raises
    NotPrinted for a region that begins or ends inside of a packet."""
    packed = _Packed(schedule, elements_in_packets(schedule))
    if all(count == 1 for count in packed.elements.values()):
        return schedule
    return replace(with_phases(schedule, packed.phase), buffers=tuple(map(packed.buffer, schedule.buffers)))


class _Packed:
    def __init__(self, schedule: Schedule, elements: Mapping[str, int]) -> None:
        self.schedule, self.elements = schedule, elements

    def buffer(self, buffer: Buffer) -> Buffer:
        count = self.elements.get(buffer.name, 1)
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
