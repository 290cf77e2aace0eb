"""How long planning takes in a warm process: search and choice, building the schedule that is given out, and its proof.

    python benchmarks/planning.py [--repeats 3] [--json FILE]

Prints a table in Markdown. Times are milliseconds of CPU, of one thread, the fastest of the repeats; the search remembers
nothing of the repeat before. The target is that of the search.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import tilelink
import topologies
from tilelink import Overlap, Shard, Tensor, dims
from tilelink.ir.spec import BoundSpec, bind
from tilelink.planner.build import build
from tilelink.planner.plan import search
from tilelink.proof.verify import verify
from tilelink.spec_file import load_overlap

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
TOPOLOGY, RANKS = "h200-nvswitch", 4
Result = TypeVar("Result")
M, H, F = dims("M H F")


@tilelink.overlap
def stack(
    x: Annotated[Tensor, (M, H), Shard(0)],
    up: Annotated[Tensor, (H, F), Shard(1)],
    down: Annotated[Tensor, (F, H), Shard(0)],
    up2: Annotated[Tensor, (H, F), Shard(1)],
    down2: Annotated[Tensor, (F, H), Shard(0)],
) -> Tensor:
    """Two layers: 4 matmuls, 4 collectives."""
    hidden = tilelink.silu(tilelink.matmul(tilelink.all_gather(x, dim=0), up))
    y = tilelink.reduce_scatter(tilelink.matmul(hidden, down), dim=0)
    hidden2 = tilelink.silu(tilelink.matmul(tilelink.all_gather(y, dim=0), up2))
    return tilelink.reduce_scatter(tilelink.matmul(hidden2, down2), dim=0)


@dataclass(frozen=True)
class Workload:
    name: str
    spec: Overlap
    sizes: dict[str, int]
    target_ms: float  # of the search

    @property
    def bound(self) -> BoundSpec:
        return bind(self.spec.spec, self.sizes, RANKS, "bf16")


@dataclass(frozen=True)
class Timed:
    """Milliseconds; `predicted_us`: of one call of what is planned."""

    workload: str
    target_ms: float
    search_ms: float
    build_ms: float
    proof_ms: float
    predicted_us: float


def workloads() -> tuple[Workload, ...]:
    large, layer = {"M": 8192, "K": 4096, "N": 14336}, {"M": 8192, "H": 4096, "F": 14336}
    return (
        Workload("AG+GEMM", load_overlap(f"{EXAMPLES}/02_ag_gemm.py:ag_gemm"), large, 20),
        Workload("GEMM+AR", load_overlap(f"{EXAMPLES}/04_gemm_ar.py:gemm_ar"), large, 60),
        Workload("MLP", load_overlap(f"{EXAMPLES}/05_mlp.py:mlp"), layer, 300),
        Workload("two layers", stack, layer, 1000),
    )


def timed(workload: Workload, repeats: int = 3) -> Timed:
    """The fastest of so many plans, after a smaller one that loads what all plans need."""
    topology, spec = topologies.load(TOPOLOGY, RANKS), workload.bound
    search(bind(workload.spec.spec, {**workload.sizes, "M": 512}, RANKS, "bf16"), topology, {})
    runs = []
    for _ in range(repeats):
        search_ms, (best, _) = _ms(partial(search, spec, topology, {}))
        build_ms, schedule = _ms(partial(build, best.problem))
        proof_ms, proof = _ms(partial(verify, schedule))
        assert proof.proved, f"the plan of {workload.name} is refuted"
        runs.append((search_ms, build_ms, proof_ms))
    search_ms, build_ms, proof_ms = (min(times) for times in zip(*runs, strict=True))
    return Timed(workload.name, workload.target_ms, search_ms, build_ms, proof_ms, schedule.predicted_us)


def _ms(run: Callable[[], Result]) -> tuple[float, Result]:
    start = time.process_time()
    result = run()
    return (time.process_time() - start) * 1e3, result


def table(rows: list[Timed]) -> str:
    lines = [
        "| workload | search ms | target ms | build ms | proof ms | predicted us |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        times = f"{row.search_ms:.1f} | {row.target_ms:.0f} | {row.build_ms:.1f} | {row.proof_ms:.1f}"
        lines.append(f"| {row.workload} | {times} | {row.predicted_us:.1f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the table there")
    options = parser.parse_args()
    rows = [timed(workload, options.repeats) for workload in workloads()]
    print(table(rows))
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
