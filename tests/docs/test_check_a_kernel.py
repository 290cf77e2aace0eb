"""docs/check_a_kernel.md: it is short, and the commands of its example, run in order, print what the page shows."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from typer.testing import CliRunner

from tests.docs.test_readme import VARIES, Block, blocks
from tilelink.adversary.verdict import VerdictKind
from tilelink.cli import app

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = "docs/check_a_kernel.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")


def done(block: Block) -> tuple[str, int]:
    """What the lines of a ```sh block print, and the exit code of the last one."""
    output, code = "", 0
    for line in block.text.splitlines():
        command, _, _ = line.partition("  # ")
        if not command.startswith("tilelink "):
            output += subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout
            continue
        command, _, rows = command.partition(" | head -")
        result = CliRunner().invoke(app, shlex.split(command)[1:])
        shown = result.stdout.splitlines(keepends=True)
        output, code = output + "".join(shown[: int(rows or len(shown))]), result.exit_code
    return output, code


def test_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    found, page = blocks(PAGE), TEXT
    commands = [block for block in found if block.language == "sh"]
    assert [bool(re.search(r"# exits 1$", block.text.strip())) for block in commands] == [False, True]
    for block in commands:
        output, code = done(block)
        assert code == ("# exits 1" in block.text)
        (shown,) = (one for one in found if one.after == block.text)
        if request.config.getoption("--update-golden"):
            page = page.replace(shown.text, output)
        else:
            spoken = [re.sub(r"\d+\.\d s", "#", VARIES.sub("#", text)) for text in (output, shown.text)]
            assert spoken[0] == spoken[1], "out of date: pytest --update-golden, then read the diff"
    if page != TEXT:
        (ROOT / PAGE).write_text(page, encoding="utf-8")


def test_it_is_short() -> None:
    prose = re.sub(r"^```.*?^```", "", TEXT, flags=re.MULTILINE | re.DOTALL)
    words = re.sub(r"^\|.*$", "", prose, flags=re.MULTILINE).split()
    assert len(words) <= 900
    sentences = [one.split() for one in re.split(r"[.;:]\s", " ".join(words)) if one]
    assert sum(map(len, sentences)) / len(sentences) <= 20


def test_every_verdict_is_explained() -> None:
    for kind in VerdictKind:
        row = re.search(rf"^\| {kind.value} \| (\d) ", TEXT, re.MULTILINE)
        assert (row is None) == (kind is VerdictKind.PROVED)
        assert row is None or int(row[1]) == kind.exit_code
