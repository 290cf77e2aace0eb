"""Start the ranks of a benchmark under torchrun, end them when they hang, start them anew after a lost row."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tilelink.bench.ahead import compiled_ahead
from tilelink.bench.errors import NotABenchmarkFile
from tilelink.bench.job import Job
from tilelink.bench.plans import PlannedRow
from tilelink.bench.record import Record, read
from tilelink.errors import RunFailed
from tilelink.runtime.torchrun import run_to_end, torchrun


def run_job(job: Job, timeout_s: float, say: Callable[[str], None]) -> Record:
    """Measure all rows, whatever a single one does to the ranks; at most `timeout_s` seconds. `say` gets their lines. A run
    that is not complete has reached the job's own time.

    Older results are renamed to NAME.old unless the job resumes them.
    Raises RunFailed when the ranks end without having come further, or when time is up.
    """
    deadline = time.monotonic() + timeout_s
    if not job.resume and job.results.exists():  # what is there later is of this run
        job.results.replace(job.results.with_name(f"{job.results.name}.old"))
    with compiled_ahead(_missing(job), job.num_ranks):
        return _measured(job, deadline, say)


def _measured(job: Job, deadline: float, say: Callable[[str], None]) -> Record:
    known = _progress_in(job)
    while True:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "job.json"
            job.write(file)
            reason, lines = run_to_end(command(job, file), deadline - time.monotonic(), say)
        now = _progress_in(replace(job, resume=True))
        if now > known or not reason:
            record = read(job.results)
            if record.complete or not reason:
                return record
        if now <= known or time.monotonic() > deadline:
            operator = job.rows[0].row.title if job.rows else "bench"
            raise RunFailed(num_ranks=job.num_ranks, operator=operator, reason=reason, lines="\n".join(lines))
        say(f"{reason}: starting anew with the rows that are missing")
        known, job = now, replace(job, resume=True)


def _missing(job: Job) -> list[PlannedRow]:
    """Rows that have no results yet."""
    try:
        done = {row.key for row in read(job.results).rows if not row.failure} if job.resume else set[str]()
    except NotABenchmarkFile:
        done = set()
    return [planned for planned in job.rows if planned.row.key not in done]


def command(job: Job, file: Path) -> list[str]:
    return torchrun(job.num_ranks, "--module", "tilelink.bench.ranks", str(file))


def _progress_in(job: Job) -> int:
    """Grows with every row that is tried, lost or done; of what is in the file and will stay there."""
    try:
        rows = read(job.results).rows if job.resume else ()
    except NotABenchmarkFile:
        return 0
    return sum(1 + len(row.lost) + (not row.failure) for row in rows)
