"""Ranks measure rows until the time of their job is up."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.bench.fakes import ROW, FakeDevice, result
from tilelink.bench import ranks
from tilelink.bench.job import Job
from tilelink.bench.ledger import Ledger
from tilelink.bench.plans import PlannedRow
from tilelink.bench.record import LINES, read
from tilelink.measuring.measure import Options
from tilelink.measuring.results import ContenderResult

NAMES = ["first", "second", "third"]
START_S, ROW_S = 1000.0, 10.0


@dataclass
class Measuring:
    """Each row takes ten seconds of the wall clock."""

    now_s: float = START_S
    rows: list[str] = field(default_factory=list)

    def time(self) -> float:
        return self.now_s

    def monotonic(self) -> float:
        return self.now_s

    def results_of(self, job: Job, planned: PlannedRow, *_: object) -> list[ContenderResult]:
        self.now_s += ROW_S
        self.rows.append(planned.row.name)
        return [result("planned", 5.0, "ours", origin="planned")]


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch) -> Measuring:
    found = Measuring()
    monkeypatch.setattr(ranks, "time", found)
    monkeypatch.setattr(ranks, "_results_of", found.results_of)
    return found


def job(folder: Path, until_s: float, suffix: str = ".json") -> Job:
    rows = tuple(PlannedRow(replace(ROW, name=name), ()) for name in NAMES)
    results = folder / f"r{suffix}"
    return Job(rows, 2, "h200-nvswitch", 389.0, Options(), "abc", results, True, 100.0, until_s)


def measure(job: Job, device: Any) -> None:
    ranks.measure_rows(job, device, Ledger(job, device.rank, os.getppid()))


@pytest.mark.parametrize("suffix", [".json", LINES])
def test_no_row_starts_after_the_jobs_time_and_a_later_run_measures_the_others(
    suffix: str, tmp_path: Path, measuring: Measuring
) -> None:
    short = job(tmp_path, START_S + 1.5 * ROW_S, suffix)
    measure(short, FakeDevice())
    first = read(short.results)
    assert measuring.rows == ["first", "second"]  # what has begun ends
    assert ([row.name for row in first.rows], first.complete) == (["first", "second"], False)

    whole = job(tmp_path, float("inf"), suffix)
    measure(whole, FakeDevice())
    second = read(whole.results)
    assert measuring.rows == NAMES  # what was there is not measured again
    assert ([row.name for row in second.rows], second.complete) == (NAMES, True)
    assert second.rows[:2] == first.rows


def test_a_job_whose_time_is_up_writes_a_file_without_rows(tmp_path: Path, measuring: Measuring) -> None:
    late = job(tmp_path, START_S)
    measure(late, FakeDevice())
    found = read(late.results)
    assert (found.rows, found.complete) == ((), False)


class SecondRank(FakeDevice):
    """Beside a first rank that says `first` of whether it is late."""

    first = "false"

    def exchange(self, text: str) -> list[str]:
        return [self.first, text]


@pytest.mark.parametrize(("first", "measured"), [("false", NAMES), ("true", [])])
def test_ranks_go_by_the_clock_of_the_first(
    first: str, measured: list[str], tmp_path: Path, measuring: Measuring
) -> None:
    """If each went by its own, one would start a row that the other leaves out, and wait for ever."""
    device = SecondRank(rank=1)
    device.first = first
    measure(job(tmp_path, START_S + 1.5 * ROW_S), device)
    assert measuring.rows == measured
