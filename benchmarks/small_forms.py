"""Plain specs x sizes of models x machines: each has a schedule, no search ends in one that is refuted, each has a small form.

    python benchmarks/small_forms.py --workers 2 --json small_forms.json

Plans the 672 cells of tests/planner/grid.py without pins. A cell fails if there is no schedule, if the proof has refuted a
best schedule on the way, or if `tilelink verify` would find no small size to run it at. None is expected.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.planner.grid import cells
from tilelink.adversary.small import small_form
from topologies.errors import UserError


@dataclass(frozen=True, slots=True)
class Result:
    """`problem` is empty if all is well."""

    cell: str
    predicted_us: float
    small: dict[str, int]
    problem: str


def check(number: int) -> Result:
    """One cell of the grid, by its place."""
    cell, log, us = cells()[number], list[str](), 0.0
    try:
        schedule = cell.spec.plan_for(cell.topology, cell.sizes, "bf16", None, log.append)
        us = schedule.predicted_us
        small = small_form(cell.spec.spec, schedule, cell.topology)
    except UserError as error:
        return Result(str(cell), us, {}, f"{type(error).__name__}: {error}")
    refuted = [line for line in log if line.startswith("refuted")]
    return Result(str(cell), us, dict(small.spec.sizes), "\n".join(refuted))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--step", type=int, default=1, help="take every n-th cell")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = []
    with ProcessPoolExecutor(arguments.workers, get_context("spawn")) as pool:
        for result in pool.map(check, range(0, len(cells()), arguments.step)):
            results.append(result)
            if result.problem:
                print(f"{result.cell}\n{result.problem}\n", flush=True)
    bad = sum(bool(result.problem) for result in results)
    print(f"{len(results)} cells, {bad} with a problem")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
