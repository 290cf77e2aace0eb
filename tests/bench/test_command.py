"""`tilelink bench` without GPUs: what it answers, what it plans, how it starts and ends ranks."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from tests.bench.fakes import ROW, record, result, row_result
from tilelink import cli
from tilelink.bench import command, launch
from tilelink.bench.against import ATTENTION_NAMES, BASELINE_NAMES, chosen
from tilelink.bench.baselines import FusedOperators, baselines
from tilelink.bench.job import Job, read_job
from tilelink.bench.launch import run_job
from tilelink.bench.plans import PlannedRow
from tilelink.bench.rows import Operator
from tilelink.errors import RunFailed
from tilelink.measuring.contender import Kind
from tilelink.measuring.measure import Options
from tilelink.runtime.torchrun import run_to_end

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("--ranks", "2", "--rows", "256x128x512")
PLANNED = PlannedRow(ROW, ())
EXPERTS = ("ep_layer", "--ranks", "2", "--rows", "32x64x64x8x2")


def bench(*args: str) -> Result:
    return CliRunner().invoke(cli.app, ("bench", *args))


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("gemm_ra", *SMALL), "UnknownOperator"),
        (("--ranks", "2", "--rows", "lama3-8b"), "UnknownRow"),
        (("--ranks", "2", "--rows", "31x64x64"), "RowNotDivisible"),
        ((*SMALL, "--dtype", "fp8"), "UnknownDtype"),
        (("ep_layer", *SMALL), "UnknownExpertRow"),
        (("ep_layer", "--ranks", "2", "--rows", "31x64x64x8x2"), "RowNotDivisible"),
        (("ep_layer", "--ranks", "2", "--rows", "32x64x64x7x2"), "RowNotDivisible"),
        (("ag_moe", "--ranks", "2", "--rows", "32x64x63x8x2"), "RowNotDivisible"),
        (("moe_rs", "--ranks", "2", "--rows", "32x64x64x8x9"), "MoreChoicesThanExperts"),
        ((*EXPERTS, "--routing", "hot5"), "UnknownRouting"),
        ((*SMALL, "--routing", "zipf"), "RoutingWithoutExperts"),
        (EXPERTS, "FabricUnavailable"),
        ((*SMALL, "--against", "two_shots"), "UnknownBaseline"),
        ((*SMALL, "--variant", "pull"), "MalformedVariant"),
        ((*SMALL, "--json", "absent/r.json"), "ResultsNotWritable"),
        ((*SMALL, "--topology", "h300"), "UnknownTopology"),
        (("--ranks", "3000"), "IllegalRanks"),
        (SMALL, "FabricUnavailable"),
    ],
)
def test_bad_input(args: tuple[str, ...], error: str) -> None:
    found = bench(*args)
    assert found.exit_code == 2
    assert found.stdout == ""
    assert found.stderr.startswith(f"{error}: ")
    assert "egal" in found.stderr or "Write" in found.stderr or "Give" in found.stderr


def test_plans_are_written_and_read_for_the_same_ranks_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = tmp_path / "plans.json"
    found = bench("ag_gemm", *SMALL, "--write-plans", str(plans))
    assert (found.exit_code, found.stdout) == (0, f"planned: {plans} (1 rows)\n")
    job = read_job(plans)
    assert [planned.row.name for planned in job.rows] == ["256x128x512"]
    assert job.link_gb_per_s == 389.0

    monkeypatch.setattr(command, "check_gpus", lambda num_ranks, instead: None)
    for args in (("--ranks", "4"), ("--topology", "h100-nvswitch")):
        other = bench("ag_gemm", *args, "--rows", "256x128x512", "--plans", str(plans))
        assert (other.exit_code, other.stdout) == (2, "")
        assert other.stderr.startswith("PlannedForAnother: ")
        assert "planned for 2 ranks of h200-nvswitch" in other.stderr
        assert f"not for {args[1]} of" in other.stderr or f"of {args[1]} as well" in other.stderr


def test_ranks_and_topology_are_those_of_the_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = tmp_path / "plans.json"
    bench("ag_gemm", *SMALL, "--topology", "h100-nvswitch", "--write-plans", str(plans))
    jobs: list[Job] = []
    monkeypatch.setattr(command, "check_gpus", lambda num_ranks, instead: None)
    monkeypatch.setattr(command, "_measure", lambda job, json, timeout_s: jobs.append(job))
    found = bench("--plans", str(plans))
    assert (found.exit_code, found.stderr) == (0, "")
    assert (jobs[0].num_ranks, jobs[0].topology, jobs[0].rows) == (2, "h100-nvswitch", read_job(plans).rows)


def test_a_file_that_holds_no_plans_is_told(tmp_path: Path) -> None:
    (tmp_path / "plans.json").write_text("{}")
    for name in ("plans.json", "absent.json"):
        found = bench("ag_gemm", *SMALL, "--plans", str(tmp_path / name))
        assert (found.exit_code, found.stdout) == (2, "")
        assert found.stderr.startswith("NotPlans: ") and "--write-plans" in found.stderr


def test_without_a_topology_it_is_that_of_the_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = tmp_path / "plans.json"
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda index: "NVIDIA H100 80GB HBM3")
    bench("ag_gemm", *SMALL, "--write-plans", str(plans))
    assert read_job(plans).topology == "h100-nvswitch"


def test_rows_of_the_plans_are_not_planned_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = tmp_path / "plans.json"
    bench("ag_gemm", *SMALL, "--write-plans", str(plans))
    jobs: list[Job] = []
    monkeypatch.setattr(command, "check_gpus", lambda num_ranks, instead: None)
    monkeypatch.setattr(command, "_measure", lambda job, json, timeout_s: jobs.append(job))
    rows = ("--ranks", "2", "--rows", "256x128x512,128x128x512")
    found = bench("ag_gemm", *rows, "--plans", str(plans), "--quick", "--l2-cold", "--commit", "abc")
    assert "planning 1 rows" in found.stderr
    (job,) = jobs
    assert job.rows[0] == read_job(plans).rows[0]
    assert job.rows[1].row.m == 128
    assert (job.options, job.commit) == (Options(rounds=3, l2_cold=True), "abc")


@pytest.mark.parametrize(("args", "seconds"), [((), math.inf), (("--minutes", "2"), 120.0)])
def test_minutes_end_the_time_of_the_ranks(
    args: tuple[str, ...], seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans, jobs = tmp_path / "plans.json", list[Job]()
    bench("ag_gemm", *SMALL, "--write-plans", str(plans))
    monkeypatch.setattr(command, "check_gpus", lambda num_ranks, instead: None)
    monkeypatch.setattr(command, "_measure", lambda job, json, timeout_s: jobs.append(job))
    before = time.time()
    bench("--plans", str(plans), *args)
    assert before + seconds <= jobs[0].until_s <= time.time() + seconds
    jobs[0].write(tmp_path / "job.json")
    assert read_job(tmp_path / "job.json") == jobs[0]


@pytest.mark.parametrize(("operators", "keys"), [((), ["ag_gemm", "gemm_rs"]), (("gemm_rs",), ["gemm_rs"])])
@pytest.mark.slow
def test_without_rows_those_of_the_plans_are_measured(
    operators: tuple[str, ...], keys: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = tmp_path / "plans.json"
    bench("ag_gemm", "gemm_rs", *SMALL, "--write-plans", str(plans))
    jobs: list[Job] = []
    monkeypatch.setattr(command, "check_gpus", lambda num_ranks, instead: None)
    monkeypatch.setattr(command, "_measure", lambda job, json, timeout_s: jobs.append(job))
    bench(*operators, "--ranks", "2", "--plans", str(plans))
    (job,) = jobs
    assert [planned.row.title for planned in job.rows] == keys
    assert {planned.row.m for planned in job.rows} == {256}


@pytest.mark.slow
def test_only_the_baselines_that_are_named_take_part(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[Job] = []
    monkeypatch.setattr(command, "check_gpus", lambda num_ranks, instead: None)
    monkeypatch.setattr(command, "_measure", lambda job, json, timeout_s: jobs.append(job))
    bench("gemm_ar", "--ranks", "2", "--quick", "--against", "two_shot, nccl_cublas")
    every = baselines(Operator.GEMM_AR, FusedOperators(no_operator, no_operator))
    kept = [one.name for one in chosen(every, jobs[0].options.against)]
    assert kept == ["nccl_cublas", "two_shot", "gemm", "gemm_k_major", "collective"]
    experts = baselines(Operator.EP_LAYER, FusedOperators(no_operator, no_operator))
    names = {one.name for one in (*every, *experts) if one.kind is Kind.BASELINE}
    assert names | set(ATTENTION_NAMES) == set(BASELINE_NAMES)
    assert chosen(every, "") == every
    assert [one.name for one in chosen(experts, "nccl_grouped")] == ["nccl_grouped", "gemm", "collective"]


def no_operator(*_: object) -> Any:
    raise AssertionError("not called")


@pytest.mark.slow
def test_plans_are_for_any_routing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans, jobs = tmp_path / "plans.json", list[Job]()
    bench(*EXPERTS, "--write-plans", str(plans))
    monkeypatch.setattr(command, "check_gpus", lambda num_ranks, instead: None)
    monkeypatch.setattr(command, "_measure", lambda job, json, timeout_s: jobs.append(job))
    for args in ((), ("--routing", "zipf,hot7"), (*EXPERTS, "--routing", "hot4")):
        found = bench(*args, "--plans", str(plans))
        assert (found.exit_code, found.stderr) == (0, "")  # nothing is planned
    keys = [[one.row.key for one in job.rows] for job in jobs]
    name = "ep_layer 32x64x64x8x2"
    assert keys == [[f"{name} uniform bf16"], [f"{name} zipf bf16", f"{name} hot7 bf16"], [f"{name} hot4 bf16"]]
    (planned,) = read_job(plans).rows
    assert all(one.candidates == planned.candidates for job in jobs for one in job.rows)


@pytest.mark.slow
def test_quick_is_one_row_an_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[Job] = []
    monkeypatch.setattr(command, "check_gpus", lambda num_ranks, instead: None)
    monkeypatch.setattr(command, "_measure", lambda job, json, timeout_s: jobs.append(job))
    bench("ag_gemm", "gemm_rs", "--ranks", "2", "--quick")
    assert [planned.row.key for planned in jobs[0].rows] == ["ag_gemm llama3-8b bf16", "gemm_rs llama3-8b bf16"]


@pytest.mark.parametrize(("us", "code"), [(5.0, 0), (None, 1)])
def test_the_table_and_the_exit_code(
    us: float | None, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = row_result("ag_gemm", "llama3-8b", result("planned", us, "ours"), result("nccl_cublas", 8.0))
    monkeypatch.setattr(command, "run_job", lambda job, timeout_s, say: record(row))
    with pytest.raises(typer.Exit) as caught:
        command._measure(job_in(Path("unused")), None, 10.0)
    assert caught.value.exit_code == code
    shown = capsys.readouterr()
    assert "8.0 nccl_cublas" in shown.out
    assert ("no time of ours: ag_gemm llama3-8b bf16" in shown.err) == bool(code)


def job_in(folder: Path) -> Job:
    return Job((), 2, "h200-nvswitch", 389.0, Options(), "abc", folder / "r.json", False, 10.0)


Script = Callable[[str], None]


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Script:
    """`ranks(code)`: what runs instead of torchrun, as Python with `results` the file of results."""

    def use(code: str) -> None:
        def command(job: Job, file: Path) -> list[str]:
            text = f"results, resume = {str(job.results)!r}, {job.resume}\n{code}"
            return [sys.executable, "-c", text]

        monkeypatch.setattr(launch, "command", command)

    return use


def test_ranks_that_crash_at_once(ranks: Script, tmp_path: Path) -> None:
    ranks("import sys; print('the last words'); sys.exit(7)")
    said: list[str] = []
    with pytest.raises(RunFailed) as caught:
        run_job(job_in(tmp_path), 30, said.append)
    assert caught.value.facts["reason"] == "exit code 7"
    assert "the last words" in str(caught.value)
    assert said == ["the last words"]


def test_ranks_that_lose_a_row_go_on_with_the_next(ranks: Script, tmp_path: Path) -> None:
    """The first start ends after a row, the second one, which resumes, writes all of it."""
    done = row_result("ag_gemm", "llama3-8b", result("planned", 5.0, "ours"))
    lost = row_result("ag_gemm", "llama-7b", failure="they hung")
    record(done, lost, complete=False).write(tmp_path / "part.json")
    record(done, replace(lost, failure="")).write(tmp_path / "whole.json")
    ranks(
        "import os, shutil, sys\n"
        "name = 'whole.json' if resume else 'part.json'\n"
        "shutil.copy(os.path.join(os.path.dirname(results), name), results)\n"
        "sys.exit(0 if resume else 1)"
    )
    said: list[str] = []
    found = run_job(job_in(tmp_path), 60, said.append)
    assert found.complete
    assert [row.name for row in found.rows] == ["llama3-8b", "llama-7b"]
    assert said == ["exit code 1: starting anew with the rows that are missing"]


def test_what_was_measured_before_a_crash_is_shown(
    ranks: Script, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(row_result("ag_gemm", "llama3-8b", result("planned", 5.0, "ours")), complete=False).write(
        tmp_path / "p.json"
    )
    ranks(
        "import os, shutil\nshutil.copy(os.path.join(os.path.dirname(results), 'p.json'), results)\nraise SystemExit(1)"
    )
    with pytest.raises(RunFailed):
        command._measure(job_in(tmp_path), tmp_path / "r.json", 60.0)
    assert "ag_gemm llama3-8b bf16" in capsys.readouterr().out


def test_older_results_are_not_taken_for_new_ones(ranks: Script, tmp_path: Path) -> None:
    record(row_result("mlp", "llama3-8b")).write(tmp_path / "r.json")
    ranks("raise SystemExit(1)")
    with pytest.raises(RunFailed):
        run_job(job_in(tmp_path), 30, lambda line: None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.json.old"]


def test_rows_that_the_time_did_not_reach_are_counted(
    ranks: Script, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ranks that end in time with rows left over have not failed: nothing is started anew."""
    record(row_result("ag_gemm", "llama3-8b", result("planned", 5.0, "ours")), complete=False).write(
        tmp_path / "p.json"
    )
    ranks("import os, shutil\nshutil.copy(os.path.join(os.path.dirname(results), 'p.json'), results)")
    with pytest.raises(typer.Exit) as caught:
        command._measure(replace(job_in(tmp_path), rows=(PLANNED, PLANNED)), tmp_path / "r.json", 60.0)
    assert caught.value.exit_code == 0
    assert "1 of 2 rows; measure the others with --resume" in capsys.readouterr().err


def test_kernels_of_rows_without_results_are_compiled_ahead(
    ranks: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead: list[list[str]] = []

    @contextmanager
    def compiled_ahead(rows: Sequence[PlannedRow], num_ranks: int) -> Iterator[None]:
        ahead.append([planned.row.name for planned in rows])
        yield

    monkeypatch.setattr(launch, "compiled_ahead", compiled_ahead)
    ranks("")  # they end at once
    other = replace(PLANNED, row=replace(ROW, name="other"))
    job = replace(job_in(tmp_path), rows=(PLANNED, other), resume=True)
    record(row_result("ag_gemm", ROW.name)).write(job.results)
    run_job(job, 30, lambda line: None)
    record(row_result("ag_gemm", ROW.name, failure="they hung")).write(job.results)
    run_job(job, 30, lambda line: None)
    assert ahead == [["other"], [ROW.name, "other"]]


def test_ranks_that_take_too_long_are_ended() -> None:
    """As torchrun does, the launcher ends on SIGTERM."""
    reason, lines = run_to_end(
        [sys.executable, "-c", "import time; print('started', flush=True); time.sleep(60); print('ended')"],
        1.0,
        lambda line: None,
    )
    assert (reason, lines) == ("they took longer than 1 s", ["started"])


@pytest.mark.slow
def test_the_entry_of_a_checkout_needs_neither_emulator_nor_greenlet() -> None:
    """The machine that measures has torch, triton, typer and rich."""
    code = "import sys; sys.modules['greenlet'] = None; import tilelink.bench.ranks, tilelink.bench.command\n"
    code += "found = [name for name in sys.modules if name.startswith(('tilelink.emulator', 'matplotlib.'))]\n"
    code += "sys.exit(str(found) if found else 0)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shown = subprocess.run(
        [sys.executable, "benchmarks/bench.py", "--ranks", "2", "--rows", "31x64x64"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 2
    assert "RowNotDivisible: " in shown.stderr
    assert "Traceback" not in shown.stderr
