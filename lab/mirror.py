"""On one GPU: what schedules by words cost where links cost nothing. The GPU stands for all ranks: peers do what it does.

    python benchmarks/bench.py gemm_ar --ranks 4 --rows llama3-8b-m64 --variant ll:algorithm=ll --write-plans plans.json
    python lab/mirror.py plans.json --json mirror.json

Rank 0 sends to peer p where the words of peer p arrive here. So the kernels are the emitted ones, and do all that they do
among several GPUs; but a word is there as soon as it is stored. Calls in a CUDA graph, one behind the other, each with other
weights, so that these come from memory; contenders in turns, median over rounds. The matmul alone is timed in the same way.
Left out is what needs more of peers than their words: exchanges with signals, the library's collectives, words of which each
rank adds a share by tiles.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

import lowering
from lab.one_gpu import Results, command_line, contenders, operator_on_one, results, run, time_us
from tilelink.bench.plans import PlannedRow
from tilelink.ir.calls import LibraryCollective
from tilelink.ir.nodes import Kernel
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import SumPackets

_ROUNDS, _REPLAYS = 9, 4


class Mirrored:
    """Words here; the place of rank 0 at peer p is that of rank p here."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, ranks: int) -> None:
        *_, places = shape
        self.memory = torch.zeros(math.prod(shape) + ranks * places, dtype=dtype, device=device)
        self.local = self.memory[: math.prod(shape)].view(shape)
        first, step = self.memory.data_ptr(), places * self.memory.element_size()
        self.pointers = torch.tensor([first + peer * step for peer in range(ranks)], dtype=torch.int64, device=device)


def mirrors(schedule: Schedule) -> bool:
    """Whether a call waits for nothing but words at places that do not depend on who adds what."""
    shares = any(
        isinstance(step, SumPackets) and (step.cut or step.shots > 1)
        for kernel in schedule.kernels()
        if kernel.compute is not None
        for step in kernel.compute.body
    )
    comm = any(isinstance(launch, Kernel) and launch.comm for launch in schedule.launches)
    library = any(isinstance(launch, LibraryCollective) for launch in schedule.launches)
    return not (schedule.exchanges or shares or comm or library)


def measure(planned: PlannedRow) -> Results | None:
    """One row, or nothing if none of its schedules runs here: a time for each schedule, whether replays make what eager calls
    make, and the time of the matmul alone, if the row has one matmul."""
    schedules = {c.label: c.schedule for c in planned.candidates if c.schedule is not None and mirrors(c.schedule)}
    if not schedules:
        return None
    operators = {
        label: operator_on_one(lowering.emit(schedule), schedule.name, Mirrored)
        for label, schedule in schedules.items()
    }
    timed = contenders(planned.row, operators)
    samples: dict[str, list[float]] = {label: [] for label in timed.graphs}
    for _ in range(_ROUNDS):
        for label, graph in timed.graphs.items():
            samples[label].append(time_us(graph, _REPLAYS))
    return results(planned, timed, samples)


if __name__ == "__main__":
    run(measure, command_line(__doc__).parse_args())
