"""No false alarm: goldens, schedules of every kind at real sizes, sampled ones."""

from __future__ import annotations

import random
from functools import cache

import pytest

import lowering
import topologies
from tests.compiled.planted import checked
from tests.pipeline.test_emitted import GOLDENS, emit_golden
from tests.pipeline.test_targets import SCHEDULES
from tests.pipeline.workloads import load
from tilelink.compiled import check_compiled
from tilelink.ir.spec import bind
from tilelink.planner.sample import sample_schedule
from tilelink.runtime.load import load_source

REAL = {"B": 44, "C": 4096, "M": 8192, "K": 4096, "N": 4096, "H": 4096, "F": 14336}


@cache
def sizes(name: str) -> tuple[tuple[str, int], ...]:
    return tuple((symbol, REAL[symbol]) for symbol in load(name).spec.symbols())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "topology", "target", "pins"), [one for one in GOLDENS if one[2] == "triton"])
def test_goldens(name: str, topology: str, target: str, pins: dict[str, object]) -> None:
    arch = topologies.load(topology, 4).gpu.arch
    report = check_compiled(load_source(emit_golden(name, topology, target, pins), "golden"), 4, arch)
    assert report.events and not report.findings and not report.unknown, report.lines()


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_workload(name: str) -> None:
    machine = topologies.load("h100-nvswitch", 2)
    schedule = load(name).plan_for(machine, dict(sizes(name)), "bf16", dict(SCHEDULES[name][1]))
    report = checked(schedule, lowering.emit(schedule))
    assert not report.findings and not report.unknown, report.lines()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_sampled(seed: int) -> None:
    """More of these by hand: benchmarks/compiled_order.py."""
    rng = random.Random(seed)
    name = rng.choice(list(SCHEDULES))
    machine = topologies.load("h200-nvswitch", 4)
    bound = bind(load(name).spec, dict(sizes(name)) | ({"K": 256} if "gemm" in name else {}), 4, "bf16")
    schedule = sample_schedule(bound, machine, rng)
    report = checked(schedule, lowering.emit(schedule))
    assert not report.findings and not report.unknown, report.lines()
