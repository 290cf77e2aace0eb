"""What commands give to other programs, and what they keep of the user's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import topologies
from tilelink import demo_command, terminal
from tilelink.cli_errors import WouldOverwrite
from tilelink.runtime.run import RunResult

if TYPE_CHECKING:
    from tests.cli.conftest import Invoke

SPEC = ("layers.py:ag_gemm", "M=64", "K=16", "N=32")


@pytest.mark.usefixtures("spec_path")
def test_a_run_as_json(invoke: Invoke) -> None:
    result = invoke("run", *SPEC, "--ranks", "2", "--dtype", "fp32", "--calls", "3", "--seed", "5", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["equal"] is True and found["differences"] == [] and found["max_error"] <= 1
    assert (found["function"], found["sizes"], found["dtype"]) == ("ag_gemm", {"M": 64, "K": 16, "N": 32}, "fp32")
    assert (found["num_ranks"], found["calls"], found["seed"], found["device"]) == (2, 3, 5, "cpu")


@pytest.mark.parametrize(("error", "text"), [(0.125, "0.12"), (12.5, "12.50"), (3.82e306, "3.8e+306")])
def test_an_error_of_a_run_is_a_short_number(error: float, text: str) -> None:
    """An exact result has a bound of next to nothing, so that its errors are huge."""
    (line,) = RunResult(error <= 1, error, (), "", 0.1, 2, "cpu", 1).lines()
    assert f"largest error {text} of its bound" in line


def test_topologies_as_json(invoke: Invoke) -> None:
    listed = json.loads(invoke("topo", "list", "--json").stdout)
    assert [one["name"] for one in listed] == list(topologies.names())
    shown = json.loads(invoke("topo", "show", "h800-2-nodes", "--json").stdout)
    network = topologies.load("h800-2-nodes").levels[1]
    assert shown["levels"][1]["fabric"] == "network" and shown["levels"][1]["gb_per_s"] == network.gb_per_s


@pytest.mark.usefixtures("spec_path")
def test_the_log_of_a_search(invoke: Invoke, tmp_path: Path) -> None:
    log = tmp_path / "search.log"
    plain = invoke("plan", *SPEC)
    logged = invoke("plan", *SPEC, "--log", str(log))
    assert logged.exit_code == 0 and logged.stdout == plain.stdout
    lines = log.read_text().splitlines()
    assert len(lines) > 1 and any(" us" in line for line in lines)


def test_a_demo_keeps_what_somebody_has_edited(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    assert demo_command.show_demo(path) and demo_command.show_demo(path)  # what it wrote itself it may write again
    edited = path.read_text().replace("TILE_M", "TILE_OF_MINE")
    path.write_text(edited)
    with pytest.raises(WouldOverwrite, match=r"edited it[\s\S]*-o with another file"):
        demo_command.show_demo(path)
    assert path.read_text() == edited


def test_a_line_now_and_then_where_nobody_watches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "EVERY_S", 0.05)
    with terminal.working("planning"):
        time.sleep(0.4)
    told = capsys.readouterr()
    assert told.out == "" and 1 < told.err.count("planning: ") < 12
    time.sleep(0.15)
    assert capsys.readouterr().err == ""


def test_a_shell_completes_commands(tmp_path: Path) -> None:
    asked = {"_TILELINK_COMPLETE": "complete_bash", "COMP_WORDS": "tilelink ver", "COMP_CWORD": "1"}
    command = [sys.executable, "-c", "from tilelink.cli import main; main()"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | asked, cwd=tmp_path)
    assert done.stdout.split() == ["verify"]


@pytest.mark.usefixtures("spec_path")
def test_a_predicted_trace(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "call.json"
    assert invoke("plan", *SPEC, "--perfetto", str(path)).exit_code == 0
    assert any(one["ph"] == "X" for one in json.loads(path.read_text())["traceEvents"])
