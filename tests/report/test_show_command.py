"""`tilelink show`: it writes a page, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.report.pages import EXAMPLES, Reader
from tilelink.cli import app

SPEC = (f"{EXAMPLES / '02_ag_gemm.py'}:ag_gemm", "M=256", "K=64", "N=128", "--ranks", "2")


def show(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["show", *SPEC, *arguments])


def test_a_page(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("an older page")
    result = show("-o", str(path), "--pin", "chunks=1", "--families", "2")
    assert result.exit_code == 0 and result.stdout == "" and "planned in" in result.stderr
    found = Reader.of(path.read_text())
    assert dict(found.data["schedule"]["choices"])["x_full.chunks"] == "1"
    assert len(found.data["why"]["rejected"]) <= 2
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.slow
def test_sizes_and_rates_that_flip_the_choice(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    assert show("-o", str(path), "--seconds", "2").exit_code == 0
    assert "What would flip the choice" in Reader.of(path.read_text()).text_of("alternatives")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("-o", "{folder}/none/report.html"), "OutputNotWritable"),
        (("-o", "{folder}"), "OutputNotWritable"),
        (("-o", "{folder}/r.html", "--measured", "{folder}/none.json"), "NotAMeasurement"),
        (("-o", "{folder}/r.html", "--pin", "x_full.chunks=7777"), "IllegalPin"),
        (("-o", "{folder}/r.html", "--ranks", "3"), "NotDivisible"),
    ],
)
def test_a_mistake_leaves_nothing(arguments: tuple[str, ...], error: str, tmp_path: Path) -> None:
    result = show(*(one.format(folder=tmp_path) for one in arguments))
    assert result.exit_code in (2, 3)
    assert result.stderr.startswith((f"{error}: ", "NoLegalSchedule: "))
    assert list(tmp_path.iterdir()) == []


def test_the_output_is_asked_for() -> None:
    result = show()
    assert result.exit_code == 2 and "-o" in result.stderr
