"""On GPUs: QKV projections behind an all_gather, whose three matmuls have one launch, or one each.

    torchrun --nproc-per-node 2 lab/one_launch.py --json one_launch.json

Contenders are timed in turns, as CUDA graphs of several calls: `apart`, tile loops with a launch each; `one launch`, as planned;
`one matmul`, of weights that lie side by side; and NCCL with three matmuls of cuBLAS, or one. Every element is compared.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist

import lowering
import topologies
from benchmarks.wanted import problem
from lab.written import leave, write
from lowering.selfcheck.compare import distance
from tilelink.bench.machine import topology_of_gpus
from tilelink.bench.operators import declaration
from tilelink.bench.rows import Operator
from tilelink.declaration import Overlap, overlap
from tilelink.ir.functions import all_gather, matmul
from tilelink.ir.placement import Shard
from tilelink.ir.schedule import Schedule
from tilelink.ir.tensor import Tensor, dims
from tilelink.planner.structure import Structure
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.ranks import join

_SIZES = ((8192, 4096, 4096, 1024), (4096, 8192, 8192, 1024), (2048, 4096, 4096, 1024), (1024, 5120, 5120, 1024))
_CALLS, _ROUNDS = 10, 15
M, K, Q, V = dims("M K Q V")
_WEIGHT = Annotated[Tensor, (K, V), Shard(1)]


@overlap
def qkv(
    x: Annotated[Tensor, (M, K), Shard(0)], wq: Annotated[Tensor, (K, Q), Shard(1)], wk: _WEIGHT, wv: _WEIGHT
) -> tuple[Tensor, Tensor, Tensor]:
    x_full = all_gather(x, dim=0)
    return matmul(x_full, wq), matmul(x_full, wk), matmul(x_full, wv)


def planned(operator: Overlap, sizes: dict[str, int], *, together: bool) -> Schedule:
    """By tile loops; with a launch for each matmul unless `together`."""
    goes_on = Structure.goes_on
    if not together:
        Structure.goes_on = lambda self, index: False  # type: ignore[method-assign]
    try:
        machine = topologies.load(topology_of_gpus(), dist.get_world_size())
        return operator.plan_for(machine, sizes, "bf16", {"compute": "triton"}, log=lambda line: None)
    finally:
        Structure.goes_on = goes_on  # type: ignore[method-assign]


def contender(schedule: Schedule) -> tuple[Callable[[], object], bool, list[torch.Tensor]]:
    """A call of the schedule's file, whether it gives what is wanted, and its inputs."""
    module = load_source(lowering.emit(schedule), schedule.name)
    build: Any = operator_class(module)
    op = build(module.SymmetricMemoryFabric())
    inputs, wanted = problem(module, op.fabric, 0)
    right = True
    for _ in range(3):
        found = op(*inputs)
        found = found if isinstance(found, tuple) else (found,)
        near = zip(found, wanted, strict=True)
        right &= all(not bool((distance(one, other) > 1).any()) for one, other in near)
    return lambda: op(*inputs), right, inputs


def graph_of(call: Callable[[], object]) -> torch.cuda.CUDAGraph:
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(_CALLS):
            call()
    return graph


def timed(
    graphs: dict[str, torch.cuda.CUDAGraph], before: Callable[[int], object] = lambda number: None
) -> dict[str, float]:
    """Microseconds of a call of each, in turns: the median of the slowest rank. `before` is called before each replay, outside
    of its time, with the number of the turn."""
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for number in range(_ROUNDS + 2):
        for name, graph in graphs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            before(number)
            dist.barrier()
            torch.cuda.synchronize()
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            if number > 1:
                times[name].append(begin.elapsed_time(end) * 1e3 / _CALLS)
    found = torch.tensor([statistics.median(times[name]) for name in graphs], device="cuda")
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return {name: round(us, 1) for name, us in zip(graphs, found.tolist(), strict=True)}


def measure(m: int, k: int, q: int, v: int) -> dict[str, Any]:
    ranks, sizes = dist.get_world_size(), {"M": m, "K": k, "Q": q, "V": v}
    schedules = {
        "apart": planned(qkv, sizes, together=False),
        "one launch": planned(qkv, sizes, together=True),
        "one matmul": planned(declaration(Operator.AG_GEMM, False), {"M": m, "K": k, "N": q + 2 * v}, together=True),
    }
    made = {name: contender(schedule) for name, schedule in schedules.items()}
    x, *weights = made["apart"][2]
    gathered, beside = torch.empty(m, k, dtype=x.dtype, device="cuda"), torch.cat(weights, 1)

    def library(*right: torch.Tensor) -> None:
        dist.all_gather_into_tensor(gathered, x)
        for one in right:
            torch.matmul(gathered, one)

    calls = {name: call for name, (call, _, _) in made.items()}
    calls |= {"NCCL, three": lambda: library(*weights), "NCCL, one": lambda: library(beside)}
    graphs = {name: graph_of(call) for name, call in calls.items()}
    us = timed(graphs)
    return {
        "sizes": sizes,
        "ranks": ranks,
        "us": us,
        "predicted_us": {name: round(one.predicted_us, 1) for name, one in schedules.items()},
        "right": {name: right for name, (_, right, _) in made.items()},
        "choices": {name: dict(one.choices) for name, one in schedules.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--commit", default="unknown")
    arguments = parser.parse_args()
    join()
    rows = []
    for sizes in _SIZES:
        rows.append(measure(*sizes))
        if dist.get_rank() == 0:
            print({name: rows[-1][name] for name in ("sizes", "us", "predicted_us", "right")}, flush=True)
        write(arguments.json, arguments.commit, rows)
    leave()


if __name__ == "__main__":
    main()
