"""Candidates of a row: planned, tuned, pinned, impossible; and the job file that carries them to the ranks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

import topologies
from tilelink.bench import operators, plans
from tilelink.bench.errors import MalformedVariant, NotPlans
from tilelink.bench.job import Job, read_job
from tilelink.bench.operators import declaration
from tilelink.bench.ours import ours
from tilelink.bench.plans import Origin, PlannedRow, Request, Variant, parse_variant, plan_row, plan_rows
from tilelink.bench.problem import input_dtypes, input_shapes
from tilelink.bench.routings import Routing
from tilelink.bench.rows import WITH_EXPERTS, Operator, select
from tilelink.errors import ScheduleRefuted
from tilelink.measuring.measure import Options
from tilelink.runtime.bounds import TORCH_DTYPES

H200 = topologies.load("h200-nvswitch", 4)
SMALL = "512x256x1024"
LARGE = "4096x1024x4096"  # schedules of many kinds take about as long


@pytest.fixture(scope="module")
def planned() -> PlannedRow:
    variants = (
        Variant("pull", (("mover", "CommSms(16)"), ("transfer", "pull"))),
        Variant("bad", (("mover", "train"),)),
    )
    (row,) = select([Operator.AG_GEMM], [LARGE], "bf16", 4)
    return plan_row(row, Request(H200, variants, tuned=2))


def test_the_planned_schedule_is_that_of_the_planner_without_pins(planned: PlannedRow) -> None:
    first = planned.candidates[0]
    assert (first.label, first.origin) == ("planned", Origin.PLANNED)
    sizes = {"M": 4096, "K": 1024, "N": 4096}
    assert first.schedule == declaration(Operator.AG_GEMM).plan_for(H200, sizes)


def test_tuned_are_the_best_alternatives_in_order(planned: PlannedRow) -> None:
    tuned = [c.schedule for c in planned.candidates if c.origin is Origin.TUNED]
    times = [schedule.predicted_us for schedule in tuned if schedule is not None]
    assert len(times) == 2
    assert times == sorted(times)
    assert planned.candidates[0].schedule is not None
    assert planned.candidates[0].schedule.predicted_us <= times[0]
    hashes = {c.schedule.hash for c in planned.candidates if c.schedule is not None}
    assert len(hashes) == 4


def test_a_refuted_alternative_is_a_failure_of_its_own(planned: PlannedRow, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuted(*_: object) -> NoReturn:
        raise ScheduleRefuted(function="ag_gemm", pins="no pins", shown="class 3", findings=())

    monkeypatch.setattr(plans, "alternatives", refuted)
    first, tuned = plan_row(planned.row, Request(H200, tuned=2)).candidates
    assert first == planned.candidates[0]
    assert (tuned.origin, tuned.schedule) == (Origin.TUNED, None)
    assert tuned.failure.startswith("ScheduleRefuted: ")


def test_a_variant_without_a_schedule_is_told_what_is_legal() -> None:
    (row,) = select([Operator.AG_GEMM], [SMALL], "bf16", 4)
    last = plan_row(row, Request(H200, (Variant("deep", (("tile", "128x128x64/8w9s"), ("group", "4"))),))).candidates[
        -1
    ]
    assert last.failure.startswith("NoLegalSchedule: ")
    assert "Legal beside the others: " in last.failure


def test_variants_are_pinned(planned: PlannedRow) -> None:
    pull = next(c for c in planned.candidates if c.label == "pull")
    assert pull.schedule is not None
    assert ("x_full.mover", "CommSms(16)") in pull.schedule.choices
    assert ("x_full.transfer", "pull") in pull.schedule.choices


def test_a_variant_that_is_no_schedule_is_a_failure_of_its_own(planned: PlannedRow) -> None:
    bad = planned.candidates[-1]
    assert bad.schedule is None
    assert bad.failure.startswith("IllegalPin: ")
    assert ours(bad).failure == bad.failure


SMALL_EXPERTS = "64x256x128x8x2"
LONG = (Operator.GEMM_AR, Operator.MLP, *WITH_EXPERTS)  # to plan
MARKED = [pytest.param(one, marks=[pytest.mark.slow] if one in LONG else []) for one in Operator]


@pytest.mark.parametrize("operator", MARKED)
def test_inputs_are_those_of_the_declaration(operator: Operator) -> None:
    """The contenders share tensors: rows make them with the shapes and in the order that the schedule takes."""
    (row,) = select([operator], [SMALL_EXPERTS if operator in WITH_EXPERTS else SMALL], "bf16", 4)
    (planned,) = plan_rows([row], Request(H200))
    schedule = planned.candidates[0].schedule
    assert schedule is not None
    assert [schedule.buffer(value.name).shape for value in schedule.spec.inputs] == input_shapes(row, 4)
    assert [TORCH_DTYPES[value.dtype] for value in schedule.spec.inputs] == input_dtypes(row, 4)


@pytest.mark.slow
def test_a_plan_is_made_once_for_all_routings_and_the_job_keeps_them(tmp_path: Path) -> None:
    rows = select([Operator.EP_LAYER], [SMALL_EXPERTS], "bf16", 4, tuple(Routing))
    found = plan_rows(rows, Request(H200), processes=1)
    assert [planned.row for planned in found] == list(rows)
    assert all(planned.candidates is found[0].candidates for planned in found)
    job = Job(tuple(found), 4, "h200-nvswitch", 389.0, Options(), "abc", tmp_path / "r.json", False, 60.0)
    job.write(tmp_path / "job.json")
    assert read_job(tmp_path / "job.json") == job


def test_a_job_survives_its_file(planned: PlannedRow, tmp_path: Path) -> None:
    job = Job((planned,), 4, "h200-nvswitch", 389.0, Options(rounds=3), "abc", tmp_path / "r.json", True, 60.0)
    job.write(tmp_path / "job.json")
    assert read_job(tmp_path / "job.json") == job


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rows": [{}]}'])
def test_what_is_no_job(text: str, tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(text)
    with pytest.raises(NotPlans):
        read_job(tmp_path / "job.json")
    with pytest.raises(NotPlans):
        read_job(tmp_path / "absent.json")


@pytest.mark.slow
def test_rows_in_several_processes_come_back_in_order() -> None:
    rows = select([Operator.AG_GEMM, Operator.GEMM_RS], [SMALL, "256x256x512"], "bf16", 4)
    found = plan_rows(rows, Request(H200), processes=2)
    assert [planned.row for planned in found] == list(rows)
    assert found == plan_rows(rows, Request(H200), processes=1)


def test_variants_as_they_are_typed() -> None:
    assert parse_variant("pull: mover=CommSms(16); nest=rank by rank") == Variant(
        "pull", (("mover", "CommSms(16)"), ("nest", "rank by rank"))
    )
    for text in ("mover=CommSms(16)", ":mover=x", "a:", "a:mover", "a:mover=", "a:mover=x;mover=y"):
        with pytest.raises(MalformedVariant):
            parse_variant(text)


def test_a_row_that_is_planned_for_other_ranks_differs(planned: PlannedRow) -> None:
    """The key of a row does not name the ranks; the job does."""
    other = plan_row(planned.row, replace(Request(topologies.load("h200-nvswitch", 2))))
    assert other.row.key == planned.row.key
    assert other.candidates[0].schedule != planned.candidates[0].schedule


@pytest.mark.slow
def test_outputs_that_may_be_overwritten_are_a_candidate_of_their_own() -> None:
    (gathers,) = select([Operator.AG_GEMM], [SMALL], "bf16", 4)
    (adds,) = select([Operator.GEMM_AR], ["llama3-8b-m2048"], "bf16", 4)
    assert [c.origin for c in plan_row(gathers, Request(H200)).candidates] == [Origin.PLANNED]
    fresh, reused = plan_row(adds, Request(H200)).candidates
    assert (fresh.origin, reused.origin) == (Origin.PLANNED, Origin.REUSED)
    assert reused.schedule is not None
    assert ("out.landing", "reused") in reused.schedule.choices


def test_emitted_files_name_lines_of_the_declarations() -> None:
    """Not of the import machinery, through which the declarations are reached."""
    lines = [node.output.location for node in declaration(Operator.GEMM_RS).spec.nodes]
    text = Path(operators.__file__).read_text(encoding="utf-8").splitlines()
    assert [text[found.line - 1].strip() for found in lines] == ["y = matmul(x, w)", "return reduce_scatter(y, dim=0)"]
    assert {found.file for found in lines} == {operators.__file__}
