"""What is kept of a run that loses its ranks, and what the next start leaves out."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.fakes import ROW, FakeDevice, doubling, result
from tilelink.bench import ledger as ledgers
from tilelink.bench.job import Job
from tilelink.bench.ledger import Ledger
from tilelink.bench.plans import PlannedRow
from tilelink.bench.record import read
from tilelink.bench.watch import Watch
from tilelink.measuring.contender import Contender, Kind
from tilelink.measuring.measure import Options

FIRST = PlannedRow(ROW, ())
SECOND = PlannedRow(replace(ROW, name="other"), ())


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job((FIRST, SECOND), 2, "h200-nvswitch", 389.0, Options(), "abc", tmp_path / "r.json", True, 1.0)


def contenders() -> list[Contender]:
    device = FakeDevice()
    return [doubling(device, "planned", 1.0, kind=Kind.OURS), doubling(device, "async_tp", 1.0)]


def left_out(ledger: Ledger, planned: PlannedRow) -> list[str]:
    return [c.name for c in ledger.without_lost(planned, contenders()) if c.failure]


def test_a_measured_row_is_in_the_file_and_done_after_a_restart(job: Job) -> None:
    Ledger(job, 0, os.getppid()).add(FIRST, 1.0, [result("planned", 5.0, "ours")])
    assert [row.key for row in read(job.results).rows] == [ROW.key]
    assert not read(job.results).complete
    again = Ledger(job, 0, os.getppid())
    assert again.done(FIRST)
    assert not again.done(SECOND)
    again.finish()
    assert read(job.results).complete


def test_a_start_without_resume_knows_nothing(job: Job) -> None:
    Ledger(job, 0, os.getppid()).add(FIRST, 1.0, [])
    assert not Ledger(replace(job, resume=False), 0, os.getppid()).done(FIRST)


def test_a_row_is_tried_again_without_the_baseline_that_hung(job: Job) -> None:
    Ledger(job, 0, os.getppid()).lose(FIRST, 1.0, "round 1 of async_tp did not end in 1 s", "async_tp")
    again = Ledger(job, 0, os.getppid())
    assert not again.done(FIRST)
    assert left_out(again, FIRST) == ["async_tp"]
    assert left_out(again, SECOND) == ["async_tp"]  # it would hang there too
    again.add(FIRST, 1.0, [result("planned", 5.0, "ours")])
    (row,) = read(job.results).rows
    assert (row.lost, row.failure) == (("async_tp",), "")
    assert Ledger(job, 0, os.getppid()).done(FIRST)


def test_ours_is_left_out_of_that_row_only(job: Job) -> None:
    Ledger(job, 0, os.getppid()).lose(FIRST, 1.0, "hung", "planned")
    again = Ledger(job, 0, os.getppid())
    assert left_out(again, FIRST) == ["planned"]
    assert left_out(again, SECOND) == []


def test_a_row_that_nobody_in_particular_lost_is_not_tried_again(job: Job) -> None:
    Ledger(job, 0, os.getppid()).lose(FIRST, 1.0, "out of memory", "")
    assert Ledger(job, 0, os.getppid()).done(FIRST)


def test_a_row_is_not_tried_for_ever(job: Job) -> None:
    for number in range(4):
        ledger = Ledger(job, 0, os.getppid())
        assert not ledger.done(FIRST)
        ledger.lose(FIRST, 1.0, "hung", f"variant {number}")
    assert Ledger(job, 0, os.getppid()).done(FIRST)


def test_rank_0_hears_what_another_rank_died_of(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgers, "_LAST_WORDS_S", 0.0)
    first, other = Ledger(job, 0, os.getppid()), Ledger(job, 1, os.getppid())
    assert first.trouble() == ""
    other.lose(FIRST, 1.0, "an illegal memory access", "planned")
    assert first.trouble() == "rank 1: an illegal memory access"
    assert other.trouble() == ""
    assert not job.results.exists()  # rank 0 writes
    assert Ledger(job, 1, os.getppid()).trouble() == ""
    assert first.trouble() == ""  # what an earlier run left is gone


def test_a_rank_notices_that_its_launcher_is_gone(job: Job) -> None:
    assert Ledger(job, 1, parent=os.getpid()).trouble() == "the launcher is gone"


def test_only_rank_0_writes(job: Job) -> None:
    Ledger(job, 1, os.getppid()).add(FIRST, 1.0, [])
    assert not job.results.exists()


def test_the_watch_reports_the_step_that_hangs() -> None:
    lost: list[str] = []
    told = threading.Event()

    def hung(reason: str) -> None:
        lost.append(reason)
        told.set()

    watch = Watch(0.3, hung)
    watch.note("round 2 of", "async_tp")
    watch.start()
    assert told.wait(5)
    watch.stop()
    assert lost == ["round 2 of async_tp did not end in 0 s"]
    assert watch.contender == "async_tp"


def test_the_watch_is_quiet_while_steps_end() -> None:
    lost: list[str] = []
    watch = Watch(0.5, lost.append).start()
    for _ in range(8):
        time.sleep(0.1)
        watch.note("a step", "")
    watch.stop()
    assert lost == []


def test_the_watch_passes_trouble_on() -> None:
    lost: list[str] = []
    watch = Watch(100.0, lost.append, lambda: "rank 3: gone").start()
    time.sleep(0.6)
    watch.stop()
    assert lost == ["rank 3: gone"]


def test_samples_go_to_the_file_as_numbers(job: Job) -> None:
    Ledger(job, 0, os.getppid()).add(FIRST, 1.0, [result("planned", 5.25, "ours", origin="planned")])
    (row,) = json.loads(job.results.read_text())["rows"]
    assert row["contenders"][0]["rounds_us"] == [[5.25, 5.25], [5.25, 5.25]]
    assert row["contenders"][0]["schedule"]["choices"] == {"x_full.mover": "CopyEngine()"}
