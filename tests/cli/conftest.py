"""A runner for commands, and a spec file whose overlap is a stand-in."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner, Result

from tests.cli.standins import StandInOverlap, StandInResult, StandInSchedule
from tilelink import cli

if TYPE_CHECKING:
    from pathlib import Path

Invoke = Callable[..., Result]

SPEC = """
from tests.cli.standins import StandInOverlap

print("the spec file talks")
ag_gemm = StandInOverlap()
gemm_rs = StandInOverlap()
threshold = 3


def plain(x, w):
    return x @ w
"""


@pytest.fixture
def invoke() -> Invoke:
    """`invoke("topo", "list")` runs the command line in this process."""

    def run(*args: str) -> Result:
        return CliRunner().invoke(cli.app, args)

    return run


@pytest.fixture
def spec_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`layers.py` in a folder of its own, which is the current one."""
    _replace(monkeypatch, "tilelink.overlap", Overlap=StandInOverlap)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "layers.py"
    path.write_text(SPEC)
    return path


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Emitting and running answer with what they were asked for; a run with seed 1 is not equal."""

    def emit(schedule: StandInSchedule, target: str) -> str:
        return f"# {target}: {schedule}\n"

    def run_emulated(schedule: StandInSchedule, source: str, calls: int, seed: int) -> StandInResult:
        return StandInResult(seed != 1, f"cpu, {calls} calls, {source.strip()}")

    def run_cuda(schedule: StandInSchedule, source: str, calls: int, seed: int) -> StandInResult:
        return StandInResult(seed != 1, f"cuda, {calls} calls, {source.strip()}")

    _replace(monkeypatch, "lowering", emit=emit)
    _replace(monkeypatch, "tilelink.runtime.run", run_emulated=run_emulated, run_cuda=run_cuda)


def _replace(monkeypatch: pytest.MonkeyPatch, name: str, **contents: object) -> None:
    """An import of module `name` finds just `contents`."""
    module = ModuleType(name)
    vars(module).update(contents)
    monkeypatch.setitem(sys.modules, name, module)
