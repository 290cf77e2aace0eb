"""Runs by seeds on several processes: what scripts share that look for one that goes wrong."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

Run = dict[str, Any]  # with `wrong`: what went wrong, or nothing


def options(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no run begins later")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--commit", default="unknown")
    return parser


def seeds(seed: int, count: int) -> Iterable[int]:
    """So many that no other `seed` has."""
    return range(1_000_000 * (seed + 1), 1_000_000 * (seed + 1) + count)


def judge(judged: Callable[[int], Run], count: int, arguments: argparse.Namespace) -> list[Run]:
    """What `judged` says of each seed; those that are wrong are printed."""
    began, done = time.monotonic(), list[Run]()
    with ProcessPoolExecutor(arguments.processes) as pool:
        for one in pool.map(judged, seeds(arguments.seed, count)):
            done.append(one)
            if one["wrong"]:
                print(one, flush=True)
            if time.monotonic() - began > arguments.seconds:
                pool.shutdown(cancel_futures=True)
                break
    return done
