"""The runner: every mutant gets a fate, whatever its judge does; reports add up."""

from __future__ import annotations

import json

import pytest

from tests.mutation.judging import Labelled, by_site
from tests.mutation.subjects import subject
from tilelink.elaborate.schedule import elaborated
from tilelink.mutation.errors import IllegalRun
from tilelink.mutation.judges import SAME_MEANING, JudgeSteps
from tilelink.mutation.nodes import mutants
from tilelink.mutation.report import Fate, Report
from tilelink.mutation.runner import drawn, run
from tilelink.schedule.instance import instantiated

MIXED = tuple(
    Labelled(f"operator {number % 3}", f"{what} {number}")
    for number, what in enumerate(("killed", "live", "live same", "raise", "killed same", "live"))
)


def fates(report: Report) -> list[Fate]:
    return [outcome.fate for outcome in report.outcomes]


def check_sums(report: Report) -> None:
    rows = report.by_operator().values()
    for fate in Fate:
        assert sum(row[fate] for row in rows) == report.count(fate) == sum(report.by_reason(fate).values())
    assert sum(report.count(fate) for fate in Fate) == len(report.outcomes)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_fates(workers: int) -> None:
    report = run(MIXED, by_site, workers=workers)
    expected = [Fate.KILLED, Fate.SURVIVED, Fate.EQUIVALENT, Fate.UNDECIDED, Fate.KILLED, Fate.SURVIVED]
    assert fates(report) == expected
    assert report.score == 0.5
    assert report.by_reason(Fate.EQUIVALENT) == {"same": 1}
    assert report.by_reason(Fate.UNDECIDED) == {"ValueError: no idea": 1}
    check_sums(report)


@pytest.mark.slow
def test_crash_and_time_out_take_nobody_with_them() -> None:
    sites = ("live 0", "crash 1", "killed 2", "slow 3", "live 4")
    report = run([Labelled("o", site) for site in sites], by_site, workers=2, time_limit_s=1.0)
    wanted = [Fate.SURVIVED, Fate.UNDECIDED, Fate.KILLED, Fate.UNDECIDED, Fate.SURVIVED]
    assert fates(report) == wanted
    assert report.by_reason(Fate.UNDECIDED) == {"its worker died": 1, "no verdict within 1 s": 1}


def test_sample_is_even_over_operators_and_repeatable() -> None:
    many = tuple(Labelled("common" if number < 90 else f"rare {number}", str(number)) for number in range(100))
    chosen = drawn(many, 20, seed=1)
    assert len(chosen) == 20
    assert {mutant.operator for mutant in chosen} == {mutant.operator for mutant in many}
    assert chosen == drawn(many, 20, seed=1)
    assert chosen != drawn(many, 20, seed=2)
    assert drawn(many, 1000, seed=0) == many


def test_written_reports() -> None:
    report = run(MIXED, by_site, workers=0)
    stored = json.loads(report.to_json())
    assert stored["counts"] == {"killed": 2, "survived": 2, "equivalent": 1, "undecided": 1}
    assert [row["site"] for row in stored["outcomes"]] == [mutant.site for mutant in MIXED]
    (total,) = [line.replace(" ", "") for line in report.markdown().splitlines() if line.startswith("| all")]
    assert total == "|all|2|2|1|1|"
    assert "- operator 1: `live 1`" in report.markdown()
    assert report.text().splitlines()[-1] == report.summary()
    assert "survived: operator 2: live 5" in report.text()


@pytest.mark.parametrize(("name", "value"), [("sample", -1), ("workers", 3), ("time_limit_s", 0.0)])
def test_illegal_run(name: str, value: float) -> None:
    with pytest.raises(IllegalRun) as error:
        run(MIXED, by_site, **{name: value})  # type: ignore[arg-type]
    assert error.value.facts["name"] == name


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_steps_of_a_schedule(workers: int) -> None:
    """No mutant of steps survives: who is not killed is equivalent."""
    schedule = instantiated(elaborated(subject("gather, copy engine pull")))
    report = run(mutants(schedule), JudgeSteps(schedule), sample=20, workers=workers)
    check_sums(report)
    assert report.total > 1000
    assert report.count(Fate.KILLED) >= 8
    assert report.score == 1
    assert set(report.by_reason(Fate.EQUIVALENT)) == {SAME_MEANING}
    assert set(report.by_reason(Fate.KILLED)) == {"proof", "interpreter"}
