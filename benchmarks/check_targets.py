"""On GPUs: each workload in three schedules, emitted for both targets; the same bits from both, and the times of both.

    torchrun --nproc-per-node 2 benchmarks/check_targets.py --json targets.json

The file for Triton-distributed runs on stock Triton, through the shim. Each schedule runs `--calls` calls with inputs that
change and random delays, eager, then as replayed CUDA graphs; times are those of replays, the slowest rank, in us. More ranks
than GPUs, without times: torchrun --nproc-per-node 4 -m tilelink.runtime.shared_gpus benchmarks/check_targets.py
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist

import lowering
from benchmarks.wanted import problem
from lowering.selfcheck.compare import distance, nan_when_empty, poison
from tilelink.bench import operators
from tilelink.bench.machine import topology_of_gpus
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.ranks import gpus_are_shared, join, machine
from tilelink.spec_file import load_overlap

DIRECT = {"algorithm": "direct"}
PUSH = {"mover": "CopyEngine()", "transfer": "push"}
FUSED = {"mover": "Fused()", "transfer": "push"}
USER_OP = "examples/06_user_op.py:ag_squared_relu"
CASES: list[tuple[str, dict[str, int], list[dict[str, str]]]] = [
    (
        "ag_gemm",
        {"M": 2048, "K": 4096, "N": 14336},
        [
            {**DIRECT, **PUSH, "compute": "triton", "chunks": "2"},
            {**DIRECT, "mover": "CommSms(8)", "transfer": "push", "compute": "triton"},
            {**DIRECT, "mover": "CommSms(8)", "transfer": "pull", "compute": "triton"},
        ],
    ),
    (
        "gemm_rs",
        {"M": 2048, "K": 14336, "N": 4096},
        [
            {**DIRECT, **PUSH, "y.compute": "triton", "chunks": "2"},
            {**DIRECT, **FUSED, "y.compute": "triton"},
            {**DIRECT, "mover": "Fused()", "transfer": "pull", "y.compute": "library"},
        ],
    ),
    (
        "gemm_ar",
        {"M": 512, "K": 14336, "N": 4096},
        [
            {"algorithm": "one-shot", "mover": "Fused()", "transfer": "pull", "y.compute": "library"},
            {"algorithm": "two-shot", **FUSED, "y.compute": "triton"},
            {"algorithm": "two-shot", **PUSH, "y.compute": "triton"},
        ],
    ),
    (
        "mlp",
        {"M": 2048, "H": 4096, "F": 14336},
        [
            {**DIRECT, **PUSH},
            {**DIRECT, "x_full.mover": "CommSms(8)", "x_full.transfer": "push", "y_parts.mover": "CopyEngine()"},
            {**DIRECT, "x_full.mover": "CommSms(8)", "x_full.transfer": "push", "y_parts.mover": "Fused()"},
        ],
    ),
    (
        USER_OP,
        {"M": 2048, "K": 1024, "N": 4096},
        [{**DIRECT, **PUSH}, {**DIRECT, **PUSH, "mover": "CommSms(16)"}, {**DIRECT, **FUSED, "transfer": "pull"}],
    ),
]
# words that number the call, and those that are all data, of a kernel or of tiles
WORDS = [
    {"algorithm": "ll", "compute": "library"},
    {"algorithm": "ll-tiles", "compute": "triton"},
    {"algorithm": "lamport", "compute": "library"},
    {"algorithm": "lamport-tiles", "compute": "triton"},
]
TWO_SHOTS = [
    {"algorithm": "lamport-two-shot", "compute": "library"},
    {"algorithm": "lamport-tiles-two-shot", "compute": "triton"},
]
CASES += [
    ("ag_gemm", {"M": 64, "K": 4096, "N": 14336}, [WORDS[1], WORDS[3]]),
    ("gemm_rs", {"M": 64, "K": 14336, "N": 4096}, WORDS),
    ("gemm_ar", {"M": 16, "K": 14336, "N": 4096}, [*WORDS, *TWO_SHOTS]),
]
# weights that lie as [N, K]; LL of more blocks than SMs
CASES += [
    ("linear_rs", {"M": 64, "K": 14336, "N": 4096}, [WORDS[1]]),
    ("linear_rs", {"M": 256, "K": 14336, "N": 4096}, [WORDS[0], {**DIRECT, **PUSH, "y.compute": "triton"}]),
    ("ag_linear", {"M": 2048, "K": 4096, "N": 14336}, [{**DIRECT, **PUSH, "compute": "triton", "chunks": "2"}]),
]
# producers and consumers of the queue between neighbours; B is of one rank
CASES.append(
    (
        "queue",
        {"B": 2025, "C": 128},
        [
            {"mover": "CommSms(16)", "chunks": "2025", "slots": "32", "consumers": "4"},
            {"mover": "CommSms(16)", "chunks": "2025", "slots": "1", "consumers": "4"},
            {"mover": "CommSms(64)", "chunks": "64", "slots": "128", "consumers": "all"},
        ],
    )
)
PER_RANK = ("B",)
POOL = 4
_SLEEP_CYCLES = 400_000  # at most, about 0.2 ms


def built(schedule: Any, target: str) -> tuple[Any, Any]:
    module = load_source(lowering.emit(schedule, target), schedule.name)
    build: Any = operator_class(module)
    stock = target == "triton"
    group = None if stock else module.initialize_distributed()
    return module, build(module.SymmetricMemoryFabric() if stock else module.TritonDistFabric(group))


def meet() -> None:
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()


def captured(op: Any, inputs: list[torch.Tensor]) -> tuple[torch.cuda.CUDAGraph, Any]:
    graph = torch.cuda.CUDAGraph()
    meet()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = op(*inputs)
    meet()
    return graph, result


def measured(function: Callable[[], object]) -> float:
    """Median over 7 samples of the mean of 20 calls, the slowest rank, in us."""
    times = []
    for _ in range(7):
        meet()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        for _ in range(20):
            function()
        end.record()
        torch.cuda.synchronize()
        us = torch.tensor([start.elapsed_time(end) * 1e3 / 20], device="cuda")
        dist.all_reduce(us, op=dist.ReduceOp.MAX)
        times.append(float(us))
    return round(sorted(times)[3], 1)


def check(schedule: Any, calls: int) -> dict[str, object]:
    module, one = built(schedule, "triton")
    _, other = built(schedule, "triton-distributed")
    problems = [problem(module, one.fabric, seed) for seed in range(POOL)]
    pool = [inputs for inputs, _ in problems]
    delays, order = random.Random(dist.get_rank()), random.Random(0)
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for _ in range(calls):
        inputs = pool[order.randrange(POOL)]
        torch.cuda._sleep(delays.randrange(_SLEEP_CYCLES))  # type: ignore[no-untyped-call]
        wrong += (one(*inputs) != other(*inputs)).any()
    eager = int(wrong)
    held = [tensor.clone() for tensor in pool[0]]
    (graph, result), (again, repeated) = captured(one, held), captured(other, held)
    for _ in range(calls):
        for target, source in zip(held, pool[order.randrange(POOL)], strict=True):
            target.copy_(source)
        torch.cuda._sleep(delays.randrange(_SLEEP_CYCLES))  # type: ignore[no-untyped-call]
        graph.replay()
        again.replay()
        wrong += (result != repeated).any()
    dist.all_reduce(wrong)
    poison(other, other.fabric.barrier)
    error = torch.zeros((), dtype=torch.float64, device="cuda")
    for inputs, (near,) in problems:
        with nan_when_empty():
            error = torch.maximum(error, distance(other(*inputs), near).max())
    dist.all_reduce(error, op=dist.ReduceOp.MAX)
    found: dict[str, object] = {
        "calls": 2 * calls,
        "different": int(wrong),
        "different_eager_here": eager,
        "error": float(error),  # the largest of all elements, in units of its bound
        "equal": int(wrong) == 0 and float(error) <= 1,
    }
    if not gpus_are_shared():
        found |= {"triton_us": measured(graph.replay), "triton_distributed_us": measured(again.replay)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--only", default="", help="workloads whose name has this text")
    parser.add_argument("--json", default="")
    parser.add_argument("--commit", default="unknown")
    arguments = parser.parse_args()
    join()
    rows: list[dict[str, object]] = []
    for name, each, schedules in [case for case in CASES if arguments.only in case[0]]:
        sizes = {size: n * dist.get_world_size() if size in PER_RANK else n for size, n in each.items()}
        for pins in schedules:
            start = time.perf_counter()
            overlap = load_overlap(name) if name == USER_OP else getattr(operators, name)
            schedule = overlap.plan(topology_of_gpus(), dist.get_world_size(), pin=dict(pins), **sizes)
            row = {"workload": schedule.name, "sizes": sizes, "choices": dict(schedule.choices), "hash": schedule.hash}
            rows.append({**row, **check(schedule, arguments.calls)})
            if dist.get_rank() == 0:
                shown = {key: value for key, value in rows[-1].items() if key not in ("choices", "sizes", "hash")}
                print(shown, f"{time.perf_counter() - start:.1f} s", flush=True)
                if arguments.json:
                    write(arguments.json, rows, arguments.commit)
            torch.cuda.empty_cache()
    dist.barrier()
    torch.cuda.synchronize()
    dist.destroy_process_group()
    sys.exit(0 if all(row["equal"] for row in rows) else 1)


def write(path: str, rows: list[dict[str, object]], commit: str) -> None:
    temporary = Path(f"{path}.part")
    temporary.write_text(json.dumps({"machine": machine(), "commit": commit, "rows": rows}, indent=1))
    temporary.replace(path)


if __name__ == "__main__":
    main()
