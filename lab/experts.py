"""On GPUs: operators with experts next to NCCL with torch's grouped matmul, or with a fused loop, as CUDA graphs.

    torchrun --nproc-per-node 2 lab/experts.py --json experts.json [--only ag_moe] [--rows 0,1] [--skew all]

Contenders are timed in turns. `planned` is what the planner picks, others are pinned tiles. Baselines are those of
`tilelink bench` (`tilelink/bench/expert_baselines.py`): `NCCL, grouped`; `NCCL, fused`, with the fastest of a few tiles for each
skew; and `triton_kernels`, where that package can be imported, for example by PYTHONPATH. Without it the run is the same but for
this contender.

Routings are drawn by a skew (`tilelink/bench/routings.py`). Before each replay the ids are overwritten with those of another of
four drawings, outside of the time and the same for all contenders. The calls of a graph share a drawing. A row tells the largest
share of assignments that a rank has and the most rows that an expert has, in any drawing.

Every element of ours is compared with the spec in float64, with evenly spread experts. With each skew all contenders are compared
with `planned`: `distance` is the norm of the difference by the norm of the result. Rounding to bf16 explains some
thousandths. A contender that raises is named in `failed`, and the run goes on.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist

import topologies
from lab.one_launch import contender, graph_of, timed
from lab.written import leave, write
from tests.pipeline.expert_specs import SPECS
from tilelink.bench.expert_baselines import missing_package, package_layer
from tilelink.bench.expert_inputs import ExpertInputs, all_say
from tilelink.bench.fused_loop import Fused, tuned, with_fused_loop
from tilelink.bench.grouped_experts import shown, with_grouped_matmul
from tilelink.bench.machine import topology_of_gpus
from tilelink.bench.routings import DRAWINGS, Busiest, Routing, busiest, busiest_of, drawing
from tilelink.bench.rows import Operator
from tilelink.errors import IllegalPin, NoLegalSchedule
from tilelink.ir.schedule import Schedule
from tilelink.runtime.ranks import join

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
_GROUPED, _FUSED, _PACKAGE = "NCCL, grouped", "NCCL, fused", "triton_kernels"
_START = time.monotonic()
_Made = TypeVar("_Made")
Call = Callable[[], object]
SKEWS = tuple(one.value for one in Routing)
ROWS = {"ag_moe": _CUT, "moe_rs": _CUT, "ep_layer": _EXPERTS}
_PINNED: dict[str, tuple[dict[str, str], ...]] = {
    "ag_moe": (
        {"x_full.chunks": "1", "x_full.mover": "CopyEngine()", "out.own": "in order"},
        {"x_full.cut": "columns"},
        {"out.own": "first"},
    ),
    "moe_rs": tuple(
        {"grouped_matmul_out.tile": tile} for tile in ("128x128x64/4w3s2p", "128x256x64/8w3s", "64x256x64/4w4s")
    ),
    "ep_layer": (
        {"rows_value.chunks": "1", "rows_value.mover": "CopyEngine()", "h.own": "in order"},
        {"rows_value.cut": "columns"},
        {"h.own": "first"},
        {"rows_value.mover": "NeededRows()"},
        {"rows_value.mover": "PlacedRows(64)", "h.tile": "64x128x64/4w3s"},
        {"rows_value.mover": "PlacedRows(128)", "h.tile": "128x128x64/8w4s"},
    ),
}


def schedules(name: str, sizes: Mapping[str, int], pinned: bool) -> dict[str, Schedule]:
    """What the planner picks, and pinned tiles."""
    where = topologies.load(topology_of_gpus(), dist.get_world_size())
    found: dict[str, Schedule] = {"planned": SPECS[name].plan_for(where, sizes, "bf16", {})}
    for pins in _PINNED[name] if pinned else ():
        try:
            label = " ".join(f"{field}={value}" for field, value in pins.items())
            found[label] = SPECS[name].plan_for(where, sizes, "bf16", pins)
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


def say(text: object) -> None:
    """From one rank, with the seconds since the start."""
    if dist.get_rank() == 0:
        print(f"[{time.monotonic() - _START:.0f} s] {text}", flush=True)


def attempt(label: str, failed: dict[str, str], make: Callable[[], _Made]) -> _Made | None:
    """None where it fails on any rank; then `failed` says why. All ranks have to call it."""
    stream, problem, made = torch.cuda.current_stream(), "", None
    try:
        made = make()
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"[:500]
        traceback.print_exc()
        torch.cuda.set_stream(stream)  # a capture that fails may leave its own
    if all_say(not problem):
        return made
    failed[label] = problem or "failed on another rank"
    say(f"{label} failed: {failed[label]}")
    return None


class Routings:
    """Drawings of a skew, and all tensors of ids that hold one of them."""

    def __init__(self, operator: str, sizes: Mapping[str, int], held: Sequence[torch.Tensor]) -> None:
        self.held, self.sizes = held, sizes
        self.of_ranks = operator == "ep_layer"  # each rank has tokens and experts of its own
        self.drawings: list[torch.Tensor] = []

    def draw(self, skew: str) -> None:
        rank = dist.get_rank() if self.of_ranks else 0
        tokens, experts, choices = len(self.held[0]), self.sizes["E"], self.sizes["K"]
        routing = Routing(skew)
        every = [drawing(routing, tokens, experts, choices, number, rank) for number in range(DRAWINGS)]
        self.drawings = [one.cuda() for one in every]
        self.take(0)

    def take(self, number: int) -> None:
        for one in self.held:
            one.copy_(self.drawings[number % DRAWINGS])

    def busiest(self) -> Busiest:
        """The largest numbers of any drawing."""
        counts = torch.stack([one.flatten().bincount(minlength=self.sizes["E"]) for one in self.drawings])
        if self.of_ranks:
            dist.all_reduce(counts)
        return busiest_of(busiest(one.cpu(), dist.get_world_size(), of_ranks=self.of_ranks) for one in counts)


def distances(calls: Mapping[str, Call], failed: dict[str, str]) -> dict[str, float]:
    """Of the results of contenders from that of the first, which is `planned`, on the rank where it is the largest."""

    def result(call: Call) -> torch.Tensor:
        found: Any = call()
        return (shown(found)[0] if isinstance(found, tuple) else found).float()

    wanted, found = result(next(iter(calls.values()))).clone(), {}
    for label, call in calls.items():
        far = attempt(label, failed, lambda call=call: (result(call) - wanted).norm() / wanted.norm())  # type: ignore[misc]
        if far is not None:
            far = far.nan_to_num(nan=torch.inf)
            dist.all_reduce(far, dist.ReduceOp.MAX)
            found[label] = round(float(far), 5)
    return found


class Contenders:
    """Of a row: ours and baselines of one form as graphs, and the fused one, whose tile is tuned for each skew."""

    def __init__(self, layer: ExpertInputs, ours: Mapping[str, Call], failed: dict[str, str]) -> None:
        self.calls, self.graphs = dict(ours), dict[str, torch.cuda.CUDAGraph]()
        grouped = attempt(_GROUPED, failed, lambda: with_grouped_matmul(layer))
        self.calls |= {_GROUPED: grouped} if grouped else {}
        if layer.on_ranks and not missing_package():
            package = attempt(_PACKAGE, failed, lambda: package_layer(layer))
            self.calls |= {_PACKAGE: package} if package else {}
        self.fused: Fused | None = attempt(_FUSED, failed, lambda: with_fused_loop(layer))
        for label, call in list(self.calls.items()):
            self._capture(label, call, failed)

    def _capture(self, label: str, call: Call, failed: dict[str, str]) -> None:
        self.calls.pop(label, None)
        self.graphs.pop(label, None)
        graph = attempt(label, failed, lambda: graph_of(call))
        if graph is not None:
            self.calls[label], self.graphs[label] = call, graph

    def tune(self, failed: dict[str, str]) -> dict[str, float]:
        """For the routing that the ids hold now: microseconds between collectives with each tile."""
        fused = self.fused
        found = attempt(_FUSED, failed, lambda: tuned(fused)) if fused else None
        self.calls.pop(_FUSED, None)
        self.graphs.pop(_FUSED, None)
        if fused is None or found is None:
            return {}
        best = min(found, key=lambda tile: found[tile])
        self._capture(_FUSED, lambda: fused.whole(best), failed)
        return {str(tile): round(us, 1) for tile, us in sorted(found.items(), key=lambda one: one[1]) if us < torch.inf}


def measure(name: str, row: tuple[int, ...], pinned: bool, skews: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A result for each skew."""
    tokens, hidden, width, experts, choices = row
    ranks, failed = dist.get_world_size(), dict[str, str]()
    sizes = {"T": tokens * ranks, "H": hidden, "F": width, "E": experts, "K": choices}
    say(f"{name} {sizes}: plans")
    planned = schedules(name, sizes, pinned)
    tried = {label: attempt(label, failed, lambda one=one: contender(one)) for label, one in planned.items()}  # type: ignore[misc]
    made = {label: one for label, one in tried.items() if one is not None}
    about = {"operator": name, "sizes": sizes, "ranks": ranks}
    if "planned" not in made:
        yield about | {"failed": failed}
        return
    inputs = dict(zip((one.name for one in planned["planned"].spec.inputs), made["planned"][2], strict=True))
    place = list(inputs).index("ids")
    routings = Routings(name, sizes, [held[place] for _, _, held in made.values()])
    routings.draw(skews[0])
    say("graphs")
    ours = {label: call for label, (call, _, _) in made.items()}
    contenders = Contenders(ExpertInputs(Operator(name), inputs, experts), ours, failed)
    for skew in skews:
        say(f"{skew}: tiles of the fused loop")
        routings.draw(skew)
        now = dict(failed)
        tuning, most = contenders.tune(now), routings.busiest()
        if not contenders.calls:
            yield about | {"skew": skew, "failed": now}
            continue
        far = distances(contenders.calls, now)
        graphs = {label: graph for label, graph in contenders.graphs.items() if label in far}
        say(f"{skew}: {len(graphs)} contenders in turns")
        yield about | {
            "skew": skew,
            "busiest_rank_share": most.rank_share,
            "busiest_expert_rows": most.expert_rows,
            "us": timed(graphs, routings.take),
            "predicted_us": {label: round(one.predicted_us, 1) for label, one in planned.items()},
            "right": {label: right for label, (_, right, _) in made.items()},
            "distance": far,
            "fused_tiles_us": tuning,
            "failed": now,
            "kernels": {label: kernels(contenders.calls[label]) for label in graphs} if skew == skews[0] else {},
            "choices": {label: dict(one.choices) for label, one in planned.items()},
        }


def results(rows: Sequence[tuple[str, _Row]], pinned: bool, skews: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Of all rows; one that raises is a result with the reason."""
    for name, row in rows:
        try:
            yield from measure(name, row, pinned, skews)
        except Exception as error:
            traceback.print_exc()
            yield {"operator": name, "row": row, "failed": {"row": f"{type(error).__name__}: {error}"[:500]}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--only", default="")
    parser.add_argument("--rows", default="", help="numbers of rows of each operator, such as 2,4")
    parser.add_argument("--pinned", action="store_true", help="pinned tiles, too")
    parser.add_argument("--skew", choices=(*SKEWS, "all"), default="uniform", help="how likely experts are")
    arguments = parser.parse_args()
    join()
    chosen = {int(one) for one in arguments.rows.split(",") if one}
    rows = [
        (name, row)
        for name, found in ROWS.items()
        for number, row in enumerate(found)
        if arguments.only in name and (not chosen or number in chosen)
    ]
    written: list[dict[str, Any]] = []
    for result in results(rows, arguments.pinned, SKEWS if arguments.skew == "all" else (arguments.skew,)):
        written.append(result)
        say({key: value for key, value in result.items() if key != "choices"})
        write(arguments.json, arguments.commit, written)
    leave()


if __name__ == "__main__":
    main()
