"""Planned schedules as steps, printed by the printer of steps: they compute bit by bit what today's emitted files compute."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

import topologies
from lowering.steps.file import lower
from lowering.steps.planned import lower_planned
from lowering.steps.renaming import with_own_names
from tests.pipeline.workloads import load
from tests.proof.test_refuted import CASES, planned
from tests.schedule.judged import hostile, poisoned
from tilelink.compiled.check import check_compiled
from tilelink.elaborate.schedule import elaborated
from tilelink.emulator import RaceDetector, World
from tilelink.ir.schedule import Schedule
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.run import run_emulated

PLANNED = sorted({base for base, _, _ in CASES.values()})


def results(module: ModuleType, ranks: int, seed: int, calls: int = 3) -> list[torch.Tensor]:
    """What the ranks give back in `calls` calls."""
    world = World(ranks, seed=seed, policy=hostile(seed, ranks), observers=[RaceDetector(ranks)])
    build = operator_class(module)
    generator = torch.Generator().manual_seed(seed)
    kept = []
    with poisoned():
        operators = [build(fabric) for fabric in world.fabrics]
        for _ in range(calls):
            for rank, operator in enumerate(operators):
                shapes = build.INPUTS.values()  # type: ignore[attr-defined]
                inputs = [torch.randint(-2, 3, shape, generator=generator).to(dtype) for shape, dtype in shapes]
                outs = operator(*inputs)
                for out in outs if isinstance(outs, tuple) else (outs,):
                    kept.append(torch.empty(out.numel(), dtype=out.dtype))
                    world.fabrics[rank].main().copy(kept[-1], out.reshape(-1))
        world.run()
    return kept


SMALL = {"M": 32, "K": 64, "N": 256}
RAGGED = {"M": 44, "K": 68, "N": 52}
PACKETS: dict[str, tuple[str, int, dict[str, int], str]] = {  # workload, ranks, sizes, algorithm
    "numbered gather": ("02_ag_gemm.py:ag_gemm", 4, SMALL, "ll"),
    "gather": ("02_ag_gemm.py:ag_gemm", 2, RAGGED, "lamport"),
    "gather within": ("02_ag_gemm.py:ag_gemm", 4, RAGGED, "lamport-tiles"),
    "numbered gather within": ("02_ag_gemm.py:ag_gemm", 4, SMALL, "ll-tiles"),
    "numbered scatter": ("03_gemm_rs.py:gemm_rs", 2, SMALL, "ll"),
    "scatter": ("03_gemm_rs.py:gemm_rs", 4, SMALL, "lamport"),
    "scattered tiles": ("03_gemm_rs.py:gemm_rs", 2, SMALL, "lamport-tiles"),
    "numbered scattered tiles": ("03_gemm_rs.py:gemm_rs", 2, {"M": 38, "K": 64, "N": 102}, "ll-tiles"),
    "sum": ("04_gemm_ar.py:gemm_ar", 2, SMALL, "ll"),
    "sum in two shots": ("04_gemm_ar.py:gemm_ar", 4, SMALL, "lamport-two-shot"),
    "tiles": ("04_gemm_ar.py:gemm_ar", 2, SMALL, "lamport-tiles"),
    "tiles in two shots": ("04_gemm_ar.py:gemm_ar", 4, SMALL, "lamport-tiles-two-shot"),
    "before and behind": ("05_mlp.py:mlp", 4, {"M": 48, "H": 64, "F": 64}, "lamport-tiles"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", PACKETS.values(), ids=PACKETS)
def test_packets(case: tuple[str, int, dict[str, int], str]) -> None:
    workload, ranks, sizes, algorithm = case
    pins = {"algorithm": algorithm}
    alike(load(workload).plan_for(topologies.load("laptop-switch", ranks), sizes, "bf16", pins))


def test_masked_packets() -> None:
    """Tiles of 16 rows, in shares of 19."""
    pins = {"algorithm": "ll-tiles"}
    sizes = {"M": 38, "K": 64, "N": 34}
    one = load("03_gemm_rs.py:gemm_rs").plan_for(topologies.load("laptop-switch", 2), sizes, "bf16", pins)
    alike(one, seeds=(7,), compiled=False)


@pytest.mark.slow
@pytest.mark.parametrize("pins", [{"sum": "epilogue"}, {"compute": "library"}], ids=["one kernel", "library"])
def test_outputs_in_pools(pins: dict[str, object]) -> None:
    topology = topologies.load("laptop-switch", 2)
    alike(load("04_gemm_ar.py:gemm_ar").plan_for(topology, SMALL, "bf16", {"algorithm": "pooled", **pins}))


USERS = {
    "SMs": (3, {"M": 36, "K": 40, "N": 78}, {"algorithm": "direct"}),
    "words": (2, {"M": 36, "K": 78, "N": 50}, {"algorithm": "lamport"}),
    "copies": (2, {"M": 64, "K": 64, "N": 64}, {"algorithm": "direct", "mover": "CopyEngine()"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", USERS.values(), ids=USERS)
def test_functions_of_the_user(case: tuple[int, dict[str, int], dict[str, object]]) -> None:
    """The addresses that they get are those that today's file passes."""
    ranks, sizes, pins = case
    workload = load("06_user_op.py:ag_squared_relu")
    alike(workload.plan_for(topologies.load("laptop-mesh", ranks), sizes, "bf16", pins))


COUNTED_LATE = {"mover": "CopyEngine()", "compute": "triton", "tile": "16x16x16/4w2s", "count": "late"}
LATE = {
    "several tiles": ({"M": 256, "K": 64, "N": 48}, "2"),
    "fewer tiles than programs": ({"M": 64, "K": 64, "N": 16}, "1"),
    "a row of tiles a chunk": ({"M": 256, "K": 128, "N": 64}, "4"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "chunks"), LATE.values(), ids=LATE)
def test_notifies_behind_the_next_tile(sizes: dict[str, int], chunks: str) -> None:
    pins = {**COUNTED_LATE, "chunks": chunks}
    one = load("03_gemm_rs.py:gemm_rs").plan_for(topologies.load("laptop-switch", 4), sizes, "bf16", pins)
    assert "tile_exists" in lower(with_own_names(elaborated(one)))
    alike(one)


@pytest.mark.slow
@pytest.mark.parametrize("case", PLANNED, ids=" ".join)
def test_equal_to_what_is_emitted_today(case: tuple[str, ...]) -> None:
    alike(planned(*case))


def alike(one: Schedule, seeds: tuple[int, ...] = (0, 7), compiled: bool = True) -> None:
    """The file gives what the spec means; what is `compiled` keeps the order of accesses."""
    text = lower_planned(one)
    for seed in seeds:
        outcome = run_emulated(one, text, calls=3, seed=seed)
        assert outcome.equal, outcome.lines()
    if compiled:
        report = check_compiled(load_source(text, f"steps_of_{one.name}"), one.num_ranks, "sm_90")
        assert report.kernels and not report.findings and not report.unknown, report.lines()


def test_a_file_of_a_planned_schedule_checks_itself() -> None:
    """Random inputs, against torch on whole tensors; with the head and the reference of today's files."""
    topology = topologies.load("laptop-switch", 2)
    one = load("03_gemm_rs.py:gemm_rs").plan_for(topology, SMALL, "bf16", {"algorithm": "lamport-tiles"})
    text = lower_planned(one)
    assert "def reference(rank_inputs)" in text and f"schedule {one.hash}" in text
    assert run_emulated(one, text, calls=3).equal


@pytest.mark.slow
@pytest.mark.parametrize("case", PACKETS.values(), ids=PACKETS)
def test_packets_of_random_inputs(case: tuple[str, int, dict[str, int], str]) -> None:
    workload, ranks, sizes, algorithm = case
    one = load(workload).plan_for(topologies.load("laptop-switch", ranks), sizes, "bf16", {"algorithm": algorithm})
    assert run_emulated(one, lower_planned(one), calls=4).equal
