"""Planned schedules as steps, printed by the printer of steps: they compute bit by bit what today's emitted files compute."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from lowering.emit import emit
from lowering.steps.errors import EngineCannot
from lowering.steps.file import lower
from lowering.steps.renaming import with_own_names
from tests.proof.test_refuted import CASES, planned
from tests.schedule.judged import hostile, poisoned
from tilelink.compiled.check import check_compiled
from tilelink.elaborate.schedule import elaborated
from tilelink.emulator import RaceDetector, World
from tilelink.runtime.load import load_source, operator_class

ADDS = ("ag", "CopyEngine()", "pull")  # a copy engine would have to add to a word
PLANNED = sorted({base for base, _, _ in CASES.values()} - {ADDS})


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


def test_a_copy_engine_that_adds_is_refused() -> None:
    with pytest.raises(EngineCannot, match="x_full_arrived"):
        lower(with_own_names(elaborated(planned(*ADDS))))
