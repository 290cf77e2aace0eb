"""`tilelink verify --api`: what it prints, as JSON too, its exit codes, and bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.dialect_api.seeds import QUEUE, sample

if TYPE_CHECKING:
    from tests.cli.conftest import Invoke


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "queue.py"
    path.write_text(sample(QUEUE))
    return path


def test_a_valid_file(invoke: Invoke, file: Path) -> None:
    result = invoke("verify", "--api", str(file))
    assert result.exit_code == 0, result.output
    assert result.stdout == f"valid: {file} against the API of Triton-distributed on nvidia: 0 mistakes, 0 warnings\n"


def test_every_finding_has_its_place(invoke: Invoke, file: Path) -> None:
    text = file.read_text().replace("dl.symm_at(slots, peer)", "dl.symm_at(slots)")
    file.write_text(text)
    line = next(number for number, one in enumerate(text.splitlines(), 1) if "dl.symm_at(slots)" in one)
    result = invoke("verify", str(file), "--api")
    assert result.exit_code == 1
    first, last = result.stdout.splitlines()
    assert first.startswith(f'{file}:{line}:31: mistake missing-argument: Missing positional argument "rank"')
    assert last.startswith(f"refuted: {file} ")


def test_nothing_to_check(invoke: Invoke, file: Path) -> None:
    file.write_text("import torch\n")
    result = invoke("verify", "--api", str(file))
    assert (result.exit_code, result.stdout.splitlines()[0].startswith(f"nothing to check: {file} ")) == (2, True)
    assert json.loads(invoke("verify", "--api", str(file), "--json").stdout)["verdict"] == "nothing to check"


def test_json_and_vendor(invoke: Invoke, file: Path) -> None:
    result = invoke("verify", "--api", str(file), "--vendor", "mori", "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert (found["verdict"], found["vendor"], found["file"]) == ("refuted", "mori", str(file))
    assert [one["rule"] for one in found["findings"]] == ["notify-on-amd"] * 2
    assert set(found["findings"][0]) == {"rule", "severity", "line", "column", "message", "legal"}


def test_warnings_do_not_refute(invoke: Invoke, file: Path) -> None:
    later, earlier = "dl.symm_at(signals, peer) + slot", "dl.symm_at(signals + slot, peer)"
    file.write_text(file.read_text().replace(later, earlier))
    result = invoke("verify", "--api", str(file))
    assert result.exit_code == 0
    assert "warning symm-at-arithmetic" in result.stdout and result.stdout.rstrip().endswith("0 mistakes, 1 warning")


def test_bad_input(invoke: Invoke, file: Path) -> None:
    broken = file.with_name("broken.py")
    broken.write_text("def f(:\n")
    for args, error in (
        (("--api", "nowhere.py"), "SourceMissing"),
        (("--api", str(broken)), "SourceNotPython"),
        (("--api", str(file), "M=8"), "SizesOfFile"),
        ((str(file), "--vendor", "nvidia"), "OptionOfApi"),
        (("--api", str(file), "--vendor", "intel"), "intel"),
    ):
        result = invoke("verify", *args)
        assert result.exit_code == 2, args
        assert error in result.stderr
