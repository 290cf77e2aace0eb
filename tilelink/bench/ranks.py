"""One rank of a benchmark: `torchrun --nproc-per-node R -m tilelink.bench.ranks JOB`. Rank 0 writes the results.

Exit codes: 0 every row was tried, or the job's time is up; 3 a row left the ranks unusable (they hung, a device was lost): the
results say in whose turn, and a start with `resume` tries the row again without that contender.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import traceback
import warnings
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

from lowering.selfcheck.near import Near
from tilelink.bench import problem as problems
from tilelink.bench.against import chosen
from tilelink.bench.attention_baselines import attention_baselines
from tilelink.bench.baselines import baselines, group_name, torch_fused
from tilelink.bench.contender import Setting
from tilelink.bench.job import Job, read_job
from tilelink.bench.ledger import Ledger
from tilelink.bench.ours import ours
from tilelink.bench.plans import PlannedRow
from tilelink.bench.rows import Row
from tilelink.bench.spec_rows import SpecRow
from tilelink.bench.table import row_line
from tilelink.bench.watch import Watch
from tilelink.measuring.contender import Inputs
from tilelink.measuring.device import CudaDevice, Device
from tilelink.measuring.measure import Note, Problem, measure_row
from tilelink.measuring.results import ContenderResult
from tilelink.measuring.spec_problem import spec_problem
from tilelink.runtime.ranks import MULTICAST_OFF

RESTART = 3


def main() -> None:
    for name, value in MULTICAST_OFF.items():
        os.environ.setdefault(name, value)
    run(read_job(Path(sys.argv[1])))


def run(job: Job) -> None:
    """Measure every row of the job on this rank's GPU."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda", torch.cuda.current_device())
    dist.init_process_group("nccl", device_id=device, timeout=timedelta(minutes=10))
    with warnings.catch_warnings():  # older torch asks for it, newer torch warns that there is no need
        warnings.simplefilter("ignore")
        symm_mem.enable_symm_mem_for_group(group_name())  # type: ignore[arg-type]
    gc.collect()
    gc.freeze()  # what the imports made is for ever: collections between captures stay short
    cuda = CudaDevice(device)
    ledger = Ledger(job, cuda.rank, os.getppid())
    cuda.meet()
    measure_rows(job, cuda, ledger)
    cuda.meet()
    dist.destroy_process_group()


def measure_rows(job: Job, cuda: CudaDevice, ledger: Ledger) -> None:
    """Those that have no results yet, until the job's time is up."""
    todo = [planned for planned in job.rows if not ledger.done(planned)]
    while todo and not _late(job, cuda):
        _measure(job, todo.pop(0), cuda, ledger)
    ledger.finish(complete=not todo)


def _late(job: Job, cuda: CudaDevice) -> bool:
    """Whether the first rank, whose clock all go by, has reached the end of the job's time."""
    return json.loads(cuda.exchange(json.dumps(time.time() >= job.until_s))[0]) is True


def _measure(job: Job, planned: PlannedRow, cuda: CudaDevice, ledger: Ledger) -> None:
    start = time.monotonic()

    def give_up(failure: str) -> NoReturn:
        print(f"{planned.row.key}, rank {cuda.rank}: {failure}", file=sys.stderr, flush=True)
        ledger.lose(planned, time.monotonic() - start, failure, watch.contender)
        os._exit(RESTART)  # other ranks may hang on the GPU: nothing that waits for it would return

    watch = Watch(job.hang_s, give_up, ledger.trouble).start()
    try:
        results = _results_of(job, planned, cuda, ledger, watch.note)
        watch.note("freeing the row", "")
        cuda.meet()  # peers may read symmetric memory until here
        cuda.release()
        cuda.meet()
    except Exception as error:  # the state of the other ranks is unknown
        traceback.print_exc()
        give_up(f"{watch.step}: {type(error).__name__}: {error}"[:2000])
    watch.stop()
    row = ledger.add(planned, time.monotonic() - start, results)
    if cuda.rank == 0:
        print(row_line(row), file=sys.stderr, flush=True)


def _results_of(job: Job, planned: PlannedRow, cuda: CudaDevice, ledger: Ledger, note: Note) -> list[ContenderResult]:
    note("making inputs", "")
    row, seed = planned.row, job.options.seed
    contenders = [ours(candidate) for candidate in planned.candidates]
    if isinstance(row, SpecRow):
        problem = spec_problem(row.spec, cuda.rank, seed, cuda.torch_device)
        contenders += chosen(attention_baselines(row.spec), job.options.against)
    else:
        problem = make_problem(row, cuda, cuda.torch_device, seed)
        shared = row.m % job.num_ranks == 0
        contenders += chosen(baselines(row.operator, torch_fused(), shared), job.options.against)
    return measure_row(cuda, problem, ledger.without_lost(planned, contenders), job.options, note)


def make_problem(row: Row, device: Device, torch_device: torch.device, seed: int) -> Problem:
    """Inputs of this rank and what they should give: each rank makes those of all ranks for that."""
    ranks = range(device.num_ranks)

    def wanted(change: int) -> Near:
        rank_inputs = [problems.make_inputs(row, rank, device.num_ranks, seed, torch_device) for rank in ranks]
        if change:
            rank_inputs = [with_activations(rank_inputs[rank], activations(rank, change)) for rank in ranks]
        return problems.reference(row, rank_inputs, device.rank)

    def activations(rank: int, change: int) -> Inputs:
        return problems.make_activations(row, rank, device.num_ranks, seed + change, torch_device)

    inputs = problems.make_inputs(row, device.rank, device.num_ranks, seed, torch_device)
    setting = Setting(row, device.rank, device.num_ranks, inputs)
    change = problems.changes(row, device.rank, device.num_ranks, inputs)
    return Problem(setting, (wanted(0),), lambda: (activations(device.rank, 1), (wanted(1),)), change)


def with_activations(inputs: Inputs, activations: Inputs) -> Inputs:
    return (*activations, *inputs[len(activations) :])


if __name__ == "__main__":
    main()
