"""The design review: a planned schedule as the code of its steps, between what it was planned for and how long it should take."""

from __future__ import annotations

import math

from tilelink.elaborate.schedule import elaborated
from tilelink.ir.dtype import DTYPE_BYTES
from tilelink.ir.enums import PACKET_BYTES, Protocol
from tilelink.ir.schedule import Schedule as Planned
from tilelink.schedule.instance import instantiated
from tilelink.schedule.memory import Buffer, Memory
from tilelink.schedule.printing import legend_lines, printed_lines
from tilelink.schedule.roles import Schedule

_BYTES = DTYPE_BYTES | {"int64": 8}  # which place of a pool


def landing_bytes(steps: Schedule) -> int:
    """Of the symmetric memory of a rank: where data of peers land, and what peers read. A pool counts once; dims have numbers."""
    return sum(buffer_bytes(steps, one) for one in steps.buffers if one.memory is Memory.SYMMETRIC)


def buffer_bytes(steps: Schedule, buffer: Buffer) -> int:
    """Of a buffer on one rank, packets with what they are wrapped in."""
    return math.prod(steps.shapes[buffer.name]) * _BYTES[buffer.dtype] * _packets_of(buffer)


def _packets_of(buffer: Buffer) -> int:
    """How much more packets take than the data in them."""
    return PACKET_BYTES // buffer.protocol.data_bytes if buffer.protocol is not Protocol.SIMPLE else 1


def sized(count: int) -> str:
    """Bytes as people read them."""
    unit, name = next(
        ((unit, name) for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "KB")) if count >= unit), (1, "bytes")
    )
    return f"{count / unit:.{0 if unit == 1 else 1}f} {name}"


def design_review(planned: Planned, legend: bool = False) -> str:
    """What one rank does, in order, as `tilelink plan` prints it. `legend`: and what the signs mean."""
    machine, spec = planned.machine, planned.spec
    sizes = " ".join(f"{name}={size}" for name, size in spec.sizes)
    lines = [f"schedule {planned.name} on {machine.topology} x{machine.num_ranks}, {sizes} {spec.inputs[0].dtype}"]
    steps = instantiated(elaborated(planned))
    lines += printed_lines(steps)
    if lands := landing_bytes(steps):
        lines.append(f"  {sized(lands)} of symmetric memory a rank")
    if planned.predicted_us:
        lines.append(f"  predicted {planned.predicted_us:.1f} us")
    return "\n".join([*lines, *(["", *legend_lines()] if legend else [])])
