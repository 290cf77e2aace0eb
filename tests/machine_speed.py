"""Limits of CPU time that mean the same work on every machine: a fixed piece of work says how slow this one is at the moment."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

USUAL_S = 0.017  # CPU time of the piece of work on one core of a usual machine, which adds 10 million times in 0.55 s
SLOWEST = 6.0  # a machine that is slower than this is not waited for


def _piece() -> None:
    """Python and numpy, about as the tool uses them: small objects, dicts, and arrays larger than a cache."""
    seen: dict[int, tuple[int, int]] = {}
    total = 0
    for number in range(60_000):
        total += number % 7
        seen[number % 1021] = (number, total)
    numbers = (np.arange(400_000) * 7919) % 400_009
    order = np.argsort(numbers.astype(np.uint16), kind="stable")
    np.maximum.accumulate(numbers[order])


def slowness() -> float:
    """How many times as long as a usual machine this one takes at the moment."""
    took = []
    for _ in range(3):
        begin = time.process_time()
        _piece()
        took.append(time.process_time() - begin)
    return sorted(took)[1] / USUAL_S


_AT_FIRST = slowness()


def limit(usual_s: float) -> float:
    """Seconds of CPU time that this machine may take for what takes `usual_s` on a usual one."""
    return usual_s * min(max(1.0, _AT_FIRST, slowness()), SLOWEST)


@contextmanager
def within(usual_s: float) -> Iterator[None]:
    """Fails if the block takes more CPU time than `usual_s` on a usual machine."""
    begin = time.process_time()
    yield
    took = time.process_time() - begin
    most = limit(usual_s)
    assert took <= most, f"{took:.2f} s of CPU time; this machine may take {most:.2f} s, a usual one {usual_s:.2f} s"
