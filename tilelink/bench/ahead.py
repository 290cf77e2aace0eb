"""Kernels that later rows need, compiled on idle cores while earlier rows are measured: the ranks find them in Triton's cache.

A row has a dozen schedules, and the compiler takes seconds for each, the measurement less than one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import lowering
from tilelink.bench.plans import PlannedRow
from tilelink.ir.schedule import Schedule
from tilelink.processes import fresh_processes
from tilelink.runtime.aot import compile_launch, record
from tilelink.runtime.load import load_source

_CORES_OF_A_RANK = 2  # that stay free: the rank, and what its runtime does
_FEW_ROWS = 3  # need no helpers: these would be there too late


@contextmanager
def compiled_ahead(rows: Sequence[PlannedRow], num_ranks: int) -> Iterator[None]:
    """Inside, helpers compile what `rows` need, in their order; what is left at the end stays undone."""
    workers = (os.cpu_count() or 1) - _CORES_OF_A_RANK * num_ranks
    schedules = [one.schedule for row in rows for one in row.candidates if one.schedule is not None]
    if workers < 1 or len(rows) < _FEW_ROWS or not schedules:
        yield
        return
    with fresh_processes(min(workers, len(schedules))) as pool:
        for schedule in schedules:
            pool.submit(compile_kernels, schedule)
        try:
            yield
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def compile_kernels(schedule: Schedule) -> int:
    """Compile the kernels of `schedule` as the ranks will, into Triton's cache. Returns their number. Raises what Triton
    raises: a rank that fails in the same way says so in its results."""
    module = load_source(lowering.emit(schedule), schedule.name)
    launches = record(module, schedule.spec.num_ranks)
    for launch in launches:
        compile_launch(launch, schedule.machine.arch)
    return len(launches)
