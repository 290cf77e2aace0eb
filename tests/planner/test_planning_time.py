"""Planning stays quick: CPU time of the search, at several times what it takes, so that a busy machine is no failure."""

from __future__ import annotations

import pytest

from benchmarks.planning import WORKLOADS
from tests.machine_speed import within
from tilelink.planner.build import build

# s of a usual machine: about four times what one core of a busy one takes
MOST = {"AG+GEMM": 0.17, "GEMM+AR": 1.1, "MLP": 2.0, "two layers": 9.0}


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", MOST)
def test_search(name: str) -> None:
    workload = WORKLOADS[name]
    workload.searched()  # loads what all plans need
    with within(MOST[name]):
        best = workload.searched()
    with within(0.05):
        build(best.problem)
