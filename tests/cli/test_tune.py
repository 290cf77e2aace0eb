"""`tilelink tune`: what it says without GPUs, and of what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from tilelink import tune_command
from tilelink.cli import app
from tilelink.tune_command import lines

SPEC = str(Path(__file__).resolve().parents[2] / "examples" / "03_gemm_rs.py") + ":gemm_rs"
SIZES = ("M=256", "K=256", "N=256")
FOUND = {
    "hash": "0123456789abcdef",
    "chosen": "alternative 1",
    "known": False,
    "timed": [
        {"name": "planned", "predicted_us": 10.0, "us": 12.0, "failure": "", "choices": {"a.mover": "CopyEngine()"}},
        {"name": "alternative 1", "predicted_us": 10.5, "us": 9.25, "failure": "", "choices": {"a.mover": "Fused()"}},
        {"name": "library", "predicted_us": 20.0, "us": None, "failure": "RuntimeError: no\nmore", "choices": {}},
    ],
}


def tune(*arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["tune", SPEC, *SIZES, *arguments])
    return found.exit_code, found.output


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what machines without GPUs say")
@pytest.mark.parametrize("arguments", [(), ("--topology", "h100-nvswitch", "--ranks", "2")])
def test_without_gpus_it_says_where_to_tune(arguments: tuple[str, ...]) -> None:
    code, text = tune(*arguments)
    assert code == 2
    assert "torch sees no GPU here" in text
    assert "Tune on the machine that will run it" in text


def test_a_line_for_each_schedule_and_one_for_the_choice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILELINK_CACHE", str(tmp_path))
    first, *listed, last = lines(FOUND)
    assert first == "us, slowest rank, median of rounds"
    assert [line.split() for line in listed] == [
        ["planned", "predicted", "10.0", "measured", "12.0"],
        ["alternative", "1", "predicted", "10.5", "measured", "9.2", "a.mover=Fused()"],
        ["library", "predicted", "20.0", "measured", "failed", "RuntimeError:", "no"],
    ]
    assert last.startswith("chosen: alternative 1, schedule 0123456789abcdef; kept for compile(tune=N)")
    assert "known from an earlier run" in lines({**FOUND, "known": True})[0]
    monkeypatch.setenv("TILELINK_CACHE", "off")
    assert lines(FOUND)[-1].endswith("not kept: TILELINK_CACHE=off")


def test_what_was_measured_is_printed_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[dict[str, object]] = []

    def run(command: list[str], timeout_s: float, say: object) -> tuple[str, list[str]]:
        job = json.loads(Path(command[-1]).read_text())
        jobs.append(job)
        Path(str(job["found"])).write_text(json.dumps(FOUND))
        return "", []

    monkeypatch.setattr(tune_command, "check_gpus", lambda num_ranks, instead: None)
    monkeypatch.setattr(tune_command, "run_to_end", run)
    out = tmp_path / "found.json"
    code, text = tune(
        "--topology", "h100-nvswitch", "--ranks", "2", "--top", "3", "--pin", "mover=Fused()", "--json", str(out)
    )
    assert (code, json.loads(out.read_text())) == (0, FOUND)
    assert "alternative 1" in text
    (job,) = jobs
    assert (job["topology"], job["count"], job["pins"]) == ("h100-nvswitch", 3, {"mover": "Fused()"})


def test_ranks_that_leave_nothing_are_an_error_with_their_last_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_command, "check_gpus", lambda num_ranks, instead: None)
    monkeypatch.setattr(tune_command, "run_to_end", lambda *_: ("exit code 1", ["CUDA error: out of memory"]))
    code, text = tune("--topology", "h100-nvswitch", "--ranks", "2")
    assert code == 1
    assert "CUDA error: out of memory" in text
