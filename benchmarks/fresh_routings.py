"""On GPUs: operators with experts called thousands of times, each time with another routing and another rank late.

    torchrun --nproc-per-node 2 benchmarks/fresh_routings.py --calls 2500 --json benchmarks/results/fresh_routings_2xh100.json

Nothing waits for the host between calls, so that a rank may run into the next call while another is late in this one. Every
element of each call is compared with rows that torch has computed for every token and every expert before. Each routing is
called twice, with other delays; both results have the same bits. A layer of experts of ranks whose rows return has the bits of
one with all experts on each rank, too.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist

import lowering
import topologies
from benchmarks.late_experts import EXPERTS
from benchmarks.late_ranks import OF_RESULT, OF_SPREAD, cut, routing, spread, whole_inputs
from tests.pipeline.expert_specs import alone
from tilelink.bench.machine import topology_of_gpus
from tilelink.declaration import Overlap
from tilelink.ir.schedule import Schedule
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.ranks import join, machine

_MOST_CYCLES = 200_000  # about a tenth of a millisecond
Given = dict[str, torch.Tensor]
Answer = Callable[[torch.Tensor], torch.Tensor]


def _at(rows: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """`rows[t, e]` of each token's experts, with zeros where it has none."""
    found = rows.gather(1, ids.clamp(min=0).long()[..., None].expand(-1, -1, rows.shape[2]))
    return torch.where((ids >= 0)[..., None], found, 0)


def _columns(given: Given) -> Answer:
    rows = torch.einsum("th,ehf->tef", given["x"], given["w"])
    return lambda ids: _at(rows, ids).flatten(0, 1)


def _summed(given: Given) -> Answer:
    tokens, choices = given["weights"].shape
    rows = torch.einsum("tjf,efh->tjeh", given["h"].view(tokens, choices, -1), given["w"])

    def answer(ids: torch.Tensor) -> torch.Tensor:
        found = _at(rows.flatten(0, 1), ids.reshape(-1, 1)).view(tokens, choices, -1)
        return (found * given["weights"][..., None]).sum(1)

    return answer


def _layer(given: Given) -> Answer:
    gate, up = (torch.einsum("th,ehf->tef", given["x"], given[name]) for name in ("gate", "up"))
    rows = torch.einsum("tef,efh->teh", torch.nn.functional.silu(gate) * up, given["down"])
    return lambda ids: (_at(rows, ids) * given["weights"][..., None]).sum(1)


def _back(given: Given) -> Answer:
    def answer(ids: torch.Tensor) -> torch.Tensor:
        return (given["x"][:, None] * torch.where(ids >= 0, given["weights"], 0)[..., None]).sum(1)

    return answer


ANSWERS: dict[str, Callable[[Given], Answer]] = {
    "experts, gather": _columns,
    "experts, scatter": _summed,
    "experts, reduce": _summed,
    "experts, layer of cut experts": _layer,
    "experts, layer of experts of ranks": _layer,
    "experts, gather of columns": _columns,
    "experts, own tiles first": _columns,
    "experts, layer by columns": _layer,
    "experts, layer with own tiles first": _layer,
    "experts, layer in packets": _layer,
    "experts, rows are fetched": _layer,
    "experts, rows at their places": _layer,
    "experts, there and back": _back,
}


_LAYER = "experts, layer of experts of ranks"
_COLUMNS, _FIRST = "experts, layer by columns", "experts, layer with own tiles first"
_FETCHED, _PLACED = "experts, rows are fetched", "experts, rows at their places"
PINS: dict[str, tuple[dict[str, object], ...]] = {
    _LAYER: (
        {"out.adder": "sender"},
        {"out.adder": "receiver"},
        {"out.adder": "sender", "rows_value.mover": "NeededRows()"},
        {"out.adder": "receiver", "rows_value.mover": "NeededRows()"},
    ),
    "experts, gather of columns": tuple({"x_full.cut": "columns", "x_full.chunks": chunks} for chunks in ("2", "4")),
    "experts, own tiles first": tuple(
        {"out.own": "first", "x_full.mover": one} for one in ("CopyEngine()", "CommSms(8)")
    ),
    _COLUMNS: tuple({"rows_value.cut": "columns", "out.adder": adder} for adder in ("sender", "receiver")),
    _FIRST: (
        {"h.own": "first", "rows_value.mover": "CopyEngine()", "out.adder": "receiver", "h.tile": "16x64x64/4w4s"},
        {"h.own": "first", "rows_value.mover": "NeededRows()", "out.adder": "receiver", "h.tile": "16x64x64/4w4s"},
        {"h.own": "first", "rows_value.mover": "NeededRows()", "out.adder": "sender"},
    ),
    "experts, layer in packets": tuple(
        {"ids_full.protocol": "ll", "rows_value.protocol": one, "weights_full.protocol": one}
        for one in ("ll", "lamport")
    ),
    _FETCHED: tuple(
        {"rows_value.mover": mover, "rows_value.transfer": "pull", "out.adder": "receiver", "out_rows.transfer": back}
        for mover, back in (("NeededRows()", "push"), ("NeededRows()", "pull"), ("CopyEngine()", "pull"))
    ),
    _PLACED: tuple(
        {"rows_value.mover": f"PlacedRows({tile.split('x')[0]})", "h.tile": tile, "out.adder": adder}
        for tile in ("16x64x64/4w4s", "64x128x64/4w4s", "128x128x64/8w4s")
        for adder in ("sender", "receiver")
    ),
    "experts, there and back": (
        {},
        {"dispatch_out.mover": "NeededRows()"},
        {"dispatch_out.mover": "NeededRows()", "dispatch_out.transfer": "pull", "out_rows.transfer": "pull"},
    ),
}


def _operator(spec: Overlap, sizes: dict[str, int], pins: Mapping[str, object]) -> tuple[Schedule, Any]:
    schedule = spec.plan_for(topologies.load(topology_of_gpus(), dist.get_world_size()), sizes, "bf16", pins)
    module = load_source(lowering.emit(schedule), schedule.name)
    return schedule, operator_class(module)(module.SymmetricMemoryFabric())


def run(name: str, sizes: dict[str, int], calls: int, seed: int, pins: Mapping[str, object]) -> dict[str, Any]:
    rank, ranks, family = dist.get_rank(), dist.get_world_size(), EXPERTS[name]
    schedule, operator = _operator(family.spec, sizes, pins)
    one_rank = None
    if name in (_LAYER, _COLUMNS, _FIRST, _FETCHED, _PLACED) and pins.get("out.adder") == "receiver":
        tiles = {pin: value for pin, value in schedule.choices if pin in ("h.tile", "grouped_matmul_out_3.tile")}
        _, one_rank = _operator(alone, sizes, tiles)
    whole, values = whole_inputs(schedule, 0), schedule.spec.inputs
    named = {value.name: one.float() for value, one in zip(values, whole, strict=True)}
    answer, at = ANSWERS[name](named), [value.name for value in values].index("ids")
    parts = [cut(one, value.placement, rank, ranks) for one, value in zip(whole, values, strict=True)]
    alike = torch.Generator(device="cuda").manual_seed(seed)
    apart = torch.Generator().manual_seed(seed + 1 + rank)
    wrong = torch.zeros(4, dtype=torch.int64, device="cuda")
    start = time.perf_counter()
    for call in range(calls):
        ids = routing(tuple(whole[at].shape), sizes["E"], call, alike)
        parts[at] = cut(ids, values[at].placement, rank, ranks)
        found = []
        for _ in range(2):
            torch.cuda._sleep(int(torch.randint(_MOST_CYCLES, (), generator=apart)))  # type: ignore[no-untyped-call]
            found.append(operator(*parts).clone())
        wanted = answer(ids)
        bound = wanted.abs() * OF_RESULT + OF_SPREAD * spread(wanted)
        mine, near = (cut(one, family.output, rank, ranks) for one in (wanted, bound))
        bad = ((found[0].float() - mine).abs() > near).sum() + found[0].isnan().sum()
        other = (found[0].view(torch.int16) != found[1].view(torch.int16)).sum()
        apart_from_one = torch.zeros_like(other)
        if one_rank is not None:
            held = [ids if place == at else one for place, one in enumerate(whole)]
            mine = cut(one_rank(*held), family.output, rank, ranks)
            apart_from_one = (found[0].view(torch.int16) != mine.contiguous().view(torch.int16)).sum()
        wrong += torch.stack((bad, (bad > 0).long(), other, apart_from_one))
    operator.check()
    dist.all_reduce(wrong)
    return {
        "family": name,
        "sizes": sizes,
        "choices": {one: str(value) for one, value in schedule.choices},
        "calls": 2 * calls,
        "seconds": round(time.perf_counter() - start, 1),
        **dict(
            zip(("wrong_elements", "wrong_calls", "other_bits", "other_than_one_rank"), wrong.tolist(), strict=True)
        ),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=200, help="routings of each operator and size")
    parser.add_argument("--only", default="", help="families with this in their name")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--commit", default="unknown")
    arguments = parser.parse_args()
    join()
    torch.backends.cuda.matmul.allow_tf32 = False
    rows = []
    for name, family in ((name, family) for name, family in EXPERTS.items() if arguments.only in name):
        for sizes, pins in product(family.sizes[1:], PINS.get(name, ({},))):
            rows.append(run(name, sizes, arguments.calls, arguments.seed, pins))
            if dist.get_rank() == 0:
                print(json.dumps({one: rows[-1][one] for one in rows[-1] if one != "choices"}), flush=True)
                if arguments.json is not None:
                    about = {"machine": machine(), "commit": arguments.commit, "seed": arguments.seed, "rows": rows}
                    arguments.json.write_text(json.dumps(about, indent=1))
    dist.barrier()
    torch.cuda.synchronize()
    dist.destroy_process_group()
    bad = ("wrong_calls", "other_bits", "other_than_one_rank")
    return 1 if any(row[what] for row in rows for what in bad) else 0


if __name__ == "__main__":
    sys.exit(main())
