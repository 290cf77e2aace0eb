"""On GPUs: folds of users over an axis that ranks share: each element, with late ranks, and times beside torch.compile and NCCL.

    torchrun --nproc-per-node 2 benchmarks/folds.py --json benchmarks/results/folds_2xh100.jsonl --drawn 7:12

Each element of three calls is checked against its bounds (`lowering/selfcheck`), in memory that no call has seen, where there is
room for all elements in float64; then bit by bit against the first results, while one rank or the other is late. Times are those
of CUDA graphs of several calls, of the slowest rank, the median of rounds that take turns. Calls take turns with inputs, and a
turn is larger than the L2. `compiled_us`: torch.compile makes the state of the own elements, NCCL gathers states, and what merges
them is compiled, too. `alone_us`: that without NCCL and the merge. `floor_us`: the bytes of the own elements at 2.75 TB/s.
`--tiles` times other tiles and splits as well.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist

import lowering
import topologies
from benchmarks.logarithms import changed_late, once_us
from tests.pipeline.fold_specs import HOWS, KINDS, spec_of
from tilelink.bench.machine import topology_of_gpus
from tilelink.errors import IllegalPin, NoLegalSchedule
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.ranks import join, machine

_ROUNDS, _CALLS, _FEW_CALLS, _FEW_BYTES = 7, 20, 4, 2**28
_TURN_BYTES, _MOST_SETS = 2**28, 16
_CHECKED = 2**28  # elements of all ranks, of which there is room for float64
_BYTES_A_US = 2.75e6
Tensors = list[torch.Tensor]


@dataclass(frozen=True)
class Row:
    kind: str
    how: str
    rows: int
    elements: int
    dtype: str = "bf16"

    @property
    def sizes(self) -> dict[str, int]:
        return {"M": self.rows, "N": self.elements}


def rows() -> Iterator[Row]:
    for tokens in (1, 64, 512, 4096, 8192):
        yield Row("losses", "all", tokens, 128256)
    for tokens in (1, 64, 1024, 8192):
        yield Row("norms", "all", tokens, 8192)
    yield Row("losses", "scattered", 4096, 128256)
    yield Row("norms", "scattered", 1024, 8192)
    yield Row("losses", "alone", 4096, 128256)
    yield Row("columns", "all", 1024, 8192)
    yield Row("products", "all", 1024, 8192)


def drawn(seed: int, count: int, ranks: int) -> Iterator[Row]:
    rng = random.Random(seed)
    for _ in range(count):
        kind, how = rng.choice([one for one in KINDS if one != "recurrences"]), rng.choice(HOWS)
        tokens = max(1, round(2 ** rng.uniform(0, 13)))
        elements = max(1, round(2 ** rng.uniform(5, min(17, 27 - tokens.bit_length()))))
        tokens *= ranks if how in ("scattered", "alone") else 1
        yield Row(kind, how, tokens, elements * ranks, rng.choice(["bf16", "fp32"]))


# ---- torch.compile and NCCL --------------------------------------------------------------------------------------------


def own_state(kind: str, first: int) -> Callable[..., torch.Tensor]:
    """The state of the own elements, [parts, M]."""

    def losses(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        top = wide.amax(1)
        weight = (wide - top[:, None]).exp().sum(1)
        place = labels.long() - first
        here = (place >= 0) & (place < x.shape[1])
        picked = wide.gather(1, place.clamp(0, x.shape[1] - 1)[:, None])[:, 0]
        return torch.stack([top, weight, torch.where(here, picked, 0.0)])

    def norms(x: torch.Tensor) -> torch.Tensor:
        return x.float().square().sum(1)[None]

    def sums(x: torch.Tensor) -> torch.Tensor:
        return x.float().sum(1)[None]

    def columns(x: torch.Tensor) -> torch.Tensor:
        return x.float().sum(0)[None]

    def products(x: torch.Tensor, y: torch.Tensor, bias: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        return ((x.float() + bias.float()[:, None]) * y.float() * gain.float()).sum(1)[None]

    return {"losses": losses, "norms": norms, "sums": sums, "columns": columns, "products": products}[kind]


def merged(kind: str, count: int) -> Callable[[torch.Tensor], tuple[torch.Tensor, ...]]:
    """Results of states [ranks, parts, M]."""

    def losses(states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        top = states[:, 0].amax(0)
        lse = top + ((states[:, 0] - top).exp() * states[:, 1]).sum(0).log()
        return lse - states[:, 2].sum(0), lse

    def norms(states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (torch.rsqrt(states[:, 0].sum(0) / count + 1e-6),)

    def plain(states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (states[:, 0].sum(0),)

    return {"losses": losses, "norms": norms}.get(kind, plain)


def compiled(row: Row, like: Tensors) -> dict[str, Callable[..., Any]]:
    torch._dynamo.reset()  # it refuses to compile one function for many shapes
    ranks, rank = dist.get_world_size(), dist.get_rank()
    shared = row.how in ("all", "scattered")
    own = row.elements // (ranks if shared else 1)
    local = torch.compile(own_state(row.kind, rank * own if shared else 0), fullgraph=True, dynamic=False)
    finish = torch.compile(merged(row.kind, row.elements), fullgraph=True, dynamic=False)
    state = local(*like)
    received = state.new_empty(ranks, *state.shape)
    exchanged = state.new_empty(ranks, state.shape[0], state.shape[1] // ranks) if row.how == "scattered" else received

    def whole(*inputs: torch.Tensor) -> Any:
        found = local(*inputs)
        if not shared:
            return finish(found[None])
        if row.how == "scattered":
            sent = found.view(found.shape[0], ranks, -1).transpose(0, 1).contiguous()
            dist.all_to_all_single(exchanged, sent)
        else:
            dist.all_gather_into_tensor(received, found)
        return finish(exchanged)

    return {"compiled": whole, "alone": local}


# ---- times -------------------------------------------------------------------------------------------------------------


def captured(op: Callable[..., Any], sets: list[Tensors], calls: int) -> Callable[[], float]:
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            op(*sets[0])
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            for number in range(calls):
                op(*sets[number % len(sets)])

    return lambda: once_us(graph, calls)


def in_turns(timed: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(rounds):
        for name, once in timed.items():
            times[name].append(once())
    return {f"{name}_us": round(median(each), 2) for name, each in times.items()}


def built(row: Row, pins: dict[str, str]) -> tuple[Any, Any, Any]:
    """Schedule, module and operator."""
    spec = spec_of(row.kind, row.how)
    plan = spec.plan_for(topologies.load(topology_of_gpus(), dist.get_world_size()), row.sizes, row.dtype, pins)
    module = load_source(lowering.emit(plan), plan.name)
    return plan, module, operator_class(module)(module.SymmetricMemoryFabric())


def swept(row: Row, sets: list[Tensors], calls: int, tiles: list[str]) -> Iterator[dict[str, Any]]:
    """Times of other tiles, `1x4096x1/4w2s2p`, or `1x4096x1/4w2s2p*4` with splits."""
    name = spec_of(row.kind, row.how).spec.outputs[0]
    for tile, _, splits in (one.partition("*") for one in tiles):
        pins = {f"{name}.fold": tile} | ({f"{name}.splits": splits} if splits else {})
        try:
            plan, _, op = built(row, pins)
        except (NoLegalSchedule, IllegalPin):
            continue
        us = in_turns({"swept": captured(op, sets, calls)}, 3)["swept_us"]
        yield {"pins": pins, "us": us, "predicted_us": round(plan.predicted_us, 2)}


def measured(row: Row, late_calls: int, seed: int, tiles: list[str], baselines: bool) -> dict[str, Any]:
    plan, module, op = built(row, {})
    rank = dist.get_rank()
    bytes_of = sum(one.numel() * one.element_size() for one in module.make_inputs(rank, seed, "cuda").values())
    many = max(1, min(_MOST_SETS, _TURN_BYTES // bytes_of))
    sets = [list(module.make_inputs(rank, seed + number, "cuda").values()) for number in range(many)]
    found: dict[str, Any] = {"row": f"{row.kind} {row.how} {row.rows} x {row.elements} {row.dtype}"}
    facts = list[dict[str, Any]]()
    if row.rows * row.elements <= _CHECKED:
        facts = [one for number in range(3) for one in module.check_call(op, number, seed + number)]
    wrong = torch.tensor([sum(one["wrong"] for one in facts)], device="cuda")
    dist.all_reduce(wrong)
    found |= {"checked": len(facts), "wrong": int(wrong), "error": max([one["error"] for one in facts], default=0.0)}
    returns = op if len(module.OUTPUTS) > 1 else lambda *inputs: (op(*inputs),)
    found |= {"late_calls": late_calls, "changed_late": changed_late(returns, sets[0], late_calls, seed)}
    calls = _FEW_CALLS if bytes_of > _FEW_BYTES else _CALLS
    timed = {"": captured(op, sets, calls)}
    others = compiled(row, sets[0]) if baselines else {}
    timed |= {name: captured(one, sets, calls) for name, one in others.items()}
    times = in_turns(timed, _ROUNDS)
    times["us"] = times.pop("_us")
    floor = round(bytes_of / _BYTES_A_US, 2)
    how = dict(plan.decided.collectives)[module.OUTPUTS[0]]
    chosen = f"{how.tile} {how.splits}" if how.tile else ""
    found |= times | {"floor_us": floor, "predicted_us": round(plan.predicted_us, 2), "chosen": chosen}
    if tiles:
        found["swept"] = list(swept(row, sets, calls, tiles))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--late-calls", type=int, default=1000, help="of each row")
    parser.add_argument("--drawn", default="", help="SEED:COUNT of random rows, behind the others")
    parser.add_argument("--tiles", default="", help="time these as well, 1x4096x1/4w2s2p,1x4096x1/4w2s*4: with splits")
    parser.add_argument("--rows", default="", help="numbers of rows, 0,3; else all")
    parser.add_argument("--no-baselines", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=400.0, help="no row begins later")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--commit", default="unknown")
    arguments = parser.parse_args()
    join()
    began, lines = time.monotonic(), list[dict[str, Any]]()
    every, tiles = list(rows()), [one for one in arguments.tiles.split(",") if one]
    if arguments.drawn:
        seed, _, count = arguments.drawn.partition(":")
        every += drawn(int(seed), int(count), dist.get_world_size())
    if arguments.rows:
        every = [every[int(number)] for number in arguments.rows.split(",")]
    for row in every:
        late = torch.tensor([time.monotonic() - began > arguments.seconds], device="cuda")
        dist.broadcast(late, 0)
        if late.item():
            break
        found = measured(row, arguments.late_calls, arguments.seed, tiles, not arguments.no_baselines)
        lines.append(found | {"commit": arguments.commit})
        if dist.get_rank() == 0:
            print(json.dumps(lines[-1]), flush=True)
            if arguments.json:
                arguments.json.write_text("".join(f"{json.dumps(one | {'machine': machine()})}\n" for one in lines))
        torch.cuda.empty_cache()
    dist.destroy_process_group()
    if any(one["wrong"] or one["changed_late"] for one in lines):
        sys.exit(1)


if __name__ == "__main__":
    main()
