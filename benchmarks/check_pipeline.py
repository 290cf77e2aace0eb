"""On GPUs: every workload, several schedules each, every element of many calls against its bound; times against NCCL + cuBLAS.

    torchrun --nproc-per-node 4 benchmarks/check_pipeline.py ag_gemm --json ag_gemm.json

Each schedule runs `--calls` calls with inputs that change from call to call and a random delay on every rank, first eager,
then as a CUDA graph that is replayed; outputs hold nan before each call. Errors are in units of the bound of the element:
more than 1 is wrong. Times are CUDA-graph replays: median of 5 x 20, max over ranks.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist
import triton

import lowering
from benchmarks.wanted import as_tuple, problem
from lowering.selfcheck.compare import distance, nan_when_empty, poison
from tilelink.bench.machine import topology_of_gpus
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.ranks import join, machine
from tilelink.spec_file import load_overlap

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = {"algorithm": "library", "compute": "library"}
PUSH = {"mover": "CopyEngine()", "transfer": "push", "compute": "triton"}
SMS = {"mover": "CommSms(16)", "transfer": "push", "compute": "triton"}
PULL = {"mover": "CommSms(16)", "transfer": "pull", "compute": "triton"}

WORKLOADS: dict[str, tuple[str, list[dict[str, Any]], dict[str, dict[str, str]]]] = {
    "ag_gemm": (
        "examples/02_ag_gemm.py:ag_gemm",
        [
            {"M": 8192, "K": 4096, "N": 14336},
            {"M": 8192, "K": 8192, "N": 28672},
            {"M": 1028, "K": 4096, "N": 14336},
            {"M": 1028, "K": 1001, "N": 1004, "dtype": "fp16"},
            {"M": 1028, "K": 1001, "N": 1004, "dtype": "fp32"},
        ],
        {
            "planned": {},
            "copy engine push": {**PUSH, "algorithm": "direct"},
            "copy engine pull": {**PUSH, "transfer": "pull", "algorithm": "direct"},
            "16 SMs push": {**SMS, "algorithm": "direct", "chunks": "4"},
            "16 SMs pull": {**PULL, "algorithm": "direct", "chunks": "4"},
            "cuBLAS chunks": {"algorithm": "direct", "mover": "CopyEngine()", "compute": "library"},
        },
    ),
    "gemm_rs": (
        "examples/03_gemm_rs.py:gemm_rs",
        [
            {"M": 8192, "K": 14336, "N": 4096},
            {"M": 8192, "K": 28672, "N": 8192},
            {"M": 1028, "K": 14336, "N": 4096},
            {"M": 1028, "K": 1004, "N": 1001, "dtype": "fp16"},
        ],
        {
            "planned": {},
            "copy engine push, sum in epilogue": {**PUSH, "algorithm": "direct", "sum": "epilogue"},
            "copy engine push, sum kernel": {**PUSH, "algorithm": "direct", "sum": "kernel"},
            "16 SMs push": {**SMS, "algorithm": "direct", "chunks": "4"},
            "fused push": {"mover": "Fused()", "transfer": "push", "algorithm": "direct", "compute": "triton"},
            "cuBLAS chunks": {"algorithm": "direct", "mover": "CopyEngine()", "compute": "library"},
        },
    ),
    "gemm_ar": (
        "examples/04_gemm_ar.py:gemm_ar",
        [{"M": 8192, "K": 14336, "N": 4096}, {"M": 512, "K": 14336, "N": 4096}],
        {
            "planned": {},
            "two-shot, copy engine": {**PUSH, "algorithm": "two-shot"},
            "two-shot, fused": {"algorithm": "two-shot", "mover": "Fused()", "transfer": "push", "compute": "triton"},
            "one-shot, 16 SMs": {**SMS, "algorithm": "one-shot"},
        },
    ),
    "mlp": (
        "examples/05_mlp.py:mlp",
        [{"M": 8192, "H": 4096, "F": 14336}, {"M": 8192, "H": 8192, "F": 28672}],
        {
            "planned": {},
            "copy engine": {**PUSH, "algorithm": "direct"},
            "16 SMs": {**SMS, "algorithm": "direct", "chunks": "4"},
        },
    ),
    "user_op": (
        "examples/06_user_op.py:ag_squared_relu",
        [{"M": 2048, "K": 1024, "N": 4096}],
        {
            "planned": {},
            "copy engine push": {"algorithm": "direct", "mover": "CopyEngine()", "transfer": "push"},
            "16 SMs pull": {"algorithm": "direct", "mover": "CommSms(16)", "transfer": "pull"},
            "fused pull": {"algorithm": "direct", "mover": "Fused()", "transfer": "pull"},
        },
    ),
}


def say(*words: object) -> None:
    if dist.get_rank() == 0:
        print(*words, flush=True)


def capture(function: Callable[[], object]) -> torch.cuda.CUDAGraph:
    for _ in range(3):
        function()
    meet()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        function()
    meet()
    return graph


def meet() -> None:
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()


def measure(function: Callable[[], object], calls: int = 20, repeats: int = 5) -> float:
    """Median over repeats of the mean of `calls` calls, max over ranks, in us."""
    times = []
    for _ in range(3):
        function()
    for _ in range(repeats):
        meet()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(calls):
            function()
        end.record()
        torch.cuda.synchronize()
        us = torch.tensor([start.elapsed_time(end) * 1e3 / calls], device="cuda")
        dist.all_reduce(us, op=dist.ReduceOp.MAX)
        times.append(float(us))
    return sorted(times)[len(times) // 2]


def many_calls(call: Callable[[], object], static: list[torch.Tensor], pool: list, calls: int, seed: int) -> float:  # type: ignore[type-arg]
    """Largest error over `calls` calls with changing inputs and random delays."""
    rng = random.Random(1000 * seed + dist.get_rank())
    choose = random.Random(seed)
    worst = torch.zeros((), dtype=torch.float64, device="cuda")
    for _ in range(calls):
        inputs, wanted = pool[choose.randrange(len(pool))]
        for mine, fresh in zip(static, inputs, strict=True):
            mine.copy_(fresh)
        if rng.random() < 0.5:
            torch.cuda._sleep(rng.randrange(1, 400_000))  # up to 0.2 ms
        for result, near in zip(call(), wanted, strict=True):
            worst = torch.maximum(worst, distance(result, near).max())
    return max_over_ranks(worst)


def two_streams(op, pool: list, calls: int = 20) -> float:  # type: ignore[no-untyped-def,type-arg]
    """Largest error of calls that alternate between two streams and do not wait for each other."""
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    meet()
    kept = []
    for number in range(calls):
        inputs, wanted = pool[number % len(pool)]
        with torch.cuda.stream(streams[number % 2]), nan_when_empty():
            kept.append((as_tuple(op(*inputs)), wanted))
    meet()
    errors = [distance(a, b).max() for results, wanted in kept for a, b in zip(results, wanted, strict=True)]
    return max_over_ranks(torch.stack(errors).max())


def max_over_ranks(value: torch.Tensor) -> float:
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return float(value)


def check(module, op, calls: int) -> dict[str, object]:  # type: ignore[no-untyped-def]
    """Correctness and time of one operator."""
    fabric = op.fabric
    pool = [problem(module, fabric, seed) for seed in range(4)]
    static = [tensor.clone() for tensor in pool[0][0]]

    def eagerly() -> tuple[torch.Tensor, ...]:
        with nan_when_empty():
            return as_tuple(op(*static))

    poison(op, fabric.barrier)
    eager = many_calls(eagerly, static, pool, calls, 1)
    held: list[tuple[torch.Tensor, ...]] = []

    def once() -> None:
        held[:] = [as_tuple(op(*static))]

    graph = capture(once)

    def replay() -> tuple[torch.Tensor, ...]:
        for output in held[0]:  # peers write there only after this rank's call has begun
            output.fill_(torch.nan)
        graph.replay()
        return held[0]

    poison(op, fabric.barrier)
    replayed = many_calls(replay, static, pool, calls, 2)
    us = measure(graph.replay)
    streams = two_streams(op, pool)
    found = {"eager_error": eager, "graph_error": replayed, "streams_error": streams, "us": us}
    found["equal"] = max(eager, replayed, streams) <= 1
    return found


def baseline(name: str, module, fabric) -> float:  # type: ignore[no-untyped-def]
    """NCCL + cuBLAS, one after the other, in a CUDA graph."""
    inputs = list(module.make_inputs(fabric.rank, 0, fabric.device).values())
    ranks = fabric.num_ranks

    def gathered(x: torch.Tensor) -> torch.Tensor:
        full = torch.empty((x.shape[0] * ranks, *x.shape[1:]), dtype=x.dtype, device=x.device)
        dist.all_gather_into_tensor(full, x)
        return full

    def scattered(y: torch.Tensor) -> torch.Tensor:
        out = torch.empty((y.shape[0] // ranks, *y.shape[1:]), dtype=y.dtype, device=y.device)
        dist.reduce_scatter_tensor(out, y)
        return out

    def mlp(x, gate, up, down):  # type: ignore[no-untyped-def]
        full = gathered(x)
        return scattered((torch.nn.functional.silu(full @ gate) * (full @ up)) @ down)

    def reduced(x, w):  # type: ignore[no-untyped-def]
        y = x @ w
        dist.all_reduce(y)
        return y

    functions = {
        "ag_gemm": lambda x, w: gathered(x) @ w,
        "gemm_rs": lambda x, w: scattered(x @ w),
        "gemm_ar": reduced,
        "mlp": mlp,
        "user_op": lambda x, w: torch.relu(gathered(x) @ w) ** 2,
    }
    return measure(capture(lambda: functions[name](*inputs)).replay)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workload", choices=list(WORKLOADS))
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--json", default="")
    parser.add_argument("--commit", default="")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    join()
    spec_file, shapes, schedules = WORKLOADS[arguments.workload]
    overlap = load_overlap(str(ROOT / spec_file))
    rows: list[dict[str, object]] = []
    for shape in shapes:
        sizes = {name: size for name, size in shape.items() if name != "dtype"}
        dtype = shape.get("dtype", "bf16")
        base = 0.0
        for label, pins in schedules.items():
            if arguments.only and label not in arguments.only.split(";"):
                continue
            schedule = overlap.plan(topology_of_gpus(), dist.get_world_size(), dtype, dict(pins), None, **sizes)
            module = load_source(lowering.emit(schedule), schedule.name)
            op = operator_class(module)(module.SymmetricMemoryFabric())
            if not base:
                base = baseline(arguments.workload, module, op.fabric)
            found = check(module, op, arguments.calls)
            row = {
                "workload": arguments.workload,
                **sizes,
                "dtype": dtype,
                "schedule": label,
                **found,
                "nccl_cublas_us": base,
            }
            row |= {"choices": dict(schedule.choices), "predicted_us": schedule.predicted_us, "hash": schedule.hash}
            rows.append(row)
            say(
                arguments.workload,
                shape,
                f"{label:34}",
                {k: found[k] for k in ("equal", "eager_error", "us")},
                f"base {base:.1f} predicted {schedule.predicted_us}",
            )
            if arguments.json and dist.get_rank() == 0:
                write(arguments.json, rows, arguments.calls, arguments.commit)
            del op, module
            torch.cuda.empty_cache()
    dist.destroy_process_group()


def write(path: str, rows: list[dict[str, object]], calls: int, commit: str) -> None:
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split()
    versions = {
        "torch": torch.__version__,
        "triton": triton.__version__,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
    }
    text = {
        "machine": machine(),
        "driver": driver[:1],
        "versions": versions,
        "commit": commit,
        "calls": calls,
        "rows": rows,
    }
    temporary = Path(f"{path}.part")
    temporary.write_text(json.dumps(text, indent=1))
    temporary.replace(path)


if __name__ == "__main__":
    main()
