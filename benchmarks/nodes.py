"""On GPUs of one host that pretend to be nodes: what is planned over a network, each element checked, and ranks late in turn.

    torchrun --nproc-per-node 2 benchmarks/nodes.py --nodes 2 --json benchmarks/results/nodes_2xh200.jsonl

A put is a copy by programs over NVLink and a signal behind it, or one of NVSHMEM, which does the same there: this shows what is
compiled, and not what a network card would take. `one_node_us` is the plan of the same sizes by loads and stores, `serial_us`
NCCL and cuBLAS. Times are those of CUDA graphs, of the slowest rank, the median of five rounds.

Where there are fewer GPUs than ranks, ranks share them, and results are checked, but nothing is timed:

    CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25 nvidia-cuda-mps-control -d
    CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25 torchrun --nproc-per-node 4 benchmarks/nodes.py --nodes 2 --target triton-nvshmem

With `--nodes 1` the rows of few bytes alone run, in packets of each protocol.
With `--halves 2` ranks of a node are planned as those of two sockets, through three levels (8 ranks).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist

import lowering
import topologies
from benchmarks.attention import changed_late, slowest_us
from tilelink.bench.machine import topology_of_gpus
from tilelink.errors import IllegalPin, NoLegalSchedule
from tilelink.runtime.load import fabric_class, load_source, operator_class
from tilelink.runtime.ranks import gpus_are_shared, join, join_parts, machine
from tilelink.spec_file import load_overlap
from topologies.topology import Topology

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SPECS = {"ag_gemm": "02_ag_gemm.py", "gemm_rs": "03_gemm_rs.py", "gemm_ar": "04_gemm_ar.py", "mlp": "05_mlp.py"}
SPECS |= dict.fromkeys(("reduce_scatter", "all_gather"), "11_reduce_scatter.py")
EXPERTS = "ep_layer"
SPECS[EXPERTS] = "09_ep_layer.py"
_WEIGHTS = {
    "ag_gemm": {"K": 4096, "N": 14336},
    "gemm_rs": {"K": 14336, "N": 4096},
    "gemm_ar": {"K": 14336, "N": 4096},
    "mlp": {"H": 4096, "F": 14336},
    "reduce_scatter": {"N": 4096},
    "all_gather": {"N": 4096},
}
ROWS = [(name, {"M": rows} | sizes) for rows in (2048, 8192) for name, sizes in _WEIGHTS.items()]
LAYERS = [
    (EXPERTS, {"T": tokens, "H": 4096, "F": 1536, "E": 32, "K": chosen}) for tokens, chosen in ((256, 4), (4096, 2))
]
FEW = [
    ("all_gather", {"M": rows, "N": 4096}) for rows in (16, 64, 256, 512)
]  # bytes: what counts is how soon they are there
# by stores a program is slower than a network card, which one program keeps busy
FORMS = {"one_program": {"mover": "Rails(1)"}, "programs": {"mover": "Rails(16)", "chunks": "8"}}
FORMS["stream"] = {"mover": "StreamRails(16)", "chunks": "2"}
FORMS["sends"] = {"mover": "LibraryRails(2)"}  # NCCL sends along rails, beside tiles
FORMS["library"] = {"mover": "Library()"}  # NCCL, in a plan
BY_NCCL = ("sends", "library")
# tokens by lists, or all of them; sums of what experts make by puts
SUMS = {"out_summand_parts.mover": "Rails(16)"}
OF_EXPERTS = {
    "needed": {"rows_value.mover": "NeededRails(8)"} | SUMS,
    "programs": {"rows_value.mover": "Rails(1)"} | SUMS,
}
ON_ONE_NODE = [
    *(("all_gather", {"M": rows, "N": 4096}) for rows in (60, 1000)),
    *(("reduce_scatter", {"M": rows, "N": 4096}) for rows in (16, 512)),
    *(("gemm_ar", {"M": rows, "K": 1024, "N": 4096}) for rows in (8, 64, 256)),
]
PROTOCOLS = {"packets": "ll", "lines": "ll128", "lamport": "lamport"}


def with_halves(topology: Topology, halves: int) -> Topology:
    """Nodes of so many halves, whose ranks are joined as all of them were."""
    if halves == 1:
        return topology
    inner, *further = topology.levels
    inside = replace(inner, size=inner.size // halves), replace(inner, size=halves, name=f"{inner.name} between halves")
    return replace(topology, levels=(*inside, *further))


def drawn(seed: int, count: int, ranks: int) -> list[tuple[str, dict[str, int]]]:
    rng, found = random.Random(seed), list[tuple[str, dict[str, int]]]()
    for _ in range(count):
        name = rng.choice(list(SPECS))
        if name == EXPERTS:
            sizes = {"H": 64 * rng.randint(8, 48), "F": 64 * rng.randint(4, 24), "K": rng.randint(1, 6)}
            found.append((name, {"T": ranks * rng.randint(20, 1500), "E": rng.randint(4, 24) * ranks} | sizes))
            continue
        sizes = {dim: 8 * ranks * rng.randint(4, 256) for dim in _WEIGHTS[name]}
        found.append((name, {"M": ranks * rng.randint(40, 2000)} | sizes))
    return found


def serial(name: str) -> Callable[..., torch.Tensor]:
    """NCCL and cuBLAS, one after the other."""
    ranks = dist.get_world_size()

    def gathered(x: torch.Tensor) -> torch.Tensor:
        full = x.new_empty(x.shape[0] * ranks, x.shape[1])
        dist.all_gather_into_tensor(full, x)
        return full

    def scattered(y: torch.Tensor) -> torch.Tensor:
        out = y.new_empty(y.shape[0] // ranks, y.shape[1])
        dist.reduce_scatter_tensor(out, y)
        return out

    def mlp(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
        full = gathered(x)
        return scattered((torch.nn.functional.silu(full @ gate) * (full @ up)) @ down)

    def reduced(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x @ w
        dist.all_reduce(y)
        return y

    every: dict[str, Callable[..., torch.Tensor]] = {
        "ag_gemm": lambda x, w: gathered(x) @ w,
        "gemm_rs": lambda x, w: scattered(x @ w),
        "gemm_ar": reduced,
        "mlp": mlp,
        "reduce_scatter": scattered,
        "all_gather": gathered,
    }
    return every[name]


def checked(
    name: str,
    sizes: dict[str, int],
    nodes: int,
    pins: dict[str, str],
    late_calls: int,
    target: str,
    most_sms: int,
    atomics: bool = True,
    halves: int = 1,
) -> dict[str, Any]:
    topology = with_halves(
        topologies.load(topology_of_gpus(), dist.get_world_size(), nodes if nodes > 1 else None), halves
    )
    if not atomics:
        topology = replace(topology, levels=tuple(replace(one, peer_atomics=False) for one in topology.levels))
    sms = torch.cuda.get_device_properties(0).multi_processor_count  # of this process
    if gpus_are_shared():  # shares that fill a GPU were not resident together: four of 33 SMs hung, of 22 they did not
        sms = sms * 2 // 3
    topology = replace(topology, gpu=replace(topology.gpu, num_sms=min(sms, most_sms, topology.gpu.num_sms)))
    rails = "Rails" in pins.get("mover", "")
    pins = pins | ({"algorithm": "two-shot"} if rails and name == "gemm_ar" else {})
    schedule = load_overlap(f"{EXAMPLES / SPECS[name]}:{name}").plan_for(topology, sizes, "bf16", pins)
    module = load_source(lowering.emit(schedule, target), name)
    fabric = fabric_class(module)
    hosts = {"per_node": dist.get_world_size() // nodes} if fabric.__name__ == "HostsFabric" else {}
    op = operator_class(module)(fabric(**hosts))
    facts = module.check_call(op, 0, 1)
    worst = torch.tensor([sum(one["wrong"] for one in facts), max(one["error"] for one in facts)], device="cuda")
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    sets = [list(module.make_inputs(dist.get_rank(), seed, op.fabric.device).values()) for seed in range(3)]
    found: dict[str, Any] = {
        "wrong": int(worst[0].item()),
        "error": round(worst[1].item(), 3),
        "predicted_us": schedule.predicted_us,
    }
    called = one_at_a_time(op) if gpus_are_shared() else op
    found["changed_late"] = changed_late(called, sets, 1, late_calls) if late_calls else 0
    found["movers"] = [exchange.mover.text for exchange in schedule.exchanges]
    if gpus_are_shared():
        return found
    found["us"] = slowest_us(lambda: op(*sets[0]))
    if name != EXPERTS:
        found["serial_us"] = slowest_us(lambda: serial(name)(*sets[0]))
    return found


def one_at_a_time(op: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Calls that the host waits for: many of eight ranks on two GPUs fill queues of which each waits for another one."""

    def call(*inputs: torch.Tensor) -> torch.Tensor:
        out = op(*inputs)
        torch.cuda.synchronize()
        return out

    return call


def measured(
    name: str,
    sizes: dict[str, int],
    nodes: int,
    late_calls: int,
    forms: dict[str, dict[str, str]],
    target: str,
    most_sms: int,
    atomics: bool,
    halves: int,
) -> dict[str, Any]:
    row: dict[str, Any] = {"operator": name, "sizes": sizes, "nodes": nodes, "target": target, "atomics": atomics}
    row |= {"halves": halves} if halves > 1 else {}
    local = dist.get_world_size() // nodes
    forms = {} if nodes == 1 else forms
    few = (name, sizes) in (*FEW, *ON_ONE_NODE) and atomics
    used = [one for one in PROTOCOLS if few and (nodes == 1 or one == "packets" or (one == "lines" and local > 1))]
    packets = {one: {"protocol": PROTOCOLS[one], "mover": "OwnKernel()"} for one in used}
    if name == EXPERTS:
        forms = {form: OF_EXPERTS[form] for form in OF_EXPERTS if form in forms}
    for form, pins in (forms | packets).items():
        spelt = "triton" if form in BY_NCCL else target
        if form == "needed" and name != EXPERTS:
            continue
        try:
            found = checked(name, sizes, nodes, pins, late_calls, spelt, most_sms, atomics, halves)
        except (
            NoLegalSchedule,
            IllegalPin,
        ):  # on all ranks alike: too few SMs for both, fewer rows than chunks, many packets
            row[f"{form}_planned"] = False
            continue
        row |= {f"{form}_{key}": value for key, value in found.items() if key != "serial_us"}
        row["serial_us"] = found.get("serial_us")
    if target == "triton" and not gpus_are_shared():  # a process has one kind of symmetric memory
        row["one_node_us"] = checked(name, sizes, 1, {}, 0, target, most_sms)["us"]
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--halves", type=int, default=1, help="of a node")
    parser.add_argument("--target", default="triton", help="triton-nvshmem puts by NVSHMEM")
    parser.add_argument("--drawn", default="", metavar="SEED:COUNT")
    parser.add_argument("--only-drawn", action="store_true")
    parser.add_argument("--operators", default=",".join(SPECS), help="of the rows that are not drawn")
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument(
        "--late-calls", type=int, default=1000, help="of each form of a row, with ranks that are late in turn"
    )
    parser.add_argument("--seconds", type=float, default=300.0, help="no row begins later")
    parser.add_argument("--pin", action="append", default=[], metavar="NAME=VALUE", help="for what is put, too")
    parser.add_argument("--sms", type=int, default=1 << 20, help="no plan takes more")
    parser.add_argument("--no-atomics", action="store_true", help="as if links inside of nodes carried none")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--commit", default="unknown")
    arguments = parser.parse_args()
    shared = torch.cuda.device_count() < int(os.environ["WORLD_SIZE"])
    (join_parts if shared else join)()
    more = ON_ONE_NODE if arguments.nodes == 1 else (*ROWS, *LAYERS)
    listed = [] if arguments.only_drawn else [row for row in (*FEW, *more) if row[0] in arguments.operators.split(",")]
    if arguments.drawn:
        seed, count = map(int, arguments.drawn.split(":"))
        listed += drawn(seed, count, dist.get_world_size())
    pins = dict(one.split("=", 1) for one in arguments.pin)
    forms = {form: fields if form in BY_NCCL else fields | pins for form, fields in (OF_EXPERTS | FORMS).items()}
    forms = {form: fields for form, fields in forms.items() if form in arguments.forms.split(",")}
    began, lines = time.monotonic(), list[dict[str, Any]]()
    for name, sizes in listed:
        late = torch.tensor([time.monotonic() - began > arguments.seconds], device="cuda")
        dist.broadcast(late, 0)
        if late.item():
            break
        about = arguments.nodes, arguments.late_calls, forms, arguments.target, arguments.sms, not arguments.no_atomics
        found = measured(name, sizes, *about, arguments.halves)
        lines.append(found | {"commit": arguments.commit, "machine": machine()})
        if dist.get_rank() == 0:
            print(json.dumps(lines[-1]), flush=True)
            if arguments.json is not None:
                arguments.json.write_text("".join(f"{json.dumps(one)}\n" for one in lines))
        torch.cuda.empty_cache()
    dist.destroy_process_group()
    sys.exit(
        1 if any(value for one in lines for key, value in one.items() if "wrong" in key or "changed" in key) else 0
    )


if __name__ == "__main__":
    main()
