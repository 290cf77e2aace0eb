"""`tilelink verify`: proof and runs of a spec, runs of a file, what they print and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.adversary.bugs import edited

if TYPE_CHECKING:
    from tests.cli.conftest import Invoke

HERE = ("--topology", "laptop-switch", "--ranks", "2", "--workers", "1")
SPEC = ("verify", "layers.py:gemm_rs", "M=64", "K=64", "N=64", *HERE)
HAND_WRITTEN = (Path(__file__).parents[1] / "adversary" / "exchange.py").read_text()
BROKEN = edited(HAND_WRITTEN, ("< 2 * call + half - 1", "!= 2 * call + half - 1"))


@pytest.mark.slow
@pytest.mark.usefixtures("spec_path")
def test_a_spec_is_proved_and_run(invoke: Invoke) -> None:
    result = invoke(*SPEC, "--seeds", "1")
    assert result.exit_code == 0, result.output
    first, order, compiled, second, third = result.stdout.splitlines()
    assert order.startswith("as steps proved for any number of calls, of which ")
    assert first.startswith("proved: 2 ranks, ")
    assert compiled.startswith("compiled: ") and "keep the order of their source" in compiled
    assert second.startswith("run at M=") and "with the same choices" in second
    assert third.startswith("no run refutes gemm_rs: 2 emulated ranks, ")
    assert "results equal to the reference" in third


@pytest.mark.slow
@pytest.mark.usefixtures("spec_path")
def test_json(invoke: Invoke) -> None:
    result = invoke(*SPEC, "--seeds", "0", "--json", "--pin", "mover=Fused()", "--pin", "algorithm=direct")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["verdict"] == "proved"
    assert found["proof"]["findings"] == [] and found["proof"]["checked"]["ranks"] == 2
    assert found["order"]["events"] > 0 and found["order"]["rank_period"] == 1
    assert found["runs"]["counterexample"] is None and found["runs"]["trials"] > 20


def test_a_file_that_is_refuted(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "ring.py"
    file.write_text(BROKEN)
    result = invoke("verify", str(file), "--seeds", "0", "--workers", "1")
    assert result.exit_code == 1
    assert result.stdout.startswith("refuted: Exchange, 2 emulated ranks, ")
    assert "class 6: equality wait on a value that can pass" in result.stdout
    line = next(number for number, text in enumerate(BROKEN.splitlines(), 1) if "!= 2 * call" in text)
    assert f"ring.py:{line}" in result.stdout
    again = result.stdout.splitlines()[-1].removeprefix("  again: tilelink ").split()
    replayed = invoke(*again, "--json")
    assert replayed.exit_code == 1, replayed.output
    found = json.loads(replayed.stdout)
    assert (found["verdict"], found["proof"]) == ("refuted", None)
    shown = found["runs"]["counterexample"]
    assert (shown["class"], shown["line"], shown["file"]) == (6, line, "ring.py")
    assert all(set(event) == {"step", "rank", "program", "file", "line", "text"} for event in shown["events"])


def test_a_file_without_reference(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "ring.py"
    file.write_text(HAND_WRITTEN.partition("def reference")[0])
    result = invoke("verify", str(file), "--seeds", "0", "--workers", "1")
    assert result.exit_code == 0, result.output
    assert "no reference to compare with" in result.stdout


def test_bad_input(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "ring.py"
    file.write_text(HAND_WRITTEN)
    for args, error in (
        (("nowhere.py",), "NotAnOperatorFile"),
        ((str(file), "M=8"), "SizesOfFile"),
        ((str(file), "--replay", "calls"), "UnknownReplay"),
    ):
        result = invoke("verify", *args)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith(f"{error}: ")


@pytest.mark.slow
def test_in_several_processes(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "ring.py"
    file.write_text(HAND_WRITTEN)
    assert invoke("verify", str(file), "--seeds", "4", "--workers", "2").exit_code == 0
    file.write_text(BROKEN)
    assert invoke("verify", str(file), "--seeds", "4", "--workers", "2").exit_code == 1
