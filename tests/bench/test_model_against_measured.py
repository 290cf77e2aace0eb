"""The cost model against schedules that were measured side by side: `benchmarks/results/candidates_*.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import pytest

import topologies
from tilelink.bench.again import pins_of_record, row_of
from tilelink.bench.operators import declaration
from tilelink.bench.record import RowResult, read
from tilelink.bench.rows import Row
from tilelink.errors import NoLegalSchedule
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import bind
from topologies.topology import Topology

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
FILES = sorted(RESULTS.glob("candidates_*.json"))
HELD_OUT = sorted(RESULTS.glob("*_2xh100.json"))  # nothing but pieces and the rate of cuBLAS is fitted to this machine


@dataclass(frozen=True)
class Measured:
    row: str
    name: str
    predicted_us: float  # with all choices pinned, by the model of now
    us: float

    @property
    def error(self) -> float:
        return abs(self.predicted_us / self.us - 1.0)


def planned_again(row: Row, machine: Topology, choices: Mapping[str, str]) -> tuple[Schedule, dict[str, str]]:
    """The schedule of a record, and the pins that lead to it: it may hold what decides nothing, with other choices or at all."""
    operator = declaration(row.operator, row.k_major)
    pins = pins_of_record(bind(operator.spec, row.sizes, machine.num_ranks, row.dtype), machine, choices)
    try:
        return operator.plan_for(machine, row.sizes, row.dtype, pins), pins
    except NoLegalSchedule:
        pins = {name: value for name, value in pins.items() if value != "at once"}
        return operator.plan_for(machine, row.sizes, row.dtype, pins), pins


def candidates(file: Path) -> list[Measured]:
    record = read(file)
    machine = topologies.load(record.machine.topology, record.machine.num_ranks)

    def measured(result: RowResult) -> list[Measured]:
        row = row_of(result)
        times: dict[str, list[float]] = {}  # of each schedule, which may have taken part under several names
        ones = [one for one in result.contenders if one.schedule is not None and one.median_us is not None]
        first = {one.schedule.hash: one for one in reversed(ones) if one.schedule is not None}
        for one in ones:
            assert one.schedule is not None and one.median_us is not None
            times.setdefault(one.schedule.hash, []).append(one.median_us)
        found = []
        for key, one in first.items():
            assert one.schedule is not None
            again, pins = planned_again(row, machine, one.schedule.choices)
            assert pins.items() <= dict(again.choices).items()  # fields may have come since
            name = f"{file.stem} {row.key}"  # only what took part in one run is compared
            found.append(Measured(name, one.name, again.predicted_us, mean(times[key])))
        return found

    return [one for result in record.rows for one in measured(result)]


@pytest.fixture(scope="module")
def found() -> list[Measured]:
    return [one for file in FILES for one in candidates(file)]


@pytest.mark.slow
def test_predictions_are_near_what_was_measured(found: list[Measured]) -> None:
    assert len(found) > 400
    assert mean(one.error for one in found) < 0.056
    worst = max(found, key=lambda one: one.error)
    assert worst.error < 0.35, worst


@pytest.mark.slow
def test_what_the_model_ranks_first_is_not_far_behind_the_best(found: list[Measured]) -> None:
    rows: dict[str, list[Measured]] = {}
    for one in found:
        rows.setdefault(one.row, []).append(one)
    behind = []
    for row, several in rows.items():
        first = min(several, key=lambda one: one.predicted_us)
        best = min(several, key=lambda one: one.us)
        behind.append(first.us / best.us)
        # GEMM+AR of 70B and 128 rows took 88.6 and 105.4 us by one schedule in two runs
        assert behind[-1] < 1.13, f"{row}: {first} is ranked before {best}"
    assert mean(behind) < 1.015


@pytest.mark.slow
def test_predictions_hold_on_a_machine_that_nothing_was_fitted_to() -> None:
    """2 x H100: the facts of the descriptor are that GPU's, as copies and matmuls alone show them, the constants of the model
    those of H200, but for pieces and the rate of cuBLAS."""
    records = [file for file in HELD_OUT if "schema" in json.loads(file.read_text(encoding="utf-8"))]
    found = [one for file in records for one in candidates(file)]
    assert len(found) > 150
    assert mean(one.error for one in found) < 0.055
    assert 0.97 < mean(one.predicted_us / one.us for one in found) < 1.03
