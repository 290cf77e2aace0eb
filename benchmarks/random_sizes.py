"""On GPUs: thousands of calls of operators whose sizes are drawn anew, in one process; each element, and memory.

    torchrun --nproc-per-node 2 benchmarks/random_sizes.py --calls 10000 --seconds 500 --json random_sizes.json

Operators are compiled as a user compiles them, unpinned, used for some calls in turns with others, and dropped. Sizes come from
a seed and are not rounded, except to what ranks share; ranks are late by chance. A result is compared with torch in fp32 on
whole tensors, which shares nothing with this project. At the end no more memory is in use than after the first operators.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist

import topologies
from benchmarks.late_ranks import OF_RESULT, OF_SPREAD, spread
from tilelink.bench.machine import topology_of_gpus
from tilelink.bench.operators import declaration
from tilelink.bench.rows import WITHOUT_EXPERTS, Operator
from tilelink.runtime.ranks import join, machine

_ALIVE = 6  # operators at once, as layers of different kinds
_CALLS_OF_ONE = 200  # in turns, before one of them is replaced
_MOST = {"M": 4096, "K": 4096, "N": 4096, "H": 2048, "F": 4096}
_GRAIN = 16  # of widths: their rows are whole multiples of 16 bytes
_MOST_CYCLES = 200_000  # about a tenth of a millisecond
_SLACK_BYTES = 64 << 20  # that caches of libraries may take on the way


def drawn_sizes(operator: Operator, rng: random.Random, ranks: int) -> dict[str, int]:
    """Rows from 1 on a logarithmic scale, widths in steps of 16 elements of a rank."""
    found = {}
    for name in declaration(operator).spec.symbols():
        if name == "M":
            rows = round(math.exp(rng.uniform(0, math.log(_MOST[name]))))
            found[name] = max(1, rows // ranks) * ranks
        else:
            found[name] = rng.randint(1, _MOST[name] // _GRAIN // ranks) * _GRAIN * ranks
    return found


@dataclass(slots=True)
class Layer:
    """An operator with its inputs of this rank, and what each element should be, with its bound."""

    operator: Operator
    sizes: dict[str, int]
    call: Callable[..., torch.Tensor]
    inputs: list[torch.Tensor]
    wanted: torch.Tensor
    bound: torch.Tensor
    calls: int = 0


def layer(operator: Operator, sizes: dict[str, int], k_major: bool, seed: int) -> Layer:
    """Compiled, with inputs from a seed that all ranks share."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    generator = torch.Generator(device="cuda").manual_seed(seed)

    def normal(*shape: int, scale: float = 1.0) -> torch.Tensor:
        return (torch.randn(*shape, generator=generator, device="cuda") * scale).bfloat16()

    def part(whole: torch.Tensor, dim: int) -> torch.Tensor:
        return whole.chunk(ranks, dim)[rank].contiguous()

    def weight(whole: torch.Tensor, dim: int) -> torch.Tensor:
        own = part(whole, dim)
        return own.t().contiguous() if k_major else own

    if operator is Operator.MLP:
        m, h, f = sizes["M"], sizes["H"], sizes["F"]
        x, gate, up, down = (
            normal(m, h),
            normal(h, f, scale=h**-0.5),
            normal(h, f, scale=h**-0.5),
            normal(f, h, scale=f**-0.5),
        )
        hidden = torch.nn.functional.silu(x.float() @ gate.float()) * (x.float() @ up.float())
        whole = hidden @ down.float()
        inputs = [part(x, 0), weight(gate, 1), weight(up, 1), weight(down, 0)]
    else:
        m, k, n = sizes["M"], sizes["K"], sizes["N"]
        x, w = normal(m, k), normal(k, n, scale=k**-0.5)
        whole = x.float() @ w.float()
        gathers = operator is Operator.AG_GEMM
        inputs = [part(x, 0 if gathers else 1), weight(w, 1 if gathers else 0)]
    bound = whole.abs() * OF_RESULT + OF_SPREAD * spread(whole)
    match operator:
        case Operator.AG_GEMM:
            whole, bound = part(whole, 1), part(bound, 1)
        case Operator.GEMM_RS | Operator.MLP:
            whole, bound = part(whole, 0), part(bound, 0)
    machine_here = topologies.load(topology_of_gpus(), ranks)
    call: Any = declaration(operator, k_major).compile(None, machine_here, **sizes)
    return Layer(operator, sizes, call, inputs, whole, bound)


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Calls until there are enough or the time is over; the first rank's clock decides."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    alike, apart = random.Random(arguments.seed), random.Random(arguments.seed + 1 + rank)
    start, calls, used, alive = time.perf_counter(), 0, [], list[Layer]()
    wrong = torch.zeros(2, dtype=torch.int64, device="cuda")
    failed: list[str] = []
    first_bytes = 0
    number = 0
    while calls < arguments.calls:
        going = torch.tensor([float(time.perf_counter() - start < arguments.seconds)], device="cuda")
        dist.broadcast(going, 0)
        if not going.item():
            break
        while len(alive) < _ALIVE:
            operator = WITHOUT_EXPERTS[number % len(WITHOUT_EXPERTS)]
            sizes, k_major = drawn_sizes(operator, alike, ranks), alike.random() < 0.5
            number += 1
            alive.append(layer(operator, sizes, k_major, number))
            used.append({"operator": operator.value, "k_major": k_major, **sizes})
        for _ in range(_CALLS_OF_ONE):
            one = alive[alike.randrange(len(alive))]
            torch.cuda._sleep(apart.randrange(_MOST_CYCLES))  # type: ignore[no-untyped-call]
            out = one.call(*one.inputs)
            bad = ((out.float() - one.wanted).abs() > one.bound).sum() + out.isnan().sum()
            wrong += torch.stack((bad, (bad > 0).long()))
            one.calls += 1
            calls += 1
        torch.cuda.synchronize()
        if int(wrong[1]) and len(failed) < 10:
            failed.append(f"after {calls} calls, alive: {[(one.operator.value, one.sizes) for one in alive]}")
        dist.barrier()
        alive.pop(alike.randrange(len(alive)))
        gc.collect()
        torch.cuda.empty_cache()
        if not first_bytes and number > 2 * _ALIVE:
            first_bytes = _in_use()
    alive.clear()
    dist.barrier()
    gc.collect()
    torch.cuda.empty_cache()
    left = _in_use()
    dist.all_reduce(wrong)
    return {
        "machine": machine(),
        "commit": arguments.commit,
        "seed": arguments.seed,
        "calls": calls,
        "operators": number,
        "wrong_calls": int(wrong[1]),
        "wrong_elements": int(wrong[0]),
        "failed": failed,
        "bytes_with_six_operators": first_bytes,
        "bytes_at_the_end": left,
        "grew": left > first_bytes + _SLACK_BYTES,
        "seconds": round(time.perf_counter() - start, 1),
        "rows": used,
    }


def _in_use() -> int:
    """Bytes that this GPU has given out, by anybody in this process or beside it."""
    free, total = torch.cuda.mem_get_info()
    return total - free


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=500.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--commit", default="unknown")
    arguments = parser.parse_args()
    join()
    torch.backends.cuda.matmul.allow_tf32 = False
    found = measure(arguments)
    if dist.get_rank() == 0:
        print(json.dumps({name: value for name, value in found.items() if name != "rows"}), flush=True)
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    dist.barrier()
    torch.cuda.synchronize()
    dist.destroy_process_group()
    return 1 if found["wrong_calls"] or found["grew"] else 0


if __name__ == "__main__":
    sys.exit(main())
