"""Worker processes that begin from nothing, and do not look for modules in the current folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context

from tilelink.errors import WorkersDied

SAFE_PATH = "PYTHONSAFEPATH"  # a user's queue.py or operator.py must not take the place of Python's


@contextmanager
def fresh_processes(workers: int, start: Callable[[], object] | None = None) -> Iterator[ProcessPoolExecutor]:
    """`workers` processes, each of which calls `start` first; it must be picklable, such as a functools.partial.

    Raises WorkersDied if the system ended one of them.
    """
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        with ProcessPoolExecutor(workers, get_context("spawn"), start) as pool:
            yield pool
    except BrokenProcessPool as error:
        raise WorkersDied(workers=workers) from error
    finally:
        if before is None:
            os.environ.pop(SAFE_PATH, None)
        else:
            os.environ[SAFE_PATH] = before
