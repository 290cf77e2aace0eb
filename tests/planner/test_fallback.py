"""A best schedule that the proof refutes is passed over for the next best; only if none is left is that an error."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from typer.testing import CliRunner

import topologies
from tests.planner.operators import ag_gemm, gemm_rs
from tilelink import cli
from tilelink.errors import ScheduleRefuted
from tilelink.ir.movers import CopyEngine
from tilelink.ir.schedule import Schedule
from tilelink.planner import alternatives as other_schedules
from tilelink.planner import fallback
from tilelink.planner.alternatives import alternatives
from tilelink.proof.bug_class import BugClass
from tilelink.proof.findings import Finding
from tilelink.proof.proved import Proof
from tilelink.proof.verify import verify

SIZES = {"M": 512, "K": 256, "N": 384}
MACHINE = topologies.load("laptop-switch", 4)


def refuting(monkeypatch: pytest.MonkeyPatch, wrong: Callable[[Schedule], bool]) -> list[Schedule]:
    """The proof also refutes what is `wrong`; returns what is asked of it."""
    asked: list[Schedule] = []

    def verdict(schedule: Schedule) -> Proof:
        asked.append(schedule)
        finding = Finding(BugClass.CIRCLE, "launch 1", "it waits for itself")
        return Proof(schedule.hash, (finding,), (), 0.0) if wrong(schedule) else verify(schedule)

    monkeypatch.setattr(fallback, "verify", verdict)
    return asked


def test_the_next_best_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    best = ag_gemm.plan_for(MACHINE, SIZES)
    asked = refuting(monkeypatch, lambda schedule: schedule == best)
    log: list[str] = []
    found = ag_gemm.plan_for(MACHINE, SIZES, log=log.append)
    assert found != best and verify(found).proved
    assert found.predicted_us >= best.predicted_us
    assert asked == [best, found]
    (note,) = (line for line in log if "refuted" in line)
    assert "it waits for itself" in note and f"{best.predicted_us:.1f} us" in note


def test_a_kind_that_is_wrong_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if hundreds of schedules share the mistake."""
    refuting(monkeypatch, lambda one: any(isinstance(x.mover, CopyEngine) for x in one.exchanges))
    found = gemm_rs.plan_for(MACHINE, SIZES, pin={"algorithm": "direct"}, log=lambda line: None)
    assert found.exchanges and not any(isinstance(x.mover, CopyEngine) for x in found.exchanges)


def test_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    pins = {"mover": "CopyEngine()", "transfer": "push", "tile": "64x64x64/4w4s"}
    asked = refuting(monkeypatch, lambda schedule: True)
    with pytest.raises(ScheduleRefuted) as refused:
        ag_gemm.plan_for(MACHINE, SIZES, pin=pins, log=lambda line: None)
    assert len(asked) == refused.value.facts["count"]
    assert len({schedule.hash for schedule in asked}) > 1
    for part in ("tilelink has made a mistake", "mover=CopyEngine()", "it waits for itself", "report"):
        assert part in str(refused.value)


def test_the_exit_code_is_that_of_our_mistakes(monkeypatch: pytest.MonkeyPatch) -> None:
    refuting(monkeypatch, lambda schedule: True)
    command = ["plan", "examples/02_ag_gemm.py:ag_gemm", "M=320", "K=64", "N=64", "--ranks", "4"]
    pins = ["--topology", "laptop-switch", "--pin", "mover=CopyEngine()", "--pin", "tile=32x32x32/4w2s"]
    result = CliRunner().invoke(cli.app, [*command, *pins])
    assert result.exit_code == 4
    assert result.stdout == ""
    assert "ScheduleRefuted: tilelink has made a mistake" in result.stderr


def test_alternatives_that_are_refuted_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    best = gemm_rs.plan_for(MACHINE, SIZES)
    first, second, *_ = alternatives(MACHINE, best, 3)
    asked = refuting(monkeypatch, lambda schedule: False)
    monkeypatch.setattr(
        other_schedules,
        "verify",
        lambda one: verify(one) if one != first else Proof("", (Finding(BugClass.CIRCLE, "", ""),), (), 0.0),
    )
    found = alternatives(MACHINE, best, 3)
    assert first not in found and second.predicted_us >= first.predicted_us
    assert asked and found
