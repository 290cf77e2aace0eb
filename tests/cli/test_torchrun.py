"""What is left of the lines of ranks that fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilelink.runtime.torchrun import run_to_end, torchrun

FAILS = """
import os, time
print("rank", os.environ["RANK"], "is here", flush=True)
if os.environ["RANK"] == "0":
    raise ValueError("this is the reason")
time.sleep(60)
"""


@pytest.mark.slow
def test_the_reason_is_among_them(tmp_path: Path) -> None:
    file, said = tmp_path / "fails.py", list[str]()
    file.write_text(FAILS)
    reason, lines = run_to_end(torchrun(2, str(file)), 60.0, said.append)
    assert reason == "exit code 1"
    assert "ValueError: this is the reason" in lines[-12:]
    assert not [line for line in lines if "torch/distributed/elastic" in line or "ChildFailedError" in line]
    assert any("ChildFailedError" in line for line in said)
