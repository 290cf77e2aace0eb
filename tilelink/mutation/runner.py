"""Judge mutants in worker processes, each within a time limit; no mutant can take the run down with it.

A mutant that outlives its limit is interrupted by an alarm in its worker; where that does not help, and where a worker
dies, the workers are replaced and what was under way is judged again, one mutant at a time.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Generic, TypeVar

import torch

from tilelink.mutation.errors import IllegalRun
from tilelink.mutation.mutant import Judge, Mutant
from tilelink.mutation.report import Fate, Outcome, Report
from tilelink.processes import fresh_processes

M = TypeVar("M", bound=Mutant)

_MOST_WORKERS = 2
_GRACE_S = 30.0  # for the start of a worker, and for the alarm to get through
_MUTANTS_PER_POOL = 400  # the emulator keeps what it compiled, so workers are replaced now and then


class _TimeUp(BaseException):
    """Not an Exception: a judge that counts those as kills must not catch it."""


def run(
    mutants: Iterable[M],
    judge: Judge[M],
    sample: int = 0,
    seed: int = 0,
    workers: int = 2,
    *,
    time_limit_s: float = 60.0,
) -> Report:
    """Judge all of `mutants`, or `sample` of them drawn with `seed` evenly over the operators.

    `workers` processes of their own (0: this one); `judge` must be picklable then. Raises IllegalRun.
    """
    for name, value, legal, right in (
        ("sample", sample, "0 (all) or more", sample >= 0),
        ("workers", workers, f"0 (in this process) to {_MOST_WORKERS}", 0 <= workers <= _MOST_WORKERS),
        ("time_limit_s", time_limit_s, "seconds, more than 0", time_limit_s > 0),
    ):
        if not right:
            raise IllegalRun(name=name, value=value, legal=legal)
    everything = tuple(mutants)
    chosen = drawn(everything, sample, seed) if sample else everything
    task = _Task(judge, time_limit_s)
    outcomes = [task(mutant) for mutant in chosen] if workers == 0 else _Crew(chosen, task, workers).decide()
    return Report(tuple(outcomes), len(everything))


def drawn(mutants: tuple[M, ...], sample: int, seed: int) -> tuple[M, ...]:
    """`sample` mutants, as many of one operator as of any other as far as they go; in their order."""
    rng = random.Random(seed)
    groups: dict[str, list[int]] = {}
    for position, mutant in enumerate(mutants):
        groups.setdefault(mutant.operator, []).append(position)
    for group in groups.values():
        rng.shuffle(group)
    names = list(groups)
    rng.shuffle(names)
    longest = max(map(len, groups.values()), default=0)
    order = [groups[name][turn] for turn in range(longest) for name in names if turn < len(groups[name])]
    return tuple(mutants[position] for position in sorted(order[:sample]))


def _undecided(mutant: Mutant, why: str) -> Outcome:
    return Outcome(mutant.operator, mutant.site, Fate.UNDECIDED, why, "")


@dataclass(frozen=True, slots=True)
class _Task(Generic[M]):
    """What a worker does with one mutant."""

    judge: Judge[M]
    limit_s: float

    def __call__(self, mutant: M) -> Outcome:
        try:
            with _alarm(self.limit_s):
                verdict = self.judge(mutant)
        except _TimeUp:
            return _undecided(mutant, f"no verdict within {self.limit_s:g} s")
        except Exception as error:
            return _undecided(mutant, f"{type(error).__name__}: {str(error)[:200]}")
        survived = Fate.EQUIVALENT if verdict.by else Fate.SURVIVED
        fate = Fate.KILLED if verdict.killed else survived
        return Outcome(mutant.operator, mutant.site, fate, verdict.by, verdict.detail)


@contextmanager
def _alarm(limit_s: float) -> Iterator[None]:
    """Raise _TimeUp in the block when time is up; outside the main thread nobody can."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise _TimeUp

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _start_worker(folder: str) -> None:
    """Every mutant leaves a file behind where temporary files go: let that be a folder that is deleted."""
    torch.set_num_threads(1)
    tempfile.tempdir = folder
    (Path(folder) / f"worker_{os.getpid()}").touch()


@dataclass(slots=True)
class _Crew(Generic[M]):
    """Workers, and what they have decided so far."""

    mutants: tuple[M, ...]
    task: _Task[M]
    workers: int
    decisions: dict[int, Outcome] = field(default_factory=dict)

    def decide(self) -> list[Outcome]:
        waiting = deque(range(len(self.mutants)))
        while waiting:
            for suspect in self._with_fresh_workers(waiting, self.workers):
                alone = deque([suspect])
                if self._with_fresh_workers(alone, 1):
                    self.decisions[suspect] = _undecided(self.mutants[suspect], "its worker died")
        return [self.decisions[position] for position in range(len(self.mutants))]

    def _with_fresh_workers(self, waiting: deque[int], workers: int) -> list[int]:
        """Decide from the left of `waiting`; returns the mutants that were under way when a worker died."""
        left = _MUTANTS_PER_POOL
        flying: dict[Future[Outcome], tuple[int, float]] = {}
        with (
            tempfile.TemporaryDirectory() as folder,
            fresh_processes(workers, partial(_start_worker, folder)) as pool,
        ):
            while flying or (waiting and left):
                try:
                    while waiting and left and len(flying) < workers:
                        flying[pool.submit(self.task, self.mutants[waiting[0]])] = (waiting[0], time.monotonic())
                        waiting.popleft()
                        left -= 1
                    self._collect(flying)
                except BrokenProcessPool:
                    return [position for position, _ in flying.values()]
                self._end_overdue(flying, folder)
        return []

    def _collect(self, flying: dict[Future[Outcome], tuple[int, float]]) -> None:
        """Take in what has come back. Raises BrokenProcessPool if a worker died."""
        done, _ = wait(flying, timeout=1.0, return_when=FIRST_COMPLETED)
        for future in done:
            outcome = future.result()
            self.decisions[flying.pop(future)[0]] = outcome

    def _end_overdue(self, flying: dict[Future[Outcome], tuple[int, float]], folder: str) -> None:
        """Kill the workers if one of them does not even hear its alarm; the others' mutants are judged again."""
        latest = time.monotonic() - self.task.limit_s - _GRACE_S
        overdue = [future for future, (_, start) in flying.items() if start < latest]
        for future in overdue:
            position = flying.pop(future)[0]
            self.decisions[position] = _undecided(self.mutants[position], f"no verdict within {self.task.limit_s:g} s")
        for file in Path(folder).glob("worker_*") if overdue else ():
            with suppress(ProcessLookupError):
                os.kill(int(file.name.removeprefix("worker_")), signal.SIGKILL)
