"""What a stranger does with the project works in a fresh clone, within 10 minutes, by steps that are written down."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests import stranger_path

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (stranger_path.ROOT / ".git").exists() or shutil.which("git") is None, reason="nothing to clone"
    ),
]


def test_the_path_of_a_stranger(tmp_path: Path) -> None:
    stranger_path.follow(tmp_path)


def test_the_tutorials_run_in_a_fresh_clone(tmp_path: Path) -> None:
    stranger_path.run_tutorials(tmp_path)
