"""Plans of some sixty cells (spec, sizes, machine, ranks, pins) as JSON, and what has changed between two such files.

    python lab/recorded_plans.py record plans.json
    python lab/recorded_plans.py compare before.json after.json

A record holds the choices, the predicted time in us, a hash of the schedule, and how long the search took in seconds.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import topologies
from benchmarks.planning import stack
from tests.planner import grid
from tilelink import Overlap
from tilelink.errors import TileLinkError
from tilelink.ir.spec import bind
from tilelink.planner.plan import plan

EXAMPLE = {"M": 8192, "K": 4096, "N": 14336, "H": 4096, "F": 14336}
RECORDED: tuple[tuple[Overlap, dict[str, int], str, int, dict[str, str]], ...] = (
    *(
        (spec, {**EXAMPLE, "M": rows}, "h200-nvswitch", ranks, {})
        for spec in (grid.ag_gemm, grid.gemm_rs, grid.gemm_ar)
        for rows, ranks in ((16, 2), (512, 4), (2048, 8), (8192, 4))
    ),
    *((grid.mlp, {**EXAMPLE, "M": rows}, "h200-nvswitch", ranks, {}) for rows, ranks in ((64, 2), (8192, 4))),
    (grid.mlp, EXAMPLE, "mi300x-full-mesh", 8, {}),
    (grid.ag_gemm, EXAMPLE, "mi300x-full-mesh", 8, {}),
    (grid.gemm_rs, EXAMPLE, "mi300x-full-mesh", 8, {}),
    (grid.gemm_ar, EXAMPLE, "l20-pcie", 2, {}),
    (grid.gemm_rs, EXAMPLE, "h800-2-nodes", 16, {}),
    (stack, EXAMPLE, "h200-nvswitch", 4, {}),
    (grid.ag_gemm, EXAMPLE, "h200-nvswitch", 4, {"mover": "CommSms(20)"}),
    (grid.ag_gemm, EXAMPLE, "h200-nvswitch", 4, {"x_full.chunks": "3", "nest": "chunk by chunk"}),
    (grid.ag_gemm, EXAMPLE, "h200-nvswitch", 4, {"tile": "128x128x64/4w4s"}),
    (grid.gemm_rs, EXAMPLE, "h200-nvswitch", 4, {"sum": "epilogue", "chunks": "4"}),
    (grid.gemm_rs, EXAMPLE, "h200-nvswitch", 4, {"mover": "CopyEngine()"}),
    (grid.gemm_rs, EXAMPLE, "h200-nvswitch", 4, {"compute": "library", "algorithm": "direct"}),
    (grid.gemm_ar, EXAMPLE, "h200-nvswitch", 4, {"outputs": "reused"}),
    (grid.gemm_ar, {**EXAMPLE, "M": 64}, "h200-nvswitch", 4, {"algorithm": "one-shot"}),
    (grid.gemm_ar, EXAMPLE, "h200-nvswitch", 4, {"algorithm": "two-shot", "transfer": "pull"}),
    (grid.mlp, EXAMPLE, "h200-nvswitch", 4, {"mover": "Fused()"}),
    (grid.mlp, EXAMPLE, "h200-nvswitch", 4, {"loop": "own", "algorithm": "direct"}),
    (grid.chain, EXAMPLE, "h200-nvswitch", 8, {"count": "late"}),
)


def cells() -> Iterator[tuple[grid.Cell, dict[str, str]]]:
    for spec, sizes, machine, ranks, pins in RECORDED:
        sizes = {name: sizes[name] for name in spec.spec.symbols()}
        yield grid.Cell(spec, sizes, topologies.load(machine, ranks)), pins
    for seed in range(28):
        (cell,) = grid.sampled_cells(1, seed)
        yield cell, {}


def record(path: Path) -> None:
    found: dict[str, object] = {}
    for cell, pins in cells():
        key = f"{cell} {pins}"
        bound = bind(cell.spec.spec, cell.sizes, cell.topology.num_ranks, "bf16")
        start = time.perf_counter()
        try:
            schedule = plan(bound, cell.topology, pins)
        except TileLinkError as error:
            found[key] = {"error": type(error).__name__}
            print(key, found[key], flush=True)
            continue
        seconds = time.perf_counter() - start
        choices = {name: str(value) for name, value in schedule.choices}
        found[key] = {"us": schedule.predicted_us, "seconds": seconds, "hash": schedule.hash, "choices": choices}
        print(f"{seconds:7.2f} s {schedule.predicted_us:10.1f} us {key}", flush=True)
    path.write_text(json.dumps(found, indent=1))


def compare(before: Path, after: Path) -> None:
    old, new = (json.loads(path.read_text()) for path in (before, after))
    counts = {"same": 0, "other choices, same time": 0, "better": 0, "worse": 0}
    for key, held in old.items():
        now = new.get(key)
        if now is None or "error" in held or "error" in now:
            verdict = "same" if now == held else "worse"
        elif now["choices"] == held["choices"]:
            verdict = "same" if now["hash"] == held["hash"] else "worse"
        elif abs(now["us"] - held["us"]) < 1e-9:
            verdict = "other choices, same time"
        else:
            verdict = "better" if now["us"] < held["us"] else "worse"
        counts[verdict] += 1
        if verdict != "same":
            print(f"{verdict}: {key}: {held.get('us')} -> {(now or {}).get('us')}")
            for name, value in held.get("choices", {}).items():
                changed = (now or {}).get("choices", {}).get(name)
                if changed != value:
                    print(f"    {name}: {value} -> {changed}")
    times = [sum(one.get("seconds", 0.0) for one in held.values()) for held in (old, new)]
    print(counts, f"{times[0]:.1f} s -> {times[1]:.1f} s")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["record", path]:
            record(Path(path))
        case ["compare", before, after]:
            compare(Path(before), Path(after))
        case _:
            sys.exit(__doc__)
