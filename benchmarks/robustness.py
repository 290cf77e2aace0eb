"""On GPUs: many calls with fresh inputs and random delays; accuracy against float64; what a call costs the host.

    torchrun --nproc-per-node 4 benchmarks/robustness.py gemm_rs M=8192 K=14336 N=4096 --calls 10000 --json result.json

The planned schedule runs half of the calls eager and half as a CUDA graph. Before each call every rank sleeps for a random
time and takes one of several prepared input sets. Every element of the first result of each set is compared with its bound,
and a sample of its rows with float64, beside NCCL + cuBLAS; every later result has to equal it bit by bit. Each rank keeps a
few results of eager calls for a while, other ones than its peers, and looks at them again before it drops them (not where the
next call may overwrite them). Memory is read five times in each half.
More ranks than GPUs, without NCCL and times: torchrun … -m tilelink.runtime.shared_gpus benchmarks/robustness.py …
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist

import lowering
from benchmarks.wanted import problem
from lowering.selfcheck.compare import Comparison, nan_when_empty, poison
from tilelink.bench.machine import topology_of_gpus
from tilelink.bench.operators import declaration
from tilelink.bench.rows import parse_operators
from tilelink.ir.nodes import Memory
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.ranks import gpus_are_shared, join, machine
from tilelink.spec_file import parse_pins, parse_sizes

SETS = 8
_SLEEP_CYCLES = 400_000  # at most about a quarter of a millisecond
_SAMPLE_ROWS = 64
_KEPT = 6  # results that a rank holds at once, at most and in front of the next call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("operator")
    parser.add_argument("sizes", nargs="+", help="M=8192 K=14336 N=4096")
    parser.add_argument("--pin", action="append", default=[])
    parser.add_argument("--k-major", action="store_true", help="weights that lie as [N, K]")
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--json", default="")
    parser.add_argument("--commit", default="unknown")
    arguments = parser.parse_args()
    join()
    torch.backends.cuda.matmul.allow_tf32 = False
    found = run(arguments)
    if dist.get_rank() == 0:
        print(json.dumps(found))
        if arguments.json:
            path = Path(arguments.json)
            path.with_suffix(".part").write_text(json.dumps(found, indent=1))
            path.with_suffix(".part").rename(path)
    dist.barrier()
    torch.cuda.synchronize()
    dist.destroy_process_group()
    sys.exit(0 if found["wrong_calls"] == 0 else 1)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    (operator,) = parse_operators([arguments.operator])
    overlap = declaration(operator, arguments.k_major)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    sizes = parse_sizes(arguments.sizes)
    schedule = overlap.plan(topology_of_gpus(), ranks, pin=parse_pins(arguments.pin), **sizes)
    module = load_source(lowering.emit(schedule), f"robust_{operator.value}")
    build: Any = operator_class(module)
    fabric = module.SymmetricMemoryFabric()
    op = build(fabric)
    problems = [problem(module, fabric, seed) for seed in range(SETS)]
    sets = [inputs for inputs, _ in problems]
    poison(op, fabric.barrier)
    with nan_when_empty():
        expected = [op(*inputs).clone() for inputs in sets]
    found = [Comparison.of(result, near) for result, (_, (near,)) in zip(expected, problems, strict=True)]
    off = [one.text() for one in found if not one.equal]
    accuracy = [
        compare(operator.value, as_matrices(inputs, arguments.k_major), result)
        for inputs, result in zip(sets, expected, strict=True)
    ]
    alone = not gpus_are_shared()  # NCCL takes one rank a GPU, and ranks that take turns have no times
    same_bits = without_overlap(overlap, schedule, sets, expected) if operator.value == "ag_gemm" and alone else None
    host_us = host_time(op, sets[0]) if alone else None
    delays, start = random.Random(100 + rank), time.perf_counter()
    order = random.Random(7)  # the same on every rank
    wrong = torch.zeros((), dtype=torch.int64, device=fabric.device)
    held: dict[str, list[dict[str, int]]] = {"eager": [], "graph": []}
    calls = arguments.calls // 2
    overwritten = any(schedule.buffer(name).memory is Memory.SYMMETRIC for name in schedule.spec.outputs)
    kept: list[tuple[torch.Tensor, int]] = []  # results and of which inputs, other ones on each rank
    for number in range(calls):
        if number % max(1, calls // 5) == calls // 50:
            kept.clear()
            held["eager"].append(memory())
        which = order.randrange(SETS)
        torch.cuda._sleep(delays.randrange(_SLEEP_CYCLES))  # type: ignore[no-untyped-call]
        with nan_when_empty():
            result = op(*sets[which])
        wrong += (result != expected[which]).any()
        if not overwritten:
            kept.append((result, which))
            del result
        while len(kept) > delays.randrange(_KEPT):
            old, which = kept.pop(delays.randrange(len(kept)))
            wrong += (old != expected[which]).any()
    kept.clear()
    wrong_eager = int(wrong.item())
    wrong += replays(op, sets, expected, arguments.calls - calls, delays, order, held["graph"])
    dist.all_reduce(wrong)
    wrong_firsts = [0] * ranks
    dist.all_gather_object(wrong_firsts, len(off))
    return {
        "operator": operator.value,
        "sizes": sizes,
        "k_major": arguments.k_major,
        "num_ranks": ranks,
        "machine": machine(),
        "topology": schedule.machine.topology,
        "commit": arguments.commit,
        "choices": dict(schedule.choices),
        "calls": arguments.calls,
        "wrong_calls": int(wrong.item()) + sum(wrong_firsts),
        "wrong_first_calls": wrong_firsts,  # of each rank: results with elements beyond their bounds
        "first_error": max(one.error for one in found),  # here, in units of the bound
        "off_here": off,
        "wrong_eager_here": wrong_eager,
        "seconds": round(time.perf_counter() - start, 1),
        "memory": held,
        "host_us": host_us,
        "same_bits_without_overlap": same_bits,
        "accuracy": {key: max(one[key] for one in accuracy) for key in accuracy[0]},
    }


def as_matrices(inputs: list[torch.Tensor], k_major: bool) -> list[torch.Tensor]:
    """Activations, and weights as [K, N]."""
    return [inputs[0], *(weight.t() if k_major else weight for weight in inputs[1:])]


def without_overlap(overlap: Any, schedule: Any, sets: list[Any], expected: list[torch.Tensor]) -> bool | None:
    """Whether the same tile loop after one library all-gather gives the same bits; None if the library multiplies."""
    choices = dict(schedule.choices)
    if choices["out.compute"] != "triton":
        return None
    pins = {"algorithm": "library", "out.compute": "triton", "out.tile": choices["out.tile"]}
    plain = overlap.plan(topology_of_gpus(), dist.get_world_size(), pin=pins, **dict(schedule.spec.sizes))
    module = load_source(lowering.emit(plain), "without_overlap")
    build: Any = operator_class(module)
    op = build(module.SymmetricMemoryFabric())
    return all(torch.equal(op(*inputs), wanted) for inputs, wanted in zip(sets, expected, strict=True))


def replays(
    op: Any,
    sets: list[Any],
    expected: list[torch.Tensor],
    calls: int,
    delays: random.Random,
    order: random.Random,
    seen: list[dict[str, int]],
) -> torch.Tensor:
    """Wrong results of replays of a graph of one call, whose inputs are copied in before each, and whose output holds nan."""
    held = [tensor.clone() for tensor in sets[0]]
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    dist.barrier()
    with torch.cuda.graph(graph):
        result = op(*held)
    wrong = torch.zeros((), dtype=torch.int64, device=result.device)
    for number in range(calls):
        if number % max(1, calls // 5) == calls // 50:
            seen.append(memory())
        which = order.randrange(SETS)
        for target, source in zip(held, sets[which], strict=True):
            target.copy_(source)
        torch.cuda._sleep(delays.randrange(_SLEEP_CYCLES))  # type: ignore[no-untyped-call]
        result.fill_(torch.nan)  # peers write there only after this rank's call has begun
        graph.replay()
        wrong += (result != expected[which]).any()
    torch.cuda.synchronize()
    return wrong


def compare(name: str, inputs: list[torch.Tensor], result: torch.Tensor) -> dict[str, float]:
    """Relative error (Frobenius norm) of a sample of rows against float64: ours, and that of NCCL + cuBLAS, if it can run."""
    exact, rows = in_float64(name, inputs)
    norm = exact.norm()

    def error(found: torch.Tensor) -> float:
        return float((found[rows].double() - exact).norm() / norm)

    library = {} if gpus_are_shared() else {"nccl_cublas": error(in_torch(name, inputs))}
    return {"ours": error(result), **library}


def in_torch(name: str, inputs: list[torch.Tensor]) -> torch.Tensor:
    ranks = dist.get_world_size()
    if name in ("ag_gemm", "mlp"):
        x, w, *others = inputs
        whole = torch.empty(x.shape[0] * ranks, x.shape[1], dtype=x.dtype, device=x.device)
        dist.all_gather_into_tensor(whole, x)
        if name == "ag_gemm":
            return whole @ w
        up, down = others
        y = (torch.nn.functional.silu(whole @ w) * (whole @ up)) @ down
    else:
        x, w = inputs
        y = x @ w
    if name == "gemm_ar":
        dist.all_reduce(y)
        return y
    out = torch.empty(y.shape[0] // ranks, y.shape[1], dtype=y.dtype, device=y.device)
    dist.reduce_scatter_tensor(out, y)
    return out


def in_float64(name: str, inputs: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """The exact result of some rows of this rank's output, and which rows; computed in float64."""
    x, w = inputs[:2]
    ranks, rank = dist.get_world_size(), dist.get_rank()
    if name in ("ag_gemm", "mlp"):
        whole = torch.empty(x.shape[0] * ranks, x.shape[1], dtype=x.dtype, device=x.device)
        dist.all_gather(list(whole.chunk(ranks)), x)
        if name == "mlp":
            return _mlp_in_float64(whole, *inputs[1:])
        rows = torch.linspace(0, whole.shape[0] - 1, _SAMPLE_ROWS, device=x.device).long()
        return whole[rows].double() @ w.double(), rows
    part = x.shape[0] if name == "gemm_ar" else x.shape[0] // ranks
    rows = torch.linspace(0, part - 1, _SAMPLE_ROWS, device=x.device).long()
    total = None
    for owner in range(ranks):  # every rank needs the sum of other rows, unless all have the same
        first = 0 if name == "gemm_ar" else owner * part
        summand = x[first + rows].double() @ w.double()
        dist.all_reduce(summand)
        if owner == rank or name == "gemm_ar":
            total = summand
    assert total is not None
    return total, rows


def _mlp_in_float64(
    whole: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of some rows of this rank's part of the sum over ranks."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    rows = torch.linspace(0, whole.shape[0] // ranks - 1, _SAMPLE_ROWS, device=whole.device).long()
    parts = []
    for part in whole.chunk(ranks):
        x = part[rows].double()
        parts.append((torch.nn.functional.silu(x @ gate.double()) * (x @ up.double())) @ down.double())
        dist.all_reduce(parts[-1])
    return parts[rank], rows


def host_time(op: Any, inputs: list[torch.Tensor]) -> float:
    """Median microseconds of host time of an eager call, in batches that leave room in the launch queue."""
    times = []
    for _ in range(20):
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(5):
            op(*inputs)
        times.append((time.perf_counter() - start) / 5 * 1e6)
        torch.cuda.synchronize()
    return round(sorted(times)[len(times) // 2], 1)


def memory() -> dict[str, int]:
    """Bytes that torch has allocated and reserved on the GPU, and the largest size that the process has had."""
    torch.cuda.synchronize()
    return {
        "allocated": torch.cuda.memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
        "free_on_gpu": torch.cuda.mem_get_info()[0],
        "host_peak_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }


if __name__ == "__main__":
    main()
