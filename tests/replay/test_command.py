"""`make replay` itself: shares of processes, and a run against the last commit."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.replay.cases import cases
from tests.replay.side import share
from tests.replay.sides import ROOT


def test_each_case_is_in_one_share_with_those_of_its_plan() -> None:
    everything = cases()
    shares = [share(everything, part, 3) for part in range(3)]
    assert sorted(case.name for one in shares for case in one) == sorted(case.name for case in everything)
    plans = [
        {(case.operator, case.topology, case.num_ranks, case.dtype, case.sizes, case.pins) for case in one}
        for one in shares
    ]
    assert not plans[0] & plans[1] and not plans[1] & plans[2] and not plans[0] & plans[2]


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="a commit to compare with is in a repository")
def test_a_run_against_the_last_commit() -> None:
    command = [sys.executable, "-m", "tests.replay", "--only", "spec only_gather", "--against", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    differ = "1 of 1 cases differ" in done.stdout  # where the tree has changes that the commit has not
    assert differ or "0 of 1 cases differ" in done.stdout, done.stderr
    assert done.returncode == int(differ)
