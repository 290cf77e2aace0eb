"""Schedules for the check with late ranks are planned where there are no GPUs, and run where there are some."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import topologies
from benchmarks import late_ranks
from tilelink.bench.operators import declaration
from tilelink.bench.rows import Operator
from topologies.topology import Topology


def test_written_plans_are_read_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, pins, file = {"M": 256, "K": 128, "N": 256}, {"compute": "library"}, tmp_path / "plans.json"
    machine = topologies.load("h100-nvswitch", 4)
    schedule = declaration(Operator.GEMM_RS, False).plan_for(machine, sizes, "bf16", pins)
    found = [late_ranks.Case("gemm_rs", sizes, pins, schedule)]
    asked: list[tuple[int, int, str]] = []

    def cases(topology: Topology, seed: int, only: str) -> list[late_ranks.Case]:
        asked.append((topology.num_ranks, seed, only))
        return found

    monkeypatch.setattr(late_ranks, "cases", cases)
    arguments = ["--write-plans", str(file), "--ranks", "4", "--seed", "3", "--only", "rs"]
    monkeypatch.setattr(sys, "argv", ["late_ranks.py", *arguments])
    assert late_ranks.main() == 0
    assert asked == [(4, 3, "rs")]
    assert late_ranks.read(file) == found
