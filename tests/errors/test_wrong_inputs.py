"""Every wrong input of the table is answered by its error: one message, no traceback, the right exit code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from tests.errors.wrong_inputs import COMMANDS, FILES, NONE, PRELUDE, SNIPPETS, USAGE, Command, Snippet
from tilelink import cli
from tilelink.errors import TileLinkError

HIDDEN = re.compile(r"Traceback|Value error|pydantic|object at 0x(?!\w+>: no schedule)")


@pytest.fixture(autouse=True)
def no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wrong")
    for name, text in FILES.items():
        (path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_there_are_enough() -> None:
    assert len({case.line for case in COMMANDS} | {case.text for case in SNIPPETS}) >= 60


@pytest.mark.parametrize("case", COMMANDS, ids=lambda case: case.line[:60])
def test_command(case: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    result = CliRunner().invoke(cli.app, shlex.split(case.line))
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.exit_code == case.exit_code, result.output
    assert not HIDDEN.search(result.output)
    shown = " ".join(re.sub(r"[│╭╮╰╯─]", " ", result.stderr).split())
    if case.error == NONE:
        assert case.says in result.stdout
    else:
        assert result.stdout == ""
        assert case.says in shown
        assert f"{case.error}: " in shown or (case.error == USAGE and ("Usage: " in shown or "Error " in shown))
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("case", SNIPPETS, ids=lambda case: case.text.strip().splitlines()[0][:60])
def test_snippet(case: Snippet, tmp_path: Path) -> None:
    file = tmp_path / "snippet.py"
    file.write_text(PRELUDE + case.text)
    with pytest.raises(TileLinkError) as caught:
        exec(compile(file.read_text(), str(file), "exec"), {"__name__": "snippet"})
    assert type(caught.value).__name__ == case.error
    assert case.says in str(caught.value)
    assert caught.value.exit_code == case.exit_code
    located = caught.value.location
    assert not located or located.startswith((f"{file}:", "snippet.py:"))
