"""Each example plans its real size and runs a small one on emulated ranks."""

from __future__ import annotations

import importlib.util

import pytest

from tests.pipeline.workloads import EXAMPLES


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("[0-9]*.py")))
def test_main(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = importlib.util.spec_from_file_location(name[:-3], EXAMPLES / name)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    module.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("schedule ")
    assert lines[-1].startswith("equal: 4 emulated ranks")
