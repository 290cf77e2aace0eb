"""A topology as text: who is linked to whom, how fast, and where each number comes from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from topologies.topology import Fabric, Level, Ramp, Topology, numbers

if TYPE_CHECKING:
    from collections.abc import Callable

PITCH = 4  # columns of a rank
GAP = 3  # columns between two groups
MAX_DRAWN = 32  # ranks; of a greater fabric the first few of each level are drawn
BAR = {Fabric.SWITCH: "━", Fabric.HOST_BRIDGE: "═", Fabric.NETWORK: "╌"}


@dataclass(frozen=True, slots=True)
class _Drawing:
    """Lines of equal width; `stem` is the column where the level above ties on; labels are (line, text)."""

    lines: tuple[str, ...]
    stem: int
    labels: tuple[tuple[int, str], ...]


def show(topology: Topology) -> str:
    """The picture, the ramps, and a table of every number with its provenance."""
    gpu = topology.gpu
    nodes = f", {topology.num_nodes} nodes" if topology.num_nodes > 1 else ""
    return "\n".join(
        [
            f"{topology.name}: {topology.num_ranks} ranks{nodes}, GPU {gpu.name} ({gpu.vendor.value} {gpu.arch})",
            "",
            *_picture(topology),
            "",
            *(_features(level) for level in topology.levels),
            f"gpu: tensor descriptors {_yes(gpu.tensor_descriptors)}, "
            f"stream waits on a word of memory {_yes(gpu.stream_wait_value)}, "
            f"copy kernels beside compute {_yes(gpu.comm_beside_compute)}",
            "",
            _ramp("copy engine, by bytes of one copy", topology.copy_engine, _bytes),
            _ramp("push, by SMs", topology.push_sms, "{:g}".format),
            _ramp("pull, by SMs", topology.pull_sms, "{:g}".format),
            "",
            *_provenance(topology),
        ]
    )


def _picture(topology: Topology) -> list[str]:
    drawn = _drawn_sizes(topology)
    drawing = _draw(topology.levels, drawn, 0)
    labels = dict(drawing.labels)
    heads = ["rank ", *["     "] * (len(drawing.lines) - 1)]
    lines = [
        f"{head}{line}  {labels.get(row, '')}".rstrip()
        for row, (head, line) in enumerate(zip(heads, drawing.lines, strict=True))
    ]
    if math.prod(drawn) < topology.num_ranks:
        lines.append(f"     {math.prod(drawn)} of {topology.num_ranks} ranks are drawn")
    return lines


def _drawn_sizes(topology: Topology) -> tuple[int, ...]:
    sizes = tuple(level.size for level in topology.levels)
    if topology.num_ranks <= MAX_DRAWN:
        return sizes
    inner = MAX_DRAWN if len(sizes) == 1 else MAX_DRAWN // 4
    return (min(sizes[0], inner), *(min(size, 2) for size in sizes[1:]))


def _draw(levels: tuple[Level, ...], drawn: tuple[int, ...], first_rank: int) -> _Drawing:
    if not levels:
        return _Drawing((f"{first_rank:>{PITCH - 1}} ",), PITCH - 2, ())
    *below, level = levels
    stride = math.prod(inner.size for inner in below)
    units = [_draw(tuple(below), drawn[:-1], first_rank + i * stride) for i in range(drawn[-1])]
    gap = " " * GAP if below else ""
    lines = [gap.join(rows) for rows in zip(*(unit.lines for unit in units), strict=True)]
    pitch = len(units[0].lines[0]) + len(gap)
    stems = [i * pitch + unit.stem for i, unit in enumerate(units)]
    wiring = _mesh(stems) if level.fabric is Fabric.FULL_MESH else _bus(stems, BAR[level.fabric])
    label = (len(lines) + 1, _rate(level))
    width = len(lines[0])
    return _Drawing(
        tuple(line.ljust(width) for line in [*lines, *wiring]),
        (stems[0] + stems[-1]) // 2,
        (*units[0].labels, label),
    )


def _bus(stems: list[int], bar: str) -> list[str]:
    """One bar that all units hang on."""
    rods = "".join("│" if column in stems else " " for column in range(stems[-1] + 1))
    joints = "".join("┷" if column in stems else bar for column in range(stems[0], stems[-1] + 1))
    return [rods, " " * stems[0] + joints]


def _mesh(stems: list[int]) -> list[str]:
    """One line for each unit but the last: its links to all units to the right of it."""
    lines = ["".join("│" if column in stems else " " for column in range(stems[-1] + 1))]
    for first in stems[:-1]:
        line = "".join("●" if column in stems else "─" for column in range(first, stems[-1] + 1))
        lines.append(" " * first + line)
    return lines


def _rate(level: Level) -> str:
    head = f"{level.name} ({level.fabric.value}), {level.gb_per_s:g} GB/s"
    match level.fabric:
        case Fabric.SWITCH | Fabric.NETWORK:
            return f"{head} in and out of each rank"
        case Fabric.FULL_MESH:
            return f"{head} each way on each of {level.size * (level.size - 1) // 2} links"
        case Fabric.HOST_BRIDGE:
            return f"{head} shared by all that is behind a bridge"


def _features(level: Level) -> str:
    return (
        f"{level.name}: signal {level.signal_us:g} µs, multicast {_yes(level.multicast)}, "
        f"peer atomics {_yes(level.peer_atomics)}"
    )


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"


def _ramp(title: str, ramp: Ramp, spell: Callable[[float], str]) -> str:
    return f"{title}: " + ", ".join(f"{spell(x)}: {rate:g}" for x, rate in ramp.points) + " GB/s"


def _bytes(count: float) -> str:
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:g} {unit}"
    return f"{count:g} B"


def _provenance(topology: Topology) -> list[str]:
    origins = dict(topology.provenance)
    rows = [(key, _value(value), origins.get(key, "unknown")) for key, value in numbers(topology)]
    wide, high = (max(len(row[column]) for row in rows) for column in (0, 1))
    return [f"{key:<{wide}}  {value:>{high}}  {origin}" for key, value, origin in rows]


def _value(value: float | Ramp) -> str:
    match value:
        case Ramp(points):
            return f"{len(points)} points"
        case int():
            return str(value)
        case _:
            return f"{value:g}"
