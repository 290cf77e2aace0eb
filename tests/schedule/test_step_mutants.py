"""Mutants of steps, judged twice: the happens-before proof refutes those whose printed text goes wrong, and no others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lowering.steps.file import print_file
from lowering.steps.sync import synchronised
from tests.schedule.judged import emulated, judged, outcome, printed_module
from tests.schedule.operators import OPERATORS, gemm_rs
from tests.schedule.step_mutants import mutants, without_a_sync
from tests.schedule.variants import by_descriptor
from tilelink.emulator import Race
from tilelink.proof.happens_before.check import check
from tilelink.runtime.load import load_source
from tilelink.schedule.steps import Step, Wait
from tilelink.schedule.walk import mapped, with_bodies

SEEDS = range(6)
DESCRIBED = by_descriptor(gemm_rs(2), "x", "w", "parts", "out")


def test_a_dropped_wait_and_a_dropped_notify() -> None:
    found = {what: outcome(mutant, {}, (0, 1)) for what, mutant in mutants(gemm_rs(2).schedule) if "drop" in what}
    assert found["gemm: drop wait arrived"] == "race"
    assert found["gemm: drop notify arrived"] == "deadlock"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ag_gemm", "gemm_rs", "queue", "moe"])
def test_proof_and_printed_text_agree(name: str) -> None:
    """All ten agree; these four have every kind of step."""
    operator = OPERATORS[name](2)
    tables = {table: entries.numpy() for table, entries in operator.tables().items()}
    count = 0
    for what, mutant in mutants(operator.schedule):
        proved = check(mutant, tables) is None
        assert proved == (judged(replace(operator, schedule=mutant), SEEDS) == "right"), what
        count += 1
    assert count > 12


@pytest.mark.slow
def test_fences_and_flushes_are_needed_by_the_printed_text() -> None:
    """Each Sync that the pass puts in is one whose loss is a race on emulated ranks."""
    found = synchronised(DESCRIBED.schedule)
    assert not emulated(DESCRIBED, load_source(print_file(found), "described"), seed=0)
    for what, mutant in without_a_sync(found):
        module = load_source(print_file(mutant), "described")
        assert any(_races(module, seed) for seed in SEEDS), what


def _races(module: object, seed: int) -> bool:
    try:
        emulated(DESCRIBED, module, seed)  # type: ignore[arg-type]
    except Race:
        return True
    return False


@pytest.mark.slow
def test_a_fence_follows_from_what_a_wait_covers() -> None:
    def uncovered(step: Step) -> tuple[Step, ...]:
        return (replace(step, covers=()) if isinstance(step, Wait) else step,)

    schedule = with_bodies(DESCRIBED.schedule, lambda body: mapped(body, uncovered))
    assert judged(DESCRIBED, seeds=(0, 1)) == "right"
    assert judged(replace(DESCRIBED, schedule=schedule), seeds=(0, 1)) == "race"
    assert printed_module(schedule).__doc__
