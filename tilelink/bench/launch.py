"""Start the ranks of a benchmark under torchrun, end them when they hang, start them anew after a lost row."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

import tilelink
from tilelink.bench.errors import NotABenchmarkFile
from tilelink.bench.job import Job
from tilelink.bench.record import Record, read
from tilelink.errors import FabricUnavailable, RunFailed

_LAST_LINES = 30
_TERM_S = 45.0  # torchrun gives its ranks 30 s


def check_gpus(num_ranks: int) -> None:
    """GPUs, enough of them, and peer access between each pair. Raises FabricUnavailable."""
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    legal = "Legal on this machine: `tilelink bench --write-plans FILE`, which plans for a run on another one."
    if not found:
        raise FabricUnavailable(num_ranks=num_ranks, reason="torch sees no GPU here", legal=legal)
    if found < num_ranks:
        legal = f"Legal --ranks here: 2 to {found}." if found > 1 else legal
        raise FabricUnavailable(num_ranks=num_ranks, reason=f"this machine has {found} GPUs", legal=legal)
    for rank in range(num_ranks):
        for peer in range(num_ranks):
            if rank != peer and not torch.cuda.can_device_access_peer(rank, peer):
                reason = f"GPU {rank} cannot address the memory of GPU {peer}"
                raise FabricUnavailable(num_ranks=num_ranks, reason=reason, legal=legal)


def run_job(job: Job, timeout_s: float, say: Callable[[str], None]) -> Record:
    """Measure all rows, whatever a single one does to the ranks; at most `timeout_s` seconds. `say` gets their lines.

    Older results are renamed to NAME.old unless the job resumes them.
    Raises RunFailed when the ranks end without having come further, or when time is up.
    """
    deadline = time.monotonic() + timeout_s
    if not job.resume and job.results.exists():  # what is there later is of this run
        job.results.replace(job.results.with_name(f"{job.results.name}.old"))
    known = _progress_in(job)
    while True:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "job.json"
            job.write(file)
            reason, lines = run_to_end(command(job, file), deadline - time.monotonic(), say)
        now = _progress_in(replace(job, resume=True))
        if now > known or not reason:
            record = read(job.results)
            if record.complete:
                return record
        if now <= known or time.monotonic() > deadline:
            operator = job.rows[0].row.operator.value if job.rows else "bench"
            raise RunFailed(num_ranks=job.num_ranks, operator=operator, reason=reason, lines="\n".join(lines))
        say(f"{reason}: starting anew with the rows that are missing")
        known, job = now, replace(job, resume=True)


def command(job: Job, file: Path) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={job.num_ranks}"]
    return [*launcher, "--module", "tilelink.bench.ranks", str(file)]


def _progress_in(job: Job) -> int:
    """Grows with every row that is tried, lost or done; of what is in the file and will stay there."""
    try:
        rows = read(job.results).rows if job.resume else ()
    except NotABenchmarkFile:
        return 0
    return sum(1 + len(row.lost) + (not row.failure) for row in rows)


def run_to_end(command: list[str], timeout_s: float, say: Callable[[str], None]) -> tuple[str, list[str]]:
    """Why the ranks failed, or "", and their last lines."""
    root = str(Path(tilelink.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        env=environment,
    )
    last: deque[str] = deque(maxlen=_LAST_LINES)
    reader = threading.Thread(target=_read, args=(process, last, say), daemon=True)
    reader.start()
    try:
        code = process.wait(max(1.0, timeout_s))
        reason = "" if code == 0 else f"exit code {code}"
    except subprocess.TimeoutExpired:
        reason = f"they took longer than {timeout_s:.0f} s"
    finally:
        _end(process)
        reader.join(5)
    return reason, list(last)


def _read(process: subprocess.Popen[str], last: deque[str], say: Callable[[str], None]) -> None:
    assert process.stdout is not None, "it was opened as a pipe"
    for line in process.stdout:
        text = line.rstrip()
        if text:
            last.append(text)
            say(text)
    process.stdout.close()


def _end(process: subprocess.Popen[str]) -> None:
    """Ranks are in sessions of their own, out of reach of a signal to the launcher's group: torchrun has to end them."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_TERM_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
