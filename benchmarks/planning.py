"""How long planning takes in a warm process: search and choice, building the schedule that is given out, and its proof.

    make planning [JSON=FILE]

Tables of pytest-benchmark: CPU time of one thread, one table each for search, building and proof. A search remembers nothing of
the one before. The JSON also has what the design asks for, as `target_ms`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import tilelink
import topologies
from tilelink import Overlap, Shard, Tensor, dims
from tilelink.ir.spec import bind
from tilelink.planner.build import build
from tilelink.planner.plan import search
from tilelink.planner.timing import Candidate
from tilelink.proof.verify import verify
from tilelink.spec_file import load_overlap

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
ROUNDS = 5
TOPOLOGY, RANKS = "h200-nvswitch", 4
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
    search_ms: float | None = None  # what the design asks for
    proof_ms: float | None = None

    def searched(self) -> Candidate:
        """The best choices."""
        best, _ = search(bind(self.spec.spec, self.sizes, RANKS, "bf16"), topologies.load(TOPOLOGY, RANKS), {})
        return best

    @cached_property
    def best(self) -> Candidate:
        return self.searched()


_LARGE, _SHORT = {"M": 8192, "K": 4096, "N": 14336}, {"M": 8192, "K": 14336, "N": 4096}
_LAYER = {"M": 8192, "H": 4096, "F": 14336}
WORKLOADS = {
    one.name: one
    for one in (
        Workload("AG+GEMM", load_overlap(f"{EXAMPLES}/02_ag_gemm.py:ag_gemm"), _LARGE, 20),
        Workload("GEMM+RS", load_overlap(f"{EXAMPLES}/03_gemm_rs.py:gemm_rs"), _SHORT, proof_ms=100),
        Workload("GEMM+AR", load_overlap(f"{EXAMPLES}/04_gemm_ar.py:gemm_ar"), _LARGE, 60),
        Workload("MLP", load_overlap(f"{EXAMPLES}/05_mlp.py:mlp"), _LAYER, 300),
        Workload("two layers", stack, _LAYER, 1000),
    )
}
each = pytest.mark.parametrize("name", WORKLOADS)


@each
def test_search(name: str, benchmark: BenchmarkFixture) -> None:
    workload = WORKLOADS[name]
    benchmark.extra_info |= {"target_ms": workload.search_ms, "predicted_us": workload.best.us}
    benchmark.pedantic(workload.searched, rounds=ROUNDS)


@each
def test_build(name: str, benchmark: BenchmarkFixture) -> None:
    """Of choices that were just found: what the search has built is there."""
    benchmark.pedantic(build, setup=lambda: ((WORKLOADS[name].searched().problem,), {}), rounds=ROUNDS)


@each
def test_proof(name: str, benchmark: BenchmarkFixture) -> None:
    benchmark.extra_info |= {"target_ms": WORKLOADS[name].proof_ms}
    proof = benchmark.pedantic(verify, args=(build(WORKLOADS[name].best.problem),), rounds=ROUNDS)
    assert proof.proved
