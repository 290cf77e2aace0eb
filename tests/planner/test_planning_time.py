"""Planning stays quick: CPU time of the search, at several times what it takes, so that a busy machine is no failure."""

from __future__ import annotations

import pytest

from benchmarks.planning import timed, workloads

# ms: about four times what one core of a busy machine takes
MOST = {"AG+GEMM": 170, "GEMM+AR": 1100, "MLP": 2000, "two layers": 9000}


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", MOST)
def test_search(name: str) -> None:
    (workload,) = (one for one in workloads() if one.name == name)
    found = timed(workload, repeats=1)
    assert found.search_ms < MOST[name]
    assert found.build_ms < 50
