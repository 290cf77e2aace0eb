"""On one GPU: what schedules by words cost where links cost nothing. The GPU stands for all ranks: peers do what it does.

    python benchmarks/bench.py gemm_ar --ranks 4 --rows llama3-8b-m64 --variant ll:algorithm=ll --write-plans plans.json
    python benchmarks/mirror.py plans.json --json mirror.json

Rank 0 sends to peer p where the words of peer p arrive here. So the kernels are the emitted ones, and do all that they do
among several GPUs; but a word is there as soon as it is stored. Calls in a CUDA graph, one behind the other, each with other
weights, so that these come from memory; contenders in turns, median over rounds. The matmul alone is timed in the same way.
Left out is what needs more of peers than their words: exchanges with signals, the library's collectives, words of which each
rank adds a share by tiles.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

import lowering
from tilelink.bench.contender import Inputs, matrices
from tilelink.bench.job import read_job
from tilelink.bench.problem import input_shapes, make_inputs
from tilelink.bench.rows import ELEMENT_BYTES, Operator, Row
from tilelink.ir.calls import LibraryCollective
from tilelink.ir.nodes import Kernel
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import SumWords
from tilelink.runtime.load import fabric_class, load_source, operator_class

_COLD_BYTES = 500 << 20  # of different inputs in one graph: ten times what the L2 holds
_MOST_SETS = 24
_ROUNDS, _REPLAYS = 9, 4


@dataclass(frozen=True)
class OneGpu:
    """A process group of one GPU that stands for `ranks`."""

    ranks: int

    def rank(self) -> int:
        return 0

    def size(self) -> int:
        return self.ranks


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
        isinstance(step, SumWords) and (step.cut or step.shots > 1)
        for kernel in schedule.kernels()
        if kernel.compute is not None
        for step in kernel.compute.body
    )
    comm = any(isinstance(launch, Kernel) and launch.comm for launch in schedule.launches)
    library = any(isinstance(launch, LibraryCollective) for launch in schedule.launches)
    return not (schedule.exchanges or shares or comm or library)


def operator_on_one(source: str, name: str) -> Any:
    """The operator of an emitted file on a fabric of one GPU."""
    module = load_source(source, name)
    build: Any = operator_class(module)
    base: Any = fabric_class(module)

    class Fabric(base):
        def agree(self, schedule: str) -> None:
            pass

        def symmetric(self, shape: tuple[int, ...], dtype: torch.dtype) -> Mirrored:
            return Mirrored(shape, dtype, self.device, build.NUM_RANKS)

        def barrier(self) -> None:
            torch.cuda.synchronize()

    return build(Fabric(OneGpu(build.NUM_RANKS)))


def captured(call: Callable[..., Any], sets: list[Inputs]) -> tuple[torch.cuda.CUDAGraph, list[Any]]:
    """A graph of a call for each set of inputs, and what it makes."""
    for inputs in sets:
        call(*inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = [call(*inputs) for inputs in sets]
    return graph, made


def time_us(graph: torch.cuda.CUDAGraph, calls: int) -> float:
    """Of one call, behind one replay that nobody times."""
    graph.replay()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(_REPLAYS):
        graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e3 / _REPLAYS / calls


def measure(row: Row, schedules: dict[str, Schedule]) -> dict[str, Any]:
    """One row: a time for each schedule, whether replays make what eager calls make, and the time of the matmul alone, if the
    row has one matmul."""
    operators = {
        label: operator_on_one(lowering.emit(schedule), schedule.name) for label, schedule in schedules.items()
    }
    ranks = next(iter(operators.values())).NUM_RANKS
    size = sum(math.prod(shape) for shape in input_shapes(row, ranks)) * ELEMENT_BYTES[row.dtype]
    count = max(2, min(_MOST_SETS, _COLD_BYTES // size + 1))
    sets = [make_inputs(row, 0, ranks, seed, torch.device("cuda")) for seed in range(count)]
    graphs, held, equal = dict[str, torch.cuda.CUDAGraph](), [], True
    for label, operator in operators.items():
        eager = [operator(*some) for some in sets]
        graphs[label], made = captured(operator, sets)
        graphs[label].replay()
        equal = equal and all(torch.equal(a, b) for a, b in zip(eager, made, strict=True))
        held.append(made)
    if row.operator is not Operator.MLP:
        gathered = ranks if row.operator is Operator.AG_GEMM else 1
        operands = [(torch.cat([x] * gathered), *matrices(row, (w,))) for x, w in sets]
        graphs["matmul"], made = captured(torch.mm, operands)
        held += [operands, made]  # graphs read and write them
    samples: dict[str, list[float]] = {label: [] for label in graphs}
    for _ in range(_ROUNDS):
        for label, graph in graphs.items():
            samples[label].append(time_us(graph, count))
    return {
        "row": row.key,
        "num_ranks": ranks,
        "us": {label: round(statistics.median(some), 2) for label, some in samples.items()},
        "spread_us": {label: round(max(some) - min(some), 2) for label, some in samples.items()},
        "replays_equal_eager_calls": equal,
        "choices": {label: dict(schedule.choices) for label, schedule in schedules.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plans", type=Path, nargs="+")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--commit", default="unknown")
    arguments = parser.parse_args()
    torch.cuda.set_device(0)
    rows = []
    for plans in arguments.plans:
        for planned in read_job(plans).rows:
            schedules = {
                c.label: c.schedule for c in planned.candidates if c.schedule is not None and mirrors(c.schedule)
            }
            if schedules:
                rows.append(measure(planned.row, schedules))
                print(rows[-1]["row"], rows[-1]["num_ranks"], rows[-1]["us"], flush=True)
                torch.cuda.empty_cache()
    if arguments.json is not None:
        found = {"machine": torch.cuda.get_device_name(), "commit": arguments.commit, "rows": rows}
        arguments.json.with_suffix(".part").write_text(json.dumps(found, indent=1))
        arguments.json.with_suffix(".part").rename(arguments.json)


if __name__ == "__main__":
    main()
