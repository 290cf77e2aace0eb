"""On GPUs: many operators in one process, as the layers of a model are, each with a fabric of its own.

    torchrun --nproc-per-node 2 lab/many_operators.py --json many.json
    CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun --nproc-per-node 2 lab/many_operators.py

Schedules whose copies are made by streams beside that of the caller. All operators are built first and called in turns: eager,
which becomes a replay from the second call on, and as one CUDA graph of all of them. Then the first of them is called on every
stream that torch has. Each call has to give the bits of the very first one. Shapes are small, so that there is room for copies
inside one GPU, which take SMs, where ranks share it:

    torchrun --nproc-per-node 2 -m tilelink.runtime.shared_gpus lab/many_operators.py

Run it under `timeout`: what it looks for are hangs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist

import lowering
from benchmarks.wanted import problem
from lowering.selfcheck.compare import distance
from tilelink.bench.machine import topology_of_gpus
from tilelink.bench.operators import declaration
from tilelink.bench.rows import Operator
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.ranks import join, machine

_ROUNDS, _REPLAYS = 4, 3
_STREAMS = 32  # of each priority that torch hands out in turns
_ROWS = {"M": 512, "K": 256, "N": 512}
_COPIES = {"algorithm": "direct", "mover": "CopyEngine()", "transfer": "push", "compute": "triton", "chunks": "2"}
CASES: tuple[tuple[Operator, dict[str, int], dict[str, str]], ...] = (
    (Operator.AG_GEMM, _ROWS, _COPIES),
    (Operator.GEMM_RS, _ROWS, {**_COPIES, "sum": "epilogue"}),
    (Operator.GEMM_AR, _ROWS, {**_COPIES, "algorithm": "in-place", "outputs": "reused", "sum": "epilogue"}),
    (Operator.MLP, {"M": 512, "H": 256, "F": 512}, _COPIES),
)


def check(operator: Operator, sizes: dict[str, int], pins: dict[str, str], count: int) -> dict[str, Any]:
    """Calls of `count` operators of one schedule that gave other bits than the first call of the first one."""
    schedule = declaration(operator, False).plan(topology_of_gpus(), dist.get_world_size(), pin=pins, **sizes)
    module = load_source(lowering.emit(schedule), f"many_{operator.value}")
    build: Any = operator_class(module)
    operators = [build(module.SymmetricMemoryFabric()) for _ in range(count)]
    inputs, (near,) = problem(module, operators[0].fabric, 0)
    expected = operators[0](*inputs).clone()
    start, wrong = time.perf_counter(), torch.zeros((), dtype=torch.int64, device="cuda")
    wrong += (distance(expected, near) > 1).any()
    for _ in range(_ROUNDS):
        for op in operators:
            wrong += (op(*inputs) != expected).any()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = [op(*inputs) for op in operators]
    for _ in range(_REPLAYS):
        graph.replay()
        wrong += sum((result != expected).any() for result in results)
    for priority in (0, -1):
        for _ in range(_STREAMS):
            stream = torch.cuda.Stream(priority=priority)
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(_ROUNDS):
                    wrong += (operators[0](*inputs) != expected).any()
            torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    return {
        "operator": operator.value,
        "sizes": sizes,
        "operators": count,
        "choices": dict(schedule.choices),
        "wrong_calls": int(wrong.item()),
        "seconds": round(time.perf_counter() - start, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", help="operators; all by default")
    parser.add_argument("--count", type=int, default=48)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--commit", default="unknown")
    arguments = parser.parse_args()
    join()
    cases = []
    for operator, sizes, pins in CASES:
        if not arguments.cases or operator.value in arguments.cases:
            cases.append(check(operator, sizes, pins, arguments.count))
            if dist.get_rank() == 0:
                print({name: cases[-1][name] for name in ("operator", "wrong_calls", "seconds")}, flush=True)
    about = {
        "machine": machine(),
        "topology": topology_of_gpus(),
        "commit": arguments.commit,
        "CUDA_DEVICE_MAX_CONNECTIONS": os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS", "unset"),
        "cases": cases,
    }
    if dist.get_rank() == 0 and arguments.json is not None:
        arguments.json.with_suffix(".part").write_text(json.dumps(about, indent=1))
        arguments.json.with_suffix(".part").rename(arguments.json)
    dist.barrier()
    torch.cuda.synchronize()
    dist.destroy_process_group()
    sys.exit(1 if any(case["wrong_calls"] for case in cases) else 0)


if __name__ == "__main__":
    main()
