"""What runs say where they cannot say right or wrong: a limit of effort, and calls that a file excludes."""

from __future__ import annotations

from pathlib import Path

import pytest

import lowering
import topologies
from tests.adversary.bugs import edited, verdict
from tests.adversary.files import DOUBLE, LAUNCH, verified
from tests.planner.operators import gemm_rs
from tilelink.adversary.small import small_form
from tilelink.adversary.subject import of_schedule
from tilelink.adversary.trials import Scenario, Trial, run_trial
from tilelink.adversary.verdict import VerdictKind

COUNTS = """
@triton.jit
def counts(word, rounds):
    while tl.atomic_add(word, 1, sem="relaxed", scope="sys") < rounds:
        pass


"""
EXCHANGE = (Path(__file__).parent / "exchange.py").read_text()
BY_HOST = (
    ("    call = tl.load(epoch)\n", "    call = epoch\n"),
    (
        "            self.epoch,\n            self.fabric.rank,",
        "            self.calls,\n            self.fabric.rank,",
    ),
    ("        main.launch(advance, (1,), self.epoch)\n", "        self.calls += 1\n"),
    ("        with fabric.loading():\n", "        self.calls = -1\n        with fabric.loading():\n"),
)


def busy(limit: int, rounds: int) -> str:
    """A kernel that takes so many rounds before the operator's own, in a file that gives up after `limit` steps."""
    launch = f"            counts[(1,)](torch.zeros(1, dtype=torch.int32), {rounds})\n"
    return edited(
        DOUBLE,
        ("class Double:\n", f"{COUNTS.lstrip()}class Double:\n    STEP_LIMIT = {limit}\n"),
        (LAUNCH, launch + LAUNCH),
    )


def test_a_run_that_is_given_up_is_inconclusive(tmp_path: Path) -> None:
    found = verified(tmp_path, busy(2000, 1 << 30))
    assert (found.kind, found.kind.exit_code, found.counterexample) == (VerdictKind.INCONCLUSIVE, 2, None)
    assert found.trials == 4  # REFUSALS, and three that were given up
    assert found.obstacle is not None
    assert "given up after 2000 steps" in found.obstacle.what and "counts(0, 0, 0): could go on" in found.obstacle.what
    assert "STEP_LIMIT" in found.obstacle.hint
    assert found.obstacle.source.startswith("while tl.atomic_add(word, 1")
    assert found.lines()[0].startswith("inconclusive: Double, 2 emulated ranks")


@pytest.mark.slow
def test_with_more_steps_it_is_right(tmp_path: Path) -> None:
    assert verified(tmp_path, busy(20_000, 1000)).kind is VerdictKind.NOT_REFUTED


def test_one_run_that_is_given_up_does_not_keep_others_from_refuting(tmp_path: Path) -> None:
    """The first of the runs counts for long, and another one finds that the result is wrong."""
    source = busy(2000, 1 << 30).replace(
        "zeros(1, dtype=torch.int32), 1073741824", "zeros(1, dtype=torch.int32), self.rounds"
    )
    rounds = "        self.symm = symmetric_memory(fabric)\n"
    once = "        self.rounds = 1 << 30 if fabric.num_sms == Double.made else 1\n        Double.made += fabric.rank\n"
    source = edited(source, (rounds, rounds + once), ("    NUM_SMS = 2\n", "    NUM_SMS = 2\n    made = 2\n"))
    found = verified(tmp_path, edited(source, ("2.0 * tl.load", "3.0 * tl.load")))
    assert found.kind is VerdictKind.REFUTED, found.lines()


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.quick(1)
def test_a_file_may_exclude_graphs(graphs: bool) -> None:
    """A call that the host numbers is wrong when it is replayed, and right otherwise."""
    source = edited(EXCHANGE, *BY_HOST, ("    NUM_SMS = 2\n", f"    NUM_SMS = 2\n    GRAPHS = {graphs}\n"))
    found = verdict(source)
    excluded = "calls captured in a CUDA graph (the class has GRAPHS = False)"
    if graphs:
        assert found.counterexample is not None
        assert found.counterexample.number == 18 and "GRAPHS = False" in found.counterexample.why
    else:
        assert found.kind is VerdictKind.NOT_REFUTED, found.lines()
        assert excluded in found.lines()[1]
    assert (excluded in found.left_out) is not graphs


def test_all_calls_that_are_allowed_are_run(tmp_path: Path) -> None:
    anywhere = edited(DOUBLE, ("    NUM_SMS = 2\n", "    NUM_SMS = 2\n    ANY_STREAM = True\n"))
    found = verified(tmp_path, anywhere)
    assert found.left_out == () and len(found.lines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["pct:1:3", "oldest"])
def test_pieces_that_wait_for_the_clock_take_few_steps(policy: str) -> None:
    """Tiles that leave in pieces, spread over the time of a product: 1,242,289 steps where each clock took one."""
    machine = topologies.load("h100-nvswitch", 4)
    planned = gemm_rs.plan_for(machine, {"M": 4096, "K": 8192, "N": 4096}, "bf16", {})
    small = small_form(gemm_rs.spec, planned, machine)
    source = lowering.emit(small)
    assert "cycles() - begun" in source
    outcome = run_trial(of_schedule(small, source), Trial(Scenario.CALLS, policy))
    assert outcome.error is None
    assert outcome.steps < 40_000
