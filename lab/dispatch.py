"""On GPUs: rows that go to the ranks of their experts and back, with nothing done to them, next to NCCL's all_to_all.

    torchrun --nproc-per-node 2 lab/dispatch.py --json dispatch.json [--rows 0,1]

The operator is `combine(dispatch(x, routing), routing, weights)`. `planned` is what the planner picks; others move dispatched
rows otherwise. Index work is in the time, and ids change between replays.

Rows of the baseline go by `all_to_all_single`, which wants to be told on the host how many go to each rank. Each rank draws the
same number for every rank, so that these numbers are constants, which no real routing has. Calls are CUDA graphs of several
calls, in turns; the slowest rank counts.

`kernels`: of one call of each, one after the other, so that dispatch and combine can be told apart.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist

import topologies
from lab.experts import Call, attempt, kernels, say
from lab.one_launch import contender, graph_of, timed
from lab.written import leave, write
from tests.pipeline.expert_specs import SPECS
from tilelink.bench.machine import topology_of_gpus
from tilelink.errors import IllegalPin, NoLegalSchedule
from tilelink.ir.schedule import Schedule
from tilelink.runtime.ranks import join

# tokens a rank, hidden, experts, experts of a token
ROWS = ((4096, 4096, 16, 1), (128, 4096, 16, 1), (4096, 4096, 16, 8), (128, 4096, 16, 8), (128, 7168, 256, 8))
_MOVER, _TILE = "dispatch_out.mover", "dispatch_out_spread.tile"
_FETCHED, _SUM = "out_rows.transfer", "out.tile"
_SUM_TILES = ("16x128x0/4w1s8p", "16x256x0/4w1s8p", "32x128x0/4w1s8p", "16x512x0/8w1s4p", "32x256x0/8w1s4p")
_TILES = ("32x512x0/16w1s", "32x128x0/8w1s4p", "16x256x0/4w1s8p", "32x256x0/8w1s2p")
PINNED: tuple[dict[str, str], ...] = (
    *({_MOVER: "NeededRows()", _TILE: tile} for tile in _TILES),
    *({_MOVER: "NeededRows()", _FETCHED: "pull", _SUM: tile} for tile in _SUM_TILES),
    {_MOVER: "NeededRows()", "dispatch_out.transfer": "pull"},
    {_MOVER: "NeededRows()", "dispatch_out.transfer": "pull", _FETCHED: "pull"},
    {_MOVER: "CopyEngine()", _TILE: "32x128x0/8w1s4p"},
    {_MOVER: "CommSms(32)", "dispatch_out.transfer": "push"},
)
_DRAWINGS = 4
_BASELINE = "NCCL, all_to_all"


def schedules(sizes: dict[str, int]) -> dict[str, Schedule]:
    where = topologies.load(topology_of_gpus(), dist.get_world_size())
    spec = SPECS["there_and_back"]
    found: dict[str, Schedule] = {"planned": spec.plan_for(where, sizes, "bf16", {})}
    for pins in PINNED:
        label = " ".join(f"{name}={value}" for name, value in pins.items())
        try:
            found[label] = spec.plan_for(where, sizes, "bf16", pins)
        except (IllegalPin, NoLegalSchedule) as error:
            say(f"{label}: {error}")
    return found


def drawn(tokens: int, experts: int, choices: int, seed: int) -> torch.Tensor:
    """Ids of a rank: as many of each expert, and a token's differ where there are several."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(tokens, generator=generator)
    first = (torch.arange(tokens) * choices)[:, None] + torch.arange(choices)
    names = torch.randperm(experts, generator=generator)
    return names[first[order] % experts].int()


def baseline(x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, experts: int) -> Call:
    """A copy for each choice, as many to each rank."""
    ranks, choices = dist.get_world_size(), ids.shape[1]

    def call() -> torch.Tensor:
        order = torch.argsort(ids.flatten() // (experts // ranks), stable=True)
        sent = x[order // choices]
        there, back = torch.empty_like(sent), torch.empty_like(sent)
        dist.all_to_all_single(there, sent)
        dist.all_to_all_single(back, there)
        rows = torch.empty_like(back)
        rows[order] = back
        return (rows.view(len(x), choices, -1) * weights[..., None]).sum(1).to(x.dtype)

    return call


def measure(tokens: int, hidden: int, experts: int, choices: int) -> dict[str, Any]:
    ranks, failed = dist.get_world_size(), dict[str, str]()
    sizes = {"T": tokens * ranks, "H": hidden, "E": experts, "K": choices}
    say(f"{sizes}: plans")
    planned = schedules(sizes)
    tried = {label: attempt(label, failed, lambda one=one: contender(one)) for label, one in planned.items()}  # type: ignore[misc]
    made = {label: one for label, one in tried.items() if one is not None}
    names = [one.name for one in planned["planned"].spec.inputs]
    held = [inputs[names.index("ids")] for _, _, inputs in made.values()]
    drawings = [drawn(tokens, experts, choices, 100 * number + dist.get_rank()).cuda() for number in range(_DRAWINGS)]

    def take(number: int) -> None:
        for one in held:
            one.copy_(drawings[number % _DRAWINGS])

    take(0)
    calls: dict[str, Call] = {label: call for label, (call, _, _) in made.items()}
    inputs = dict(zip(names, next(iter(made.values()))[2], strict=True))
    calls[_BASELINE] = baseline(inputs["x"], inputs["ids"], inputs["weights"], experts)
    wanted: Any = calls["planned"]()
    wanted = wanted.clone()
    far = {}
    for label, call in calls.items():
        found: Any = call()
        far[label] = round(float((found.float() - wanted.float()).norm() / wanted.float().norm()), 5)
    graphs = {label: attempt(label, failed, lambda call=call: graph_of(call)) for label, call in calls.items()}  # type: ignore[misc]
    ready = {label: graph for label, graph in graphs.items() if graph is not None}
    return {
        "sizes": sizes,
        "ranks": ranks,
        "us": timed(ready, take),
        "predicted_us": {label: round(one.predicted_us, 1) for label, one in planned.items()},
        "right": {label: right for label, (_, right, _) in made.items()},
        "distance": far,
        "failed": failed,
        "kernels": {label: kernels(calls[label]) for label in ready},
        "choices": {label: dict(one.choices) for label, one in planned.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--rows", default="", help="numbers of rows, such as 0,1")
    arguments = parser.parse_args()
    join()
    chosen = {int(one) for one in arguments.rows.split(",") if one}
    written: list[dict[str, Any]] = []
    for number, row in enumerate(ROWS):
        if chosen and number not in chosen:
            continue
        written.append(measure(*row))
        say({key: value for key, value in written[-1].items() if key != "choices"})
        write(arguments.json, arguments.commit, written)
    leave()


if __name__ == "__main__":
    main()
