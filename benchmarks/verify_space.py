"""False alarms: sample schedules of the shipped workloads, prove each at real size and run its small form.

    python benchmarks/verify_space.py --schedules 2000 --runs 2 --json benchmarks/results/verify_space.json

Every finding would be a false alarm, or a bug of the planner, of lowering or of the emulator: none is expected. Runs on
CPUs, in as many processes as asked for.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch

import lowering
import topologies
from tilelink.adversary.campaign import trials
from tilelink.adversary.small import small_form
from tilelink.adversary.subject import of_schedule
from tilelink.adversary.trials import run_trial
from tilelink.declaration import Overlap
from tilelink.errors import IdlePin, IllegalPin, NoLegalSchedule
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import bind
from tilelink.planner.plan import plan
from tilelink.planner.sample import sample_schedule
from tilelink.proof.verify import verify
from tilelink.spec_file import load_overlap
from topologies.topology import Topology

WORKLOADS = (
    "02_ag_gemm.py:ag_gemm",
    "03_gemm_rs.py:gemm_rs",
    "04_gemm_ar.py:gemm_ar",
    "05_mlp.py:mlp",
    "06_user_op.py:ag_squared_relu",
)
MACHINES = ("h200-nvswitch", "h200-nvswitch", "mi300x-full-mesh", "laptop-switch", "laptop-mesh")
SIZES = (
    {"M": 8192, "K": 4096, "N": 14336, "H": 4096, "F": 14336},
    {"M": 1024, "K": 8192, "N": 28672, "H": 8192, "F": 28672},
    {"M": 8 * 129, "K": 8 * 69, "N": 8 * 101, "H": 8 * 69, "F": 8 * 101},
)


@dataclass(frozen=True, slots=True)
class Result:
    """`proved` in so many seconds of CPU time; `runs` adversarial runs of `steps` steps; `problem` is empty if all is well."""

    seed: int
    workload: str
    ranks: int
    proved: bool
    seconds: float
    runs: int
    steps: int
    problem: str


def check(job: tuple[int, int]) -> Result:
    """One sampled schedule: seed, number of adversarial runs."""
    seed, runs = job
    torch.set_num_threads(1)
    rng = random.Random(seed)
    name = rng.choice(WORKLOADS)
    overlap = load_overlap(str(ROOT / "examples" / name))
    machine = rng.choice(MACHINES)
    largest = topologies.load(machine).num_ranks
    topology = topologies.load(machine, rng.choice([n for n in (2, 4, 8) if n <= largest]))
    schedule = sample_schedule(bind(overlap.spec, _sizes(overlap, rng), topology.num_ranks, "bf16"), topology, rng)
    begin = time.process_time()
    proof = verify(schedule)
    seconds = time.process_time() - begin
    problem = "" if proof.proved else "\n".join(proof.lines())
    steps = done = 0
    if not problem and runs:
        try:
            # as many ranks as an emulation runs in a second
            fewer = topologies.load(machine, min(topology.num_ranks, rng.choice((2, 3, 4))))
            few = _with_ranks(overlap, schedule, fewer)
            small = small_form(overlap.spec, few or schedule, topology if few is None else fewer)
            subject = of_schedule(small, lowering.emit(small))
            every = list(trials(small.num_ranks, 8, seed))
            for trial in rng.sample(every, runs):
                outcome = run_trial(subject, trial)
                steps, done = steps + outcome.steps, done + 1
                if outcome.error is not None:
                    problem = f"{dict(schedule.choices)}\n{trial.text}\n{outcome.error}"
                    break
        except NoLegalSchedule as error:
            problem = f"no small form: {error}"
    return Result(seed, name, topology.num_ranks, proof.proved, seconds, done, steps, problem)


def _sizes(overlap: Overlap, rng: random.Random) -> dict[str, int]:
    chosen = rng.choice(SIZES)
    return {name: chosen[name] for name in overlap.spec.symbols()}


def _with_ranks(overlap: Overlap, schedule: Schedule, topology: Topology) -> Schedule | None:
    """The same choices on fewer ranks, or None where they are not legal there."""
    if topology.num_ranks == schedule.num_ranks:
        return schedule
    sizes = {name: size // schedule.num_ranks * topology.num_ranks for name, size in schedule.spec.sizes}
    try:
        return plan(bind(overlap.spec, sizes, topology.num_ranks, "bf16"), topology, dict(schedule.choices))
    except (IdlePin, IllegalPin, NoLegalSchedule):
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--schedules", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=2, help="adversarial runs of each")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    begin = time.perf_counter()
    jobs = [(seed, arguments.runs) for seed in range(arguments.first, arguments.first + arguments.schedules)]
    with ProcessPoolExecutor(arguments.workers, get_context("spawn")) as pool:
        results = []
        for result in pool.map(check, jobs, chunksize=8):
            results.append(result)
            if result.problem:
                print(f"seed {result.seed}, {result.workload}, {result.ranks} ranks\n{result.problem}\n", flush=True)
    bad = [result for result in results if result.problem]
    summary = {
        "schedules": len(results),
        "proved": sum(result.proved for result in results),
        "largest_proof_seconds": round(max(result.seconds for result in results), 3),
        "runs": sum(result.runs for result in results),
        "steps": sum(result.steps for result in results),
        "problems": len(bad),
        "by_workload": dict(collections.Counter(result.workload.partition(":")[2] for result in results)),
        "by_ranks": {str(n): c for n, c in sorted(collections.Counter(result.ranks for result in results).items())},
        "seconds": round(time.perf_counter() - begin, 1),
    }
    print(json.dumps(summary, indent=1))
    if arguments.json:
        partial = arguments.json.with_suffix(".part")
        partial.write_text(json.dumps(summary, indent=1) + "\n")
        partial.replace(arguments.json)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
