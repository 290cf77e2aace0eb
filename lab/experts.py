"""On GPUs: operators with experts next to NCCL, a stable sort and torch's grouped matmul, as CUDA graphs.

    torchrun --nproc-per-node 2 lab/experts.py --json experts.json [--only ag_moe]

Contenders are timed in turns. `planned` is what the planner picks, others are pinned tiles. Baselines do all index work inside
of the time, as ours do. Every element of ours is compared with the spec in float64.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist

import topologies
from lab.one_launch import contender, graph_of, timed
from tests.pipeline.expert_specs import SPECS
from tilelink.bench.machine import topology_of_gpus
from tilelink.errors import IllegalPin, NoLegalSchedule
from tilelink.ir.schedule import Schedule
from tilelink.runtime.ranks import join, machine

# tokens a rank, hidden, width of an expert, experts, experts of a token
_Row = tuple[int, int, int, int, int]
_CUT: tuple[_Row, ...] = (
    (256, 2048, 1408, 60, 4),
    (256, 14336, 4096, 8, 2),
    (1024, 5120, 1536, 160, 6),
    (2048, 4096, 14336, 8, 2),
)
_CUT += ((128, 2048, 768, 128, 8), (4096, 2048, 768, 128, 8))
_EXPERTS: tuple[_Row, ...] = (
    (1, 2048, 768, 128, 8),
    (8, 2048, 768, 128, 8),
    (128, 2048, 768, 128, 8),
    (4096, 2048, 768, 128, 8),
)
_EXPERTS += ((2048, 4096, 14336, 8, 2),)
_CALLS = 5  # that are looked at kernel by kernel
ROWS = {"ag_moe": _CUT, "moe_rs": _CUT, "ep_layer": _EXPERTS}
_PINNED: dict[str, tuple[dict[str, str], ...]] = {
    "ag_moe": tuple({"out.tile": tile} for tile in ("64x128x64/4w4s", "128x128x64/8w3s", "128x256x64/8w3s")),
    "moe_rs": (
        *({"grouped_matmul_out.tile": tile} for tile in ("64x256x64/4w4s", "128x256x64/8w3s")),
        *({"combine_out.tile": tile} for tile in ("32x256x0/8w1s2p", "16x256x0/4w1s4p", "16x512x0/4w1s4p")),
    ),
    "ep_layer": (),
}


def by_experts(ids: torch.Tensor, experts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Assignments in the order of experts, and where each expert's end."""
    flat = ids.flatten().long()
    counts = torch.zeros(experts, device=flat.device, dtype=torch.int64).scatter_add_(0, flat, torch.ones_like(flat))
    return torch.argsort(flat, stable=True), torch.cumsum(counts, 0).int()


def grouped(rows: torch.Tensor, w: torch.Tensor, ids: torch.Tensor, experts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Products in the order of experts, and that order. `w` lies as torch wants it."""
    order, ends = by_experts(ids, experts)
    of_tokens = len(rows) == len(ids)
    return torch._grouped_mm(rows[order // ids.shape[1] if of_tokens else order], w, ends), order


def back(found: torch.Tensor, order: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Weighted sums of tokens."""
    placed = torch.empty_like(found)
    placed[order] = found
    return (placed.view(*weights.shape, -1).float() * weights[..., None]).sum(1).to(found.dtype)


def baseline(name: str, inputs: Mapping[str, torch.Tensor], experts: int) -> Callable[[], object]:
    """NCCL and torch's grouped matmul; of a layer of experts of ranks the form by AllGather and ReduceScatter."""
    ranks, rank = dist.get_world_size(), dist.get_rank()

    def gathered(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(ranks * len(x), *x.shape[1:], dtype=x.dtype, device=x.device)
        dist.all_gather_into_tensor(out, x)
        return out

    def scattered(y: torch.Tensor) -> torch.Tensor:
        out = torch.empty(len(y) // ranks, y.shape[1], dtype=y.dtype, device=y.device)
        dist.reduce_scatter_tensor(out, y)
        return out

    def turned(w: torch.Tensor) -> torch.Tensor:  # column-major for each expert, as torch takes it
        return w.transpose(1, 2).contiguous().transpose(1, 2)

    if name == "ag_moe":
        x, ids, w = inputs["x"], inputs["ids"], turned(inputs["w"])
        return lambda: grouped(gathered(x), w, ids, experts)
    if name == "moe_rs":
        h, ids, weights, w = inputs["h"], inputs["ids"], inputs["weights"], turned(inputs["w"])
        return lambda: scattered(back(*grouped(h, w, ids, experts), weights))
    own = experts // ranks
    gate, up, down = (turned(inputs[one]) for one in ("gate", "up", "down"))

    def layer() -> torch.Tensor:
        xf, ids, weights = (gathered(inputs[one]) for one in ("x", "ids", "weights"))
        here = ids - rank * own
        mine = (here >= 0) & (here < own)
        order, ends = by_experts(torch.where(mine, here, own), own + 1)
        ends = ends[:own]
        rows = xf[order // ids.shape[1]]
        h = torch.nn.functional.silu(torch._grouped_mm(rows, gate, ends)) * torch._grouped_mm(rows, up, ends)
        y = back(torch._grouped_mm(h, down, ends).nan_to_num_(), order, torch.where(mine, weights, 0))
        return scattered(y)

    return layer


def schedules(name: str, sizes: Mapping[str, int], pinned: bool) -> dict[str, Schedule]:
    """What the planner picks, and pinned tiles."""
    where = topologies.load(topology_of_gpus(), dist.get_world_size())
    found: dict[str, Schedule] = {"planned": SPECS[name].plan_for(where, sizes, "bf16", {}, log=lambda line: None)}
    for pins in _PINNED[name] if pinned else ():
        try:
            label = " ".join(f"{field}={value}" for field, value in pins.items())
            found[label] = SPECS[name].plan_for(where, sizes, "bf16", pins, log=lambda line: None)
        except (IllegalPin, NoLegalSchedule) as error:
            print(f"{pins}: {error}", flush=True)
    return found


def kernels(call: Callable[[], object]) -> dict[str, float]:
    """Microseconds of each kernel and copy in a call, one after the other: what they take together may be less."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        for _ in range(_CALLS):
            call()
        torch.cuda.synchronize()
    times = {one.key: one.self_device_time_total / _CALLS for one in found.key_averages()}
    return {name[:60]: round(us, 1) for name, us in times.items() if us >= 0.1}


def measure(name: str, row: tuple[int, ...], pinned: bool) -> dict[str, Any]:
    tokens, hidden, width, experts, choices = row
    ranks = dist.get_world_size()
    sizes = {"T": tokens * ranks, "H": hidden, "F": width, "E": experts, "K": choices}
    planned = schedules(name, sizes, pinned)
    made = {label: contender(schedule) for label, schedule in planned.items()}
    inputs = dict(zip((one.name for one in planned["planned"].spec.inputs), made["planned"][2], strict=True))
    ids = inputs["ids"]  # experts of a token differ, and are spread evenly
    generator = torch.Generator(device="cuda").manual_seed(0 if ids.shape[0] == sizes["T"] else dist.get_rank())
    drawn = torch.rand(ids.shape[0], experts, generator=generator, device="cuda").argsort(1)[:, :choices].int()
    for _, _, held in made.values():
        held[list(inputs).index("ids")].copy_(drawn)
    calls = {label: call for label, (call, _, _) in made.items()} | {"NCCL": baseline(name, inputs, experts)}
    graphs = {label: graph_of(call) for label, call in calls.items()}
    return {
        "operator": name,
        "sizes": sizes,
        "ranks": ranks,
        "us": timed(graphs),
        "predicted_us": {label: round(one.predicted_us, 1) for label, one in planned.items()},
        "right": {label: right for label, (_, right, _) in made.items()},
        "kernels": {label: kernels(call) for label, (call, _, _) in made.items()},
        "choices": {label: dict(one.choices) for label, one in planned.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--only", default="")
    parser.add_argument("--rows", default="", help="numbers of rows of each operator, such as 2,4")
    parser.add_argument("--pinned", action="store_true", help="pinned tiles, too")
    arguments = parser.parse_args()
    join()
    rows = []
    chosen = {int(one) for one in arguments.rows.split(",") if one}
    every = [(name, number, row) for name, found in ROWS.items() for number, row in enumerate(found)]
    for name, number, sizes in every:
        if arguments.only not in name or (chosen and number not in chosen):
            continue
        rows.append(measure(name, sizes, arguments.pinned))
        if dist.get_rank() == 0:
            print(
                {one: rows[-1][one] for one in ("operator", "sizes", "us", "predicted_us", "right", "kernels")},
                flush=True,
            )
            if arguments.json is not None:
                about = {"machine": machine(), "commit": arguments.commit, "rows": rows}
                arguments.json.write_text(json.dumps(about, indent=1))
    dist.barrier()
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
