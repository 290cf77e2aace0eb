"""`plan` is a function of its arguments alone: the same on every call, in every process, on every rank."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import topologies
from tests.planner.operators import ag_gemm, gemm_ar, gemm_rs, mlp
from tilelink.ir.spec import bind
from tilelink.planner.sample import sample_schedule

if TYPE_CHECKING:
    from tilelink import Overlap

ROOT = Path(__file__).resolve().parents[2]
CASES: list[tuple[Overlap, str, dict[str, Any]]] = [
    (ag_gemm, "h200-nvswitch", {"M": 8192, "K": 4096, "N": 14336}),
    (gemm_rs, "mi300x-full-mesh", {"M": 8192, "K": 14336, "N": 4096}),
    (gemm_ar, "laptop-switch", {"M": 256, "K": 128, "N": 128}),
    (mlp, "l20-pcie", {"M": 2048, "H": 1024, "F": 4096}),
]


QUICK_FIRST = pytest.mark.parametrize(
    ("operator", "topology", "sizes"),
    [
        pytest.param(*case, marks=[pytest.mark.slow] if case[0] in (mlp, gemm_ar) else [], id=case[0].name)
        for case in CASES
    ],
)


@QUICK_FIRST
def test_twice(operator: Overlap, topology: str, sizes: dict[str, Any]) -> None:
    first, logged = operator.plan(topology, 4, **sizes), list[object]()
    again = operator.plan(topologies.load(topology, 4), log=logged.append, **dict(reversed(sizes.items())))
    assert first == again
    assert first.hash == again.hash
    assert str(first) == str(again)
    assert logged  # a line for each structure, and no influence


_PRINT_HASHES = """
from tests.planner.test_plan import CASES
for operator, topology, sizes in CASES:
    print(operator.plan(topology, 4, **sizes).hash)
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["0", "1"])
def test_in_another_process(seed: str) -> None:
    """Another order of hashes: no set or hash decides anything."""
    command = [sys.executable, "-c", _PRINT_HASHES]
    environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT), "PATH": ""}
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=environment)
    assert done.stdout.split() == [operator.plan(name, 4, **sizes).hash for operator, name, sizes in CASES]


@QUICK_FIRST
def test_the_choice_is_no_worse_than_random_ones(operator: Overlap, topology: str, sizes: dict[str, Any]) -> None:
    machine, rng = topologies.load(topology, 4), random.Random(operator.name)
    best = operator.plan(machine, **sizes).predicted_us
    bound = bind(operator.spec, sizes, 4, "bf16")
    found = [sample_schedule(bound, machine, rng).predicted_us for _ in range(10)]
    assert best > 0
    assert best <= min(found)


@pytest.mark.parametrize("topology", topologies.names())
@pytest.mark.quick(6)
def test_every_machine(topology: str) -> None:
    found = ag_gemm.plan(topology, M=4096, K=1024, N=4096)
    assert found.num_ranks == topologies.load(topology).num_ranks
    assert found.predicted_us > 0


def test_a_plan_is_remembered_unless_its_search_is_logged() -> None:
    sizes, machine = {"M": 264, "K": 64, "N": 136}, topologies.load("laptop-switch", 2)
    first, again, other = (ag_gemm.plan_for(machine, sizes, pin=pin) for pin in ({}, {}, {"chunks": 1}))
    assert again is first and other is not first
    lines: list[str] = []
    logged = ag_gemm.plan_for(machine, sizes, log=lines.append)
    assert lines and logged == first
