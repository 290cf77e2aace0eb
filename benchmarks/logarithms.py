"""On GPUs: both parts of states, means with the logarithms of the sums of weights: each element, with late ranks, and the time
that logarithms take.

    torchrun --nproc-per-node 2 benchmarks/logarithms.py --json benchmarks/results/logarithms_2xh100.jsonl

A row is planned twice, with logarithms and without them. With them it is emitted and checked: each element of both results
against its bounds (`lowering/selfcheck`), in memory that no call has seen; then bit by bit against the first results, while one
rank or the other is late. Times are those of CUDA graphs, of the slowest rank, the median of rounds that take turns.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist

import lowering
import topologies
from tests.pipeline import attention_specs, decode_specs
from tilelink.bench.machine import topology_of_gpus
from tilelink.declaration import Overlap
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.ranks import join, machine

_ROUNDS, _CALLS, _MOST_CYCLES = 7, 20, 200_000
_HEADS = {"Q": 64, "G": 8, "D": 128}
Specs = dict[bool, Overlap]


def specs() -> dict[str, tuple[Specs, dict[str, int]]]:
    """By name: specs with logarithms and without them, and sizes."""
    found: dict[str, tuple[Specs, dict[str, int]]] = {}
    both = (False, True)
    for sequences, tokens in ((1, 8192), (1, 32768), (8, 32768), (64, 8192)):
        of = {lse: decode_specs.spec_of("heads", decode_specs.How(lengths=True, lse=lse)) for lse in both}
        found[f"decode B={sequences} S={tokens}"] = of, _HEADS | {"B": sequences, "S": tokens}
    for kind in ("all", "heads"):
        of = {lse: decode_specs.spec_of(kind, decode_specs.How(merge=True, lse=lse)) for lse in both}
        found[f"merge of 64, {kind}"] = of, {"T": 64, "H": 64, "D": 128}
    for tokens, causal in ((2048, True), (4096, False), (4096, True), (5000, True)):
        of = {lse: attention_specs.spec_of("gathered", attention_specs.How(causal=causal, lse=lse)) for lse in both}
        found[f"prefill S={tokens} causal={causal}"] = of, _HEADS | {"B": 1, "S": tokens}
    return found


def built(spec: Overlap, sizes: dict[str, int]) -> tuple[Any, Any]:
    """Module and operator of a planned and emitted spec."""
    schedule = spec.plan_for(topologies.load(topology_of_gpus(), dist.get_world_size()), sizes, "bf16", {})
    module = load_source(lowering.emit(schedule), schedule.name)
    return module, operator_class(module)(module.SymmetricMemoryFabric())


def captured(op: Callable[..., Any], inputs: list[torch.Tensor]) -> torch.cuda.CUDAGraph:
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        op(*inputs)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(_CALLS):
                op(*inputs)
    return graph


def once_us(graph: torch.cuda.CUDAGraph, calls: int = _CALLS) -> float:
    """A call of a graph of so many, of the slowest rank."""
    graph.replay()
    torch.cuda.synchronize()
    dist.barrier()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    us = torch.tensor([begin.elapsed_time(end) * 1e3 / calls], device="cuda")
    dist.all_reduce(us, dist.ReduceOp.MAX)
    return float(us)


def changed_late(op: Callable[..., Any], inputs: list[torch.Tensor], calls: int, seed: int) -> int:
    """Elements of both results that are another bit pattern when ranks are late, over many calls."""
    rank, ranks, rng = dist.get_rank(), dist.get_world_size(), random.Random(seed)
    first = [one.clone() for one in op(*inputs)]
    changed = torch.zeros(1, dtype=torch.int64, device="cuda")
    for _ in range(calls):
        late, cycles = rng.randrange(2 * ranks), rng.randrange(1, _MOST_CYCLES)
        if late == rank:
            torch.cuda._sleep(cycles)
        for one, before in zip(op(*inputs), first, strict=True):
            changed += (one.view(torch.uint8) != before.view(torch.uint8)).sum()
    dist.all_reduce(changed)
    return int(changed)


def measured(name: str, of: Specs, sizes: dict[str, int], calls: int, seed: int) -> dict[str, Any]:
    module, op = built(of[True], sizes)
    _, alone = built(of[False], sizes)
    facts = [one for number in range(3) for one in module.check_call(op, number, seed + number)]
    worst: dict[str, float] = {}
    for one in facts:
        worst[one["output"]] = max(worst.get(one["output"], 0.0), one["error"])
    inputs = list(module.make_inputs(dist.get_rank(), seed, "cuda").values())
    late = changed_late(op, inputs, calls, seed)
    graphs = {"with_us": captured(op, inputs), "without_us": captured(alone, inputs)}
    times: dict[str, list[float]] = {which: [] for which in graphs}
    for _ in range(_ROUNDS):
        for which, graph in graphs.items():
            times[which].append(once_us(graph))
    wrong = torch.tensor([sum(one["wrong"] for one in facts)], device="cuda")
    dist.all_reduce(wrong)
    found = {
        "row": name,
        "sizes": sizes,
        "wrong": int(wrong),
        "errors": worst,
        "late_calls": calls,
        "changed_late": late,
    }
    return found | {which: round(median(each), 2) for which, each in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--late-calls", type=int, default=1000, help="of each row")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=400.0, help="no row begins later")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--commit", default="unknown")
    arguments = parser.parse_args()
    join()
    began, lines = time.monotonic(), list[dict[str, Any]]()
    for name, (of, sizes) in specs().items():
        late = torch.tensor([time.monotonic() - began > arguments.seconds], device="cuda")
        dist.broadcast(late, 0)
        if late.item():
            break
        lines.append(measured(name, of, sizes, arguments.late_calls, arguments.seed) | {"commit": arguments.commit})
        if dist.get_rank() == 0:
            print(json.dumps(lines[-1]), flush=True)
            if arguments.json:
                arguments.json.write_text("".join(f"{json.dumps(one | {'machine': machine()})}\n" for one in lines))
    dist.destroy_process_group()
    if any(one["wrong"] or one["changed_late"] for one in lines):
        sys.exit(1)


if __name__ == "__main__":
    main()
