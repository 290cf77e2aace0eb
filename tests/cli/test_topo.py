"""`tilelink topo detect --calibrate`: what is refused before anything is measured, and where the results go."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

import topologies
from tilelink.calibrating import ranks
from tilelink.calibrating.calibrate import Calibrated

if TYPE_CHECKING:
    from tests.cli.conftest import Invoke

CALIBRATE = ("topo", "detect", "--calibrate")
FOUND = Calibrated(topologies.load("h200-nvswitch"), "the file\n", "the table")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "calibrate", lambda output, like, tflops: FOUND)


def test_without_gpus(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = invoke(*CALIBRATE)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("CannotCalibrate: ")
    assert "torchrun --nproc-per-node N -m tilelink topo detect --calibrate -o my.toml" in result.stderr


def test_one_rank_answers_for_all(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("RANK", "1")
    result = invoke(*CALIBRATE)
    assert (result.exit_code, result.output) == (0, "")


@pytest.mark.parametrize("option", [("-o", "my.toml"), ("--like", "l20-pcie"), ("--tflops", "900")])
def test_options_of_a_measurement(invoke: Invoke, option: tuple[str, str]) -> None:
    result = invoke("topo", "detect", *option)
    assert result.exit_code == 2
    assert "--calibrate" in result.stderr


@pytest.mark.usefixtures("measured")
def test_the_file_is_new(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    result = invoke(*CALIBRATE, "-o", str(path))
    assert (result.exit_code, result.stdout, path.read_text()) == (0, "the table\n", "the file\n")
    again = invoke(*CALIBRATE, "-o", str(path))
    assert again.exit_code == 2 and again.stderr.startswith("DescriptorExists: ")
    assert path.read_text() == "the file\n"


@pytest.mark.usefixtures("measured")
def test_without_a_file(invoke: Invoke) -> None:
    result = invoke(*CALIBRATE)
    assert (result.stdout, result.stderr) == ("the file\n", "the table\n")


@pytest.mark.usefixtures("measured")
def test_json(invoke: Invoke) -> None:
    result = invoke(*CALIBRATE, "--json")
    assert '"name": "h200-nvswitch"' in result.stdout
    assert result.stderr == "the table\n"


@pytest.mark.usefixtures("measured")
def test_other_ranks_say_and_write_nothing(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    result = invoke(*CALIBRATE, "-o", str(tmp_path / "my.toml"))
    assert (result.exit_code, result.output, list(tmp_path.iterdir())) == (0, "", [])


def test_a_file_that_is_there_is_found_first(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "check_machine", lambda environment: 2)
    path = tmp_path / "my.toml"
    path.write_text("mine")
    result = invoke(*CALIBRATE, "-o", str(path))
    assert result.exit_code == 2 and result.stderr.startswith("DescriptorExists: ")
