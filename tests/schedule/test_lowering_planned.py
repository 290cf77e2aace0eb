"""Planned schedules as steps, printed by the printer of steps: they compute bit by bit what today's emitted files compute."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from triton.compiler import CompiledKernel

import topologies
from lowering.emit import emit
from lowering.steps.file import lower
from lowering.steps.renaming import with_own_names
from tests.pipeline.workloads import load
from tests.proof.test_refuted import CASES, planned
from tests.schedule.judged import hostile, poisoned
from tilelink.compiled.check import check_compiled
from tilelink.elaborate.schedule import elaborated
from tilelink.emulator import RaceDetector, World
from tilelink.runtime.aot import compile_launch, record
from tilelink.runtime.load import load_source, operator_class

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
                out = operator(*inputs)
                kept.append(torch.empty(out.numel(), dtype=out.dtype))
                world.fabrics[rank].main().copy(kept[-1], out.reshape(-1))
        world.run()
    return kept


@pytest.mark.slow
@pytest.mark.parametrize("case", PLANNED, ids=" ".join)
def test_equal_to_what_is_emitted_today(case: tuple[str, ...]) -> None:
    one = planned(*case)
    steps = load_source(lower(with_own_names(elaborated(one))), f"steps_of_{one.name}")
    today = load_source(emit(one), one.name)
    for seed in (0, 7):
        pairs = zip(results(steps, one.num_ranks, seed), results(today, one.num_ranks, seed), strict=True)
        assert all(torch.equal(found, right) for found, right in pairs)
    report = check_compiled(steps, one.num_ranks, "sm_90")
    assert report.kernels and not report.findings and not report.unknown, report.lines()


@pytest.mark.slow
@pytest.mark.parametrize("mover", ["CopyEngine()", "CommSms(8)"])
def test_at_real_sizes_the_matmul_is_compiled_as_today(mover: str) -> None:
    """As many loads and stores by descriptors, as many tensor core instructions, no more shared memory."""
    sizes = {"M": 8192, "K": 4096, "N": 14336}
    pins = {"compute": "triton", "mover": mover}
    one = load("02_ag_gemm.py:ag_gemm").plan_for(topologies.load("h200-nvswitch", 4), sizes, "bf16", pins)
    steps = _matmul(load_source(lower(with_own_names(elaborated(one))), "steps"))
    today = _matmul(load_source(emit(one), "today"))
    for instruction in ("cp.async.bulk.tensor.2d.shared", "cp.async.bulk.tensor.2d.global", "wgmma.mma_async"):
        assert steps.asm["ptx"].count(instruction) == today.asm["ptx"].count(instruction) > 0
    assert steps.metadata.shared <= today.metadata.shared


def _matmul(module: ModuleType) -> CompiledKernel:
    """The largest kernel of a call."""
    (largest,) = [launch for launch in record(module, 4) if launch.grid[0] > 100]
    return compile_launch(largest, "sm_90")
