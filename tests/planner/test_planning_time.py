"""Planning stays quick: CPU time of the search, at several times what it takes, so that a busy machine is no failure."""

from __future__ import annotations

import pytest

from benchmarks.planning import timed, workloads
from tests.machine_speed import limit

# s of a usual machine: about four times what one core of a busy one takes
MOST = {"AG+GEMM": 0.17, "GEMM+AR": 1.1, "MLP": 2.0, "two layers": 9.0}


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", MOST)
def test_search(name: str) -> None:
    (workload,) = (one for one in workloads() if one.name == name)
    found = timed(workload, repeats=2)  # the first one may import what it needs
    assert found.search_ms < 1e3 * limit(MOST[name])
    assert found.build_ms < 1e3 * limit(0.05)
