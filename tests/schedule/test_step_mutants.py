"""Mutants of steps, judged twice: proof and interpreter kill those whose printed text goes wrong, and no others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lowering.steps.file import print_file
from lowering.steps.sync import synchronised
from tests.schedule.judged import emulated, judged, outcome, printed_module
from tests.schedule.operators import OPERATORS, Operator, gemm_rs
from tests.schedule.step_mutants import without_a_sync
from tests.schedule.test_interpreter import OPS
from tests.schedule.variants import by_descriptor
from tilelink.emulator import Race
from tilelink.emulator.errors import OutOfBounds
from tilelink.mutation.judges import JudgeSteps
from tilelink.mutation.nodes import mutants
from tilelink.mutation.runner import drawn
from tilelink.mutation.sites import sites
from tilelink.runtime.load import load_source
from tilelink.schedule.steps import Notify, Step, Wait
from tilelink.schedule.walk import mapped, with_bodies

SEEDS = (0, 1, 3, 5, 7)  # the last two starve a rank
DESCRIBED = by_descriptor(gemm_rs(2), "x", "w", "parts", "out")


def test_a_dropped_wait_and_a_dropped_notify() -> None:
    schedule = gemm_rs(2).schedule
    wait = next(site for site in sites(schedule, Wait) if site.node.signal == "arrived")
    notify = next(site for site in sites(schedule, Notify) if site.node.signal == "arrived")
    assert outcome(wait.drop(), {}, (0, 1)) == "race"
    assert outcome(notify.drop(), {}, (0, 1)) == "deadlock"


def printed(operator: Operator) -> str:
    """How the printed text of a mutant does; empty if there is none, or none that runs: a tile of 33, a stream that adds."""
    try:
        return judged(operator, SEEDS)
    except OutOfBounds:
        return "outside"
    except Exception:
        return ""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ag_gemm", "gemm_rs", "queue", "moe"])
def test_steps_and_printed_text_agree(name: str) -> None:
    """What is equivalent as steps is right as printed text, under the race detector; and what is killed goes wrong there.

    A few runs do not show all that is killed: emulated ranks do not move loads in front of the wait that covers them, the proof
    takes no word that is set again to what it is, text pads tiles of odd sizes, and some interleavings need many calls.
    """
    operator = OPERATORS[name](2)
    judge = JudgeSteps(operator.schedule, {table: entries.numpy() for table, entries in operator.tables().items()}, OPS)
    equivalent, killed, unseen = 0, 0, list[str]()
    for mutant in drawn(tuple(mutants(operator.schedule)), 60, seed=7):
        verdict, found = judge(mutant), printed(replace(operator, schedule=mutant.schedule))
        if found and verdict.killed:
            killed += 1
            unseen += [f"{mutant.operator} {mutant.site}: {verdict.detail}"] if found == "right" else []
        elif found:
            equivalent += 1
            assert found == "right", (mutant.operator, mutant.site)
    assert killed >= 15 and equivalent >= 5
    assert len(unseen) <= 0.2 * killed, unseen


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
