"""All measurements of one machine, in order, and the descriptor that follows from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tilelink.calibrating import measure
from tilelink.calibrating.crossing import crossings
from tilelink.calibrating.finding import Finding, table, with_findings
from tilelink.calibrating.measure import Work
from tilelink.calibrating.start import Seen, Start, short
from tilelink.measuring.device import Device
from topologies.descriptor import Descriptor
from topologies.topology import Topology
from topologies.written import written

Note = Callable[[str], object]  # hears of each step


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What a calibration gives: the descriptor, its file, and measured numbers beside those that it began with."""

    topology: Topology
    text: str
    table: str


def copy_sizes(topology: Topology) -> list[int]:
    """Bytes of the copies that the descriptor's ramp has, whole words."""
    return sorted({max(int(x) // 4 * 4, 4) for x, _ in topology.copy_engine.points})


def measured(device: Device, work: Work, start: Start, note: Note) -> list[Finding]:
    """Every number that is measured. All ranks call it, in one order.

    Raises CannotCalibrate, WordsLost, BytesDiffer, GemmBeatsPeak on all ranks alike.
    """
    cut = start.cut(device.num_ranks)
    sizes, nearest, *farther = copy_sizes(cut), *crossings(cut)
    note("copying by copy engines")
    found = measure.copy_engine(device, work, nearest, sizes)
    for ramp, push in ((cut.push_sms, True), (cut.pull_sms, False)):
        note(f"copying by {'stores to' if push else 'loads from'} peers")
        counts = measure.sm_counts(ramp, start.shipped_sms, cut.gpu.num_sms)
        found.append(measure.sm_copies(device, work, nearest, counts, push=push))
    for place, crossing in enumerate((nearest, *farther)):
        note(f"crossing level {crossing.level.name}")
        if crossing is not nearest:
            found.append(measure.level_rate(device, work, crossing, sizes[-1]))
        found.append(measure.signal(device, work, crossing, place))
    note("copying inside of a GPU")
    found.append(measure.memory(device, work))
    note("launching kernels")
    found.append(measure.launches(device, work))
    note("multiplying")
    found.append(measure.gemm(device, work, cut))
    return found


def calibrated(start: Start, findings: list[Finding], seen: Seen, num_ranks: int, month: str) -> Calibrated:
    """The descriptor `start` with what was found; `month`: "2026-11"."""
    shipped = start.descriptor.topology
    where = f"{month} {num_ranks}x{short(seen.name)}"
    topology = with_findings(shipped, findings, where, start.told, start.another_gpu)
    topology = replace(topology, name=f"{shipped.name}-calibrated")
    comments = [
        f"Measured on {num_ranks} x {seen.name} by `tilelink topo detect --calibrate`, which began with {shipped.name}.",
        "Each number has its origin below; those that are kept were not measured.",
    ]
    text = written(Descriptor(topology, start.descriptor.device_names), comments)
    return Calibrated(topology, text, table(shipped, findings))
