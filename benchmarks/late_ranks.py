"""On GPUs: schedules of every family with one rank late in turn, each element of each call against the definition in torch.

    torchrun --nproc-per-node 2 benchmarks/late_ranks.py --calls 60 --seconds 500 --json benchmarks/results/late_ranks_2xh100.json

The proof and the emulator look at source; this looks at what is compiled. Before each call the ranks meet, one of them sleeps for
a millisecond, and inputs are other ones than in the call before, so that what is loaded or published too early is wrong.
Schedules are taken in turns from all families, in an order by --seed, until the time is used up. The reference is computed in
fp32 on whole tensors and shares nothing with this project. `--list` prints the schedules without a GPU. `--write-plans FILE
--ranks 2` plans without a GPU, too; `--plans FILE` runs what was planned, so that GPUs do not wait for it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist

import lowering
import topologies
from benchmarks.late_experts import EXPERTS
from benchmarks.late_specs import FAMILIES as STATIC
from benchmarks.late_specs import Family
from tilelink.errors import TileLinkError
from tilelink.ir.placement import Placement
from tilelink.ir.schedule import Schedule
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.meaning import cut as held_by
from tilelink.runtime.ranks import join, machine
from topologies.topology import Topology

SETS = 6  # of inputs, taken in turn
FAMILIES = STATIC | EXPERTS
_LATE_CYCLES = 2_000_000  # about a millisecond
# an element may be off by roundings of a result, and of summands of about the sum's own spread; a part that is not there is
# off by the spread itself
OF_RESULT, OF_SPREAD = 2.0**-6, 2.0**-4


@dataclass(frozen=True, slots=True)
class Case:
    family: str
    sizes: dict[str, int]
    pins: dict[str, str]
    schedule: Schedule


def cases(topology: Topology, seed: int, only: str = "") -> list[Case]:
    """Legal schedules that differ, families in turn."""
    rng = random.Random(seed)
    queues = [list(_of_family(name, family, topology)) for name, family in FAMILIES.items() if only in name]
    for queue in queues:
        rng.shuffle(queue)
    return [one for row in itertools.zip_longest(*queues) for one in row if one is not None]


def _of_family(name: str, family: Family, topology: Topology) -> Iterator[Case]:
    seen: set[str] = set()
    for sizes in family.sizes:
        for values in itertools.product(*family.pins.values()):
            pins = dict(zip(family.pins, values, strict=True))
            try:
                schedule = family.spec.plan_for(topology, sizes, "bf16", pins)
            except TileLinkError:
                continue
            key = schedule.to_json()
            if key not in seen:
                seen.add(key)
                yield Case(name, sizes, pins, schedule)


def as_json(case: Case) -> dict[str, object]:
    return {"family": case.family, "sizes": case.sizes, "pins": case.pins, "schedule": case.schedule.to_json()}


def read(plans: Path) -> list[Case]:
    return [Case(**{**one, "schedule": Schedule.from_json(one["schedule"])}) for one in json.loads(plans.read_text())]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=500.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", default="")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only", default="", help="families whose names have this in them")
    parser.add_argument("--ranks", type=int, default=2, help="of --list and --write-plans")
    parser.add_argument("--write-plans", type=Path)
    parser.add_argument("--plans", type=Path)
    arguments = parser.parse_args()
    if arguments.list or arguments.write_plans:
        found = cases(topologies.load("h100-nvswitch", arguments.ranks), arguments.seed, arguments.only)
        for case in found:
            print(case.family, case.sizes, case.pins)
        if arguments.write_plans:
            arguments.write_plans.write_text(json.dumps([as_json(case) for case in found]))
        return 0
    join()
    torch.backends.cuda.matmul.allow_tf32 = False
    result = measure(arguments)
    dist.barrier()
    torch.cuda.synchronize()
    dist.destroy_process_group()
    return 1 if result["wrong_calls"] else 0


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run cases until the time is over; rank 0 decides when, so that all ranks run the same ones."""
    start = time.perf_counter()
    topology = topologies.load(
        "h100-nvswitch" if "H100" in torch.cuda.get_device_name() else "h200-nvswitch", dist.get_world_size()
    )
    todo = read(arguments.plans) if arguments.plans else cases(topology, arguments.seed, arguments.only)
    rows: list[dict[str, Any]] = []

    def found() -> dict[str, Any]:
        return {
            "machine": machine(),
            "torch": torch.__version__,
            "commit": arguments.commit,
            "seed": arguments.seed,
            "planned": len(todo),
            "schedules": len(rows),
            "calls": sum(row["calls"] for row in rows),
            "wrong_calls": sum(row["wrong_calls"] for row in rows),
            "wrong_elements": sum(row["wrong_elements"] for row in rows),
            "seconds": time.perf_counter() - start,
            "rows": rows,
        }

    for case in todo:
        going = torch.tensor([float(time.perf_counter() - start < arguments.seconds)], device="cuda")
        dist.broadcast(going, 0)
        if not going.item():
            break
        rows.append(run(case, arguments.calls))
        if dist.get_rank() == 0:
            print(json.dumps(rows[-1]), flush=True)
            if arguments.json:  # after each, so that a run that is cut off leaves what it has found
                Path(arguments.json).write_text(json.dumps(found(), indent=1))
    return found()


def run(case: Case, calls: int) -> dict[str, Any]:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    family = FAMILIES[case.family]
    module = load_source(lowering.emit(case.schedule), case.schedule.name)
    operator = operator_class(module)(module.SymmetricMemoryFabric())
    given = [whole_inputs(case.schedule, number) for number in range(SETS)]
    parts = [
        [cut(one, value.placement, rank, ranks) for one, value in zip(some, case.schedule.spec.inputs, strict=True)]
        for some in given
    ]
    wanted = [bounds(family, some, rank, ranks) for some in given]
    wrong_calls = torch.zeros((), dtype=torch.int64, device="cuda")
    wrong_elements = torch.zeros((), dtype=torch.int64, device="cuda")
    for call in range(calls):
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        if rank == call % ranks:
            torch.cuda._sleep(_LATE_CYCLES)  # type: ignore[no-untyped-call]
        out = operator(*parts[call % SETS])
        result, bound = wanted[call % SETS]
        bad = ((out.float() - result).abs() > bound).sum() + out.isnan().sum()
        wrong_calls += bad > 0
        wrong_elements += bad
    both = torch.stack((wrong_calls, wrong_elements))
    dist.all_reduce(both)
    del operator
    return {
        "family": case.family,
        "sizes": case.sizes,
        "pins": case.pins,
        "choices": {name: str(value) for name, value in case.schedule.choices},
        "calls": calls,
        "wrong_calls": int(both[0]),
        "wrong_elements": int(both[1]),
    }


def whole_inputs(schedule: Schedule, number: int) -> list[torch.Tensor]:
    """The same on every rank; products have a spread near 1."""
    generator = torch.Generator(device="cuda").manual_seed(100 + number)
    experts = dict(schedule.spec.sizes).get("E", 0)
    found = []
    for value in schedule.spec.inputs:
        if value.dtype == "int32":
            found.append(routing(value.shape, experts, number, generator))
            continue
        scale = 1.0 if value.name in ("x", "h") else value.shape[-2] ** -0.5
        drawn = torch.randn(value.shape, generator=generator, device="cuda") * scale
        found.append(drawn.abs() if value.dtype == "fp32" else drawn.bfloat16())
    return found


def routing(shape: tuple[int, ...], experts: int, number: int, generator: torch.Generator) -> torch.Tensor:
    """Experts of each token, of another kind for each number."""
    ids = torch.randint(-1, experts, shape, generator=generator, device="cuda", dtype=torch.int32)
    kinds = (
        lambda: ids,  # also dropped ones, and one expert twice
        lambda: torch.full_like(ids, experts - 1),  # all to one expert
        lambda: ids.clamp(-1, max(experts // 2 - 1, 0)),  # none to the experts of the last ranks
        lambda: torch.where(torch.rand(shape, generator=generator, device="cuda") < 0.9, -1, ids),  # nearly none
        lambda: torch.full_like(ids, -1),  # none at all
        lambda: torch.rand(shape[0], experts, generator=generator, device="cuda").argsort(1)[:, : shape[1]].int(),
    )
    return kinds[number % len(kinds)]()


def cut(whole: torch.Tensor, placement: Placement, rank: int, ranks: int) -> torch.Tensor:
    return held_by(whole, placement, rank, ranks).contiguous()


def bounds(family: Family, whole: list[torch.Tensor], rank: int, ranks: int) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's part of what is wanted, and how far each element may be off."""
    result = family.meaning(*(one.float() if one.is_floating_point() else one for one in whole))
    bound = result.abs() * OF_RESULT + OF_SPREAD * spread(result)
    return cut(result, family.output, rank, ranks), cut(bound, family.output, rank, ranks)


def spread(result: torch.Tensor) -> torch.Tensor:
    """Of elements that are not zero: of tokens that have experts."""
    return (result.square().sum() / (result != 0).sum().clamp(min=1)).sqrt()


if __name__ == "__main__":
    sys.exit(main())
