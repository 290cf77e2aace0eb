"""Emitted operators on a GPU that stands for a rank among several: their fabric there, and how they are timed."""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tilelink.bench.contender import matrices
from tilelink.bench.job import read_job
from tilelink.bench.plans import PlannedRow
from tilelink.bench.problem import input_shapes, make_inputs
from tilelink.bench.rows import Operator, Row
from tilelink.ir.dtype import DTYPE_BYTES
from tilelink.measuring.contender import Inputs
from tilelink.runtime.load import fabric_class, load_source, operator_class

_COLD_BYTES = 500 << 20  # of different inputs in one graph: ten times what the L2 holds
_MOST_SETS = 24

Symmetric = Callable[[tuple[int, ...], torch.dtype, torch.device, int], Any]  # shape, type, device, number of ranks
Results = dict[str, Any]  # of one row


@dataclass(frozen=True)
class OneGpu:
    """A process group of one GPU that stands for `ranks`."""

    ranks: int

    def rank(self) -> int:
        return 0

    def size(self) -> int:
        return self.ranks


def operator_on_one(
    source: str,
    name: str,
    symmetric: Symmetric,
    stream: Callable[[type[Any]], type[Any]] = lambda base: base,
    meet: Callable[[], object] = torch.cuda.synchronize,
) -> Any:
    """The operator of an emitted file as rank 0, with such memory; `stream` makes a class of streams from that of the file, and
    at `meet` all that runs has ended."""
    module = load_source(source, name)
    build: Any = operator_class(module)
    base: Any = fabric_class(module)

    class Fabric(base):
        stream_type = stream(base.stream_type)

        def __init__(self, group: OneGpu) -> None:
            super().__init__(group)
            self._main = self.stream_type(torch.cuda.current_stream(), self)

        def main(self) -> Any:
            current = torch.cuda.current_stream()
            if self._main.handle != current.cuda_stream:
                self._main = self.stream_type(current, self)
            return self._main

        def agree(self, schedule: str) -> None:
            pass

        def symmetric(self, shape: tuple[int, ...], dtype: torch.dtype) -> Any:
            return symmetric(shape, dtype, self.device, build.NUM_RANKS)

        def barrier(self) -> None:
            meet()

    return build(Fabric(OneGpu(build.NUM_RANKS)))


def cold_inputs(row: Row, ranks: int) -> list[Inputs]:
    """As many sets of inputs of rank 0 as it takes for weights to come from memory in each call."""
    size = sum(math.prod(shape) for shape in input_shapes(row, ranks)) * DTYPE_BYTES[row.dtype]
    count = max(2, min(_MOST_SETS, _COLD_BYTES // size + 1))
    return [make_inputs(row, 0, ranks, seed, torch.device("cuda")) for seed in range(count)]


def _operands(row: Row, ranks: int, sets: list[Inputs]) -> list[Inputs]:
    """What the one matmul of a row multiplies on a rank, once its rows have been gathered."""
    gathered = ranks if row.operator is Operator.AG_GEMM else 1
    return [(torch.cat([x] * gathered), *matrices(row, (w,))) for x, w in sets]


def captured(call: Callable[..., Any], sets: list[Inputs]) -> tuple[torch.cuda.CUDAGraph, list[Any]]:
    """A graph of a call for each set of inputs, and what it makes."""
    for inputs in sets:
        call(*inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = [call(*inputs) for inputs in sets]
    return graph, made


@dataclass(frozen=True)
class Contenders:
    """Graphs of calls with each set of inputs in turn, with the matmul `alone` if the row has one matmul, and whether replays
    made what eager calls made. `held`: what graphs read and write."""

    ranks: int
    calls: int  # in a graph
    graphs: dict[str, torch.cuda.CUDAGraph]
    alone: torch.cuda.CUDAGraph | None
    equal: bool
    held: list[Any]


def contenders(row: Row, operators: dict[str, Any]) -> Contenders:
    ranks = next(iter(operators.values())).NUM_RANKS
    sets = cold_inputs(row, ranks)
    graphs, alone, held, equal = dict[str, torch.cuda.CUDAGraph](), None, [], True
    for label, operator in operators.items():
        eager = [operator(*some).clone() for some in sets]
        graphs[label], made = captured(operator, sets)
        graphs[label].replay()
        last = {
            there.data_ptr(): (here, there) for here, there in zip(eager, made, strict=True)
        }  # some share their place
        equal = equal and all(torch.equal(here, there) for here, there in last.values())
        held.append(made)
    if row.operator is not Operator.MLP:
        multiplied = _operands(row, ranks, sets)
        alone, made = captured(torch.mm, multiplied)
        graphs["matmul"] = alone
        held += [multiplied, made]
    return Contenders(ranks, len(sets), graphs, alone, equal, held)


def time_us(graph: torch.cuda.CUDAGraph, replays: int) -> float:
    """Of one replay, behind one that nobody times."""
    graph.replay()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(replays):
        graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e3 / replays


def results(planned: PlannedRow, timed: Contenders, samples: dict[str, list[float]]) -> Results:
    """`samples`: us of one replay, of each contender."""
    return {
        "row": planned.row.key,
        "num_ranks": timed.ranks,
        "us": {label: round(statistics.median(some) / timed.calls, 2) for label, some in samples.items()},
        "spread_us": {label: round((max(some) - min(some)) / timed.calls, 2) for label, some in samples.items()},
        "replays_equal_eager_calls": timed.equal,
        "choices": {c.label: dict(c.schedule.choices) for c in planned.candidates if c.schedule and c.label in samples},
    }


def command_line(description: str) -> argparse.ArgumentParser:
    """What all of these benchmarks take; `description` begins with what they measure."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("plans", type=Path, nargs="+")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--commit", default="unknown")
    return parser


def run(
    measure: Callable[[PlannedRow], Results | None],
    arguments: argparse.Namespace,
    facts: Mapping[str, float] | None = None,
    writes: bool = True,
) -> None:
    """Measure the rows of files of plans, of which some may have nothing that runs here. After each of them all so far are
    written, with the `facts`, unless another process does."""
    rows: list[Results] = []
    for planned in (planned for plans in arguments.plans for planned in read_job(plans).rows):
        found = measure(planned)
        if found is not None and writes:
            rows.append(found)
            print(found["row"], found["num_ranks"], found["us"], flush=True)
            if arguments.json is not None:
                about = {"machine": torch.cuda.get_device_name(), "commit": arguments.commit, **(facts or {})}
                arguments.json.with_suffix(".part").write_text(json.dumps({**about, "rows": rows}, indent=1))
                arguments.json.with_suffix(".part").rename(arguments.json)
        torch.cuda.empty_cache()
