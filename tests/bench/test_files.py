"""Emitted files as contenders: they go through the file of plans, and what does not fit is told before anything is planned."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import topologies
from tests.bench.fakes import result, row_result
from tilelink import cli
from tilelink.bench.files import parse_file, with_files
from tilelink.bench.job import read_job
from tilelink.bench.operators import declaration
from tilelink.bench.ours import ours
from tilelink.bench.plans import Origin, PlannedRow
from tilelink.bench.rows import Operator, select
from tilelink.bench.summary import summarize

ROW = ("gemm_rs", "--ranks", "2", "--rows", "256x128x512")


@pytest.fixture(scope="module")
def emitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (row,) = select([Operator.GEMM_RS], ["256x128x512"], "bf16", 2)
    schedule = declaration(row.operator).plan_for(topologies.load("h200-nvswitch", 2), row.sizes, row.dtype, {})
    path = tmp_path_factory.mktemp("files") / "rs.py"
    path.write_text(schedule.emit().replace("num_stages=3", "num_stages=4"))
    return path


def bench(*args: str) -> Result:
    return CliRunner().invoke(cli.app, ("bench", *args))


def test_a_file_takes_part_in_the_rows_that_it_fits(emitted: Path, tmp_path: Path) -> None:
    plans = tmp_path / "plans.json"
    rows = ("gemm_rs", "ag_gemm", "--ranks", "2", "--rows", "256x128x512")
    found = bench(*rows, "--file", f"mine:{emitted}", "--write-plans", str(plans))
    assert found.exit_code == 0, found.stderr
    gather, scatter = read_job(plans).rows
    assert [c.label for c in gather.candidates] == ["planned"]
    mine = scatter.candidates[-1]
    assert (mine.label, mine.origin, mine.schedule) == ("mine", Origin.FILE, None)
    assert mine.source == emitted.read_text()
    contender = ours(mine)
    assert (contender.name, contender.failure, contender.schedule) == ("mine", "", None)


def test_operators_that_take_the_same_inputs_are_told_apart(emitted: Path) -> None:
    rows = select([Operator.GEMM_RS, Operator.GEMM_AR], ["256x128x512"], "bf16", 2)
    assert [parse_file(f"mine:{emitted}").fits(row, 2) for row in rows] == [True, False]


@pytest.mark.parametrize(
    ("text", "error", "fact"),
    [
        ("mine", "MalformedFile", "a label, a colon and a path"),
        ("mine:absent.py", "NotAnEmittedFile", "No such file"),
        ("mine:{here}/broken.py", "NotAnEmittedFile", "SyntaxError"),
        ("mine:{here}/other.py", "NotAnEmittedFile", "no class with INPUTS"),
        ("planned:{emitted}", "MalformedFile", "has a contender of that name"),
    ],
)
def test_what_is_no_file_for_ranks(emitted: Path, tmp_path: Path, text: str, error: str, fact: str) -> None:
    (tmp_path / "broken.py").write_text("class Op(:")
    (tmp_path / "other.py").write_text("class Op:\n    pass\n")
    found = bench(
        *ROW, "--file", text.format(here=tmp_path, emitted=emitted), "--write-plans", str(tmp_path / "p.json")
    )
    assert found.exit_code == 2
    assert found.stderr.startswith(f"{error}: ")
    assert fact in found.stderr
    assert not (tmp_path / "p.json").exists()


@pytest.mark.parametrize("rows", [("gemm_rs", "--ranks", "4", "--rows", "256x128x512"), (*ROW[:4], "512x128x512")])
def test_a_file_that_fits_no_row(emitted: Path, tmp_path: Path, rows: tuple[str, ...]) -> None:
    found = bench(*rows, "--file", f"mine:{emitted}", "--write-plans", str(tmp_path / "p.json"))
    assert found.exit_code == 2
    assert found.stderr.startswith("FileFitsNoRow: ")
    assert "takes [256, 256] torch.bfloat16, [256, 128] torch.bfloat16 on 2 ranks" in found.stderr


def test_two_files_need_two_labels(emitted: Path) -> None:
    (row,) = select([Operator.GEMM_RS], ["256x128x512"], "bf16", 2)
    one = parse_file(f"mine:{emitted}")
    two = with_files([PlannedRow(row, ())], [one, parse_file(f"other:{emitted}")], 2)
    assert [c.label for c in two[0].candidates] == ["mine", "other"]
    with pytest.raises(Exception, match="has a contender of that name"):
        with_files(two, [one], 2)


def test_a_file_is_not_what_the_planner_picks(emitted: Path) -> None:
    """However fast, it does not count as ours in the summary."""
    contenders = result("planned", 100.0, "ours"), result("mine", 50.0, "ours"), result("nccl_cublas", 120.0)
    found = summarize(row_result("gemm_rs", "256x128x512", *contenders))
    assert found.ours_us == 100.0
    assert found.tuned_us is None
