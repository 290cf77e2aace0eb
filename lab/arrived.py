"""On one GPU: what the kernels of a schedule take where nothing is waited for, since everything has arrived.

    python benchmarks/bench.py gemm_rs --ranks 4 --rows llama-7b --variant late:count=late --write-plans plans.json
    python lab/arrived.py plans.json --json arrived.json

Signals are raised once, to numbers that no call reaches; parts of peers are random; copies move nothing, and stores to peers
stay here. What is left is what tiles, counts, sums and the end of a call cost: the rest of what an operator takes among several
GPUs is links and waits. An edited file takes part as well (`bench.py --file`), so that one sees what a line costs.
Calls in a CUDA graph, contenders in a new order each round, each behind 40 ms of the matmul alone (of the first contender, if
the row has several matmuls), median over rounds.
Left out is what needs more of peers than signals: words, places of pools, programs that copy, the library's collectives.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

import lowering
from lab.one_gpu import Results, command_line, contenders, operator_on_one, results, run, time_us
from tilelink.bench.plans import Candidate, PlannedRow
from tilelink.ir.calls import Collective
from tilelink.ir.movers import CommSms, Transfer
from tilelink.ir.nodes import Kind, TellPlace
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import SumPackets

_ROUNDS = 9
_LOAD_US, _SAMPLE_US = 40e3, 4e3
_RAISED = 1 << 30  # later than the call of any signal


class Arrived:
    """Memory of this rank, and of its peers: their signals lie behind those of this rank, their tensors are this one."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, ranks: int) -> None:
        size, step = math.prod(shape), 0 if dtype.is_floating_point else shape[-1]
        if dtype.is_floating_point:
            self.memory = torch.randn(size, device=device).to(dtype)
        else:
            self.memory = torch.full((size + ranks * step,), _RAISED, dtype=dtype, device=device)
        self.local = self.memory[:size].view(shape)
        self.peers = (self.local,) * ranks
        places = [self.memory.data_ptr() + peer * step * self.memory.element_size() for peer in range(ranks)]
        self.pointers = torch.tensor(places, dtype=torch.int64, device=device)


def resting(base: type[Any]) -> type[Any]:
    """Streams whose copies move nothing, and which wait for no word."""

    class Resting(base):
        def copy(self, dst: torch.Tensor, src: torch.Tensor) -> None:
            pass

        def wait_at_least(self, word: torch.Tensor, value: int) -> None:
            pass

    return Resting


def arrives(schedule: Schedule) -> bool:
    """Whether signals are all that a call waits for."""
    steps = [step for kernel in schedule.kernels() if kernel.compute is not None for step in kernel.compute.body]
    asks = any(isinstance(launch, Collective | TellPlace) for launch in schedule.launches)
    pushed = all(x.transfer is Transfer.PUSH and x.kind is not Kind.SHIFT for x in schedule.exchanges)
    by_programs = any(isinstance(x.mover, CommSms) for x in schedule.exchanges)
    return pushed and not (asks or by_programs or any(isinstance(step, SumPackets) for step in steps))


def source_of(candidate: Candidate) -> str:
    """What runs of a candidate here: an emitted file, or nothing."""
    if candidate.schedule is None:
        return candidate.source
    return lowering.emit(candidate.schedule) if arrives(candidate.schedule) else ""


def measure(planned: PlannedRow) -> Results | None:
    """One row, or nothing if none of its schedules runs here: a time for each schedule and for the matmul alone, if the row has
    one matmul, and whether replays make what eager calls make."""
    sources = {c.label: source for c in planned.candidates if (source := source_of(c))}
    if not sources:
        return None
    operators = {
        label: operator_on_one(text, planned.row.operator.value, Arrived, resting) for label, text in sources.items()
    }
    return in_turns(planned, operators)


def in_turns(
    planned: PlannedRow, operators: dict[str, Any], slowest: Callable[[float], float] = lambda us: us
) -> Results:
    """Time operators under load, in a new order each round; `slowest` makes one time of those of all GPUs."""
    timed = contenders(planned.row, operators)
    load = timed.alone or next(iter(timed.graphs.values()))
    one, order = slowest(time_us(load, 1)), random.Random(planned.row.key)
    samples: dict[str, list[float]] = {label: [] for label in timed.graphs}
    for _ in range(_ROUNDS):
        for label in order.sample(list(timed.graphs), len(timed.graphs)):
            for _ in range(math.ceil(_LOAD_US / one)):
                load.replay()
            samples[label].append(slowest(time_us(timed.graphs[label], math.ceil(_SAMPLE_US / one))))
    return results(planned, timed, samples)


if __name__ == "__main__":
    run(measure, command_line(__doc__).parse_args())
