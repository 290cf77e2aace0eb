"""On one GPU: what a descriptor says of a GPU by itself, as its driver reports it or as it is measured.

    python lab/gpu_facts.py --json gpu_facts.json

Memory: a device copy of 1 GiB, reads plus writes; not in a CUDA graph, where the driver copies so much in a slower way. Launches:
what one more kernel of one program takes behind another in a graph. The library's matmul: what a rank of four multiplies in
the rows of gemm_rs and ag_gemm, in turns, each behind 100 ms of itself, so that clocks are those of a GPU at work; inputs are
random, since zeros draw less power. What a descriptor says of links needs peers, and is not asked here.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from cuda.bindings import driver

from lab.one_gpu import time_us
from tilelink.bench.machine import describe_machine
from tilelink.bench.rows import DEFAULT_NAMES, Operator, Row, select
from tilelink.measuring.samples import geomean

_COPY_BYTES = 1 << 30
_FEW, _MANY = 64, 320  # kernels in a graph
_ROUNDS, _CALLS = 7, 10
_LOAD_US, _SAMPLE_US = 100_000.0, 20_000.0
_RANKS = 4


def graph_of(call: Callable[[], object]) -> torch.cuda.CUDAGraph:
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def eager_us(call: Callable[[], object]) -> float:
    """Of one of several calls, each long enough to be enqueued while the one before runs."""
    call()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(_CALLS):
        call()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e3 / _CALLS


def memory_gb_per_s() -> float:
    source = torch.randn(_COPY_BYTES // 2).to(torch.bfloat16).cuda()
    target = torch.empty_like(source)
    found = statistics.median(eager_us(lambda: target.copy_(source)) for _ in range(_ROUNDS))
    return 2 * _COPY_BYTES / found / 1e3


def launch_us() -> float:
    """Of a kernel that adds to one element, behind others of its kind."""
    element = torch.zeros(1, device="cuda")

    def kernels(count: int) -> Callable[[], None]:
        return lambda: [element.add_(1) for _ in range(count)] and None

    few, many = (graph_of(kernels(count)) for count in (_FEW, _MANY))
    found = [time_us(many, 5) - time_us(few, 5) for _ in range(_ROUNDS)]
    return statistics.median(found) / (_MANY - _FEW)


def multiplied(row: Row) -> tuple[int, int, int]:
    """Rows, contracted extent and columns of what one rank multiplies."""
    ffn = row.ffn // _RANKS
    return (row.m, ffn, row.hidden) if row.operator is Operator.GEMM_RS else (row.m, row.hidden, ffn)


def matmul_tflops(m: int, k: int, n: int) -> float:
    left, right = (torch.randn(shape, device="cuda").to(torch.bfloat16) for shape in ((m, k), (k, n)))
    out = torch.empty(m, n, dtype=torch.bfloat16, device="cuda")
    graph = graph_of(lambda: torch.mm(left, right, out=out))
    one = time_us(graph, 1)
    found = []
    for _ in range(_ROUNDS):
        for _ in range(math.ceil(_LOAD_US / one)):
            graph.replay()
        found.append(time_us(graph, math.ceil(_SAMPLE_US / one)))
    return 2 * m * k * n / statistics.median(found) / 1e6


def reported() -> dict[str, int]:
    """What the driver says, under the names of a descriptor."""
    asked = driver.CUdevice_attribute
    names = {
        "num_sms": asked.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
        "l2_bytes": asked.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE,
        "shared_bytes_per_sm": asked.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
        "num_copy_engines": asked.CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT,
    }
    found = {}
    for name, attribute in names.items():
        status, found[name] = driver.cuDeviceGetAttribute(attribute, torch.cuda.current_device())
        if status != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"cuDeviceGetAttribute failed for {name}: {status}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--commit", default="unknown")
    arguments = parser.parse_args()
    torch.cuda.init()
    rows = [r for o in (Operator.AG_GEMM, Operator.GEMM_RS) for r in select((o,), DEFAULT_NAMES, "bf16", _RANKS)]
    shapes = {row.key: multiplied(row) for row in rows}
    rates = {name: matmul_tflops(*shape) for name, shape in shapes.items()}
    mean = geomean(list(rates.values()))
    machine = describe_machine(1, "none")
    found: dict[str, Any] = {
        "machine": machine.gpu,
        "driver": machine.driver,
        "versions": machine.versions,
        "commit": arguments.commit,
        "reported": reported(),
        "memory_gb_per_s": round(memory_gb_per_s(), 1),
        "kernel_launch_us": round(launch_us(), 3),
        "matmul_tflops": {name: round(rate, 1) for name, rate in rates.items()},
        "matmul_tflops_mean": round(mean or 0.0, 1),
        "shapes_m_k_n": shapes,
    }
    print(json.dumps(found, indent=1), flush=True)
    if arguments.json is not None:
        arguments.json.with_suffix(".part").write_text(json.dumps(found, indent=1))
        arguments.json.with_suffix(".part").rename(arguments.json)


if __name__ == "__main__":
    main()
