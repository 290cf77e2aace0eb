"""False alarms of the compiled-order check: sample schedules of all workloads, compile each and check its order.

    python benchmarks/compiled_order.py --schedules 500 --seed 1 --json benchmarks/results/compiled_order.json

Workloads are those of examples/ and of benchmarks/late_specs.py, with depths of one, two and more steps; targets are sm_90 and,
for one schedule in eight, gfx942. Each finding is a false alarm or a bug of lowering: none is expected. Runs on a CPU.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import lowering
import topologies
from benchmarks.late_specs import FAMILIES
from tilelink.compiled import check_compiled
from tilelink.declaration import Overlap
from tilelink.errors import TileLinkError
from tilelink.ir.spec import bind
from tilelink.planner.sample import sample_schedule
from tilelink.runtime.load import load_source
from tilelink.spec_file import load_overlap

EXAMPLES = ("01_queue.py:queue", "04_gemm_ar.py:gemm_ar", "05_mlp.py:mlp", "06_user_op.py:ag_squared_relu")


def workloads() -> dict[str, Overlap]:
    found = {family.spec.spec.name: family.spec for family in FAMILIES.values()}
    return found | {name: load_overlap(str(ROOT / "examples" / name)) for name in EXAMPLES}


def sizes(rng: random.Random, names: tuple[str, ...], ranks: int) -> dict[str, int]:
    depth = rng.choice((16, 64, 128, 192, 4096)) * rng.choice((1, ranks))
    choices = {
        "M": rng.choice((16, 256, 1000, 4096, 8192)) * ranks,
        "K": depth * (ranks if depth < 64 else 1),
        "N": rng.choice((16, 256, 4096, 14336)) * ranks,
        "H": rng.choice((64, 128, 4096)),
        "F": rng.choice((64, 128, 4096)) * ranks,
        "B": 128 * ranks,
        "C": rng.choice((64, 4096)),
    }
    return {name: choices[name] for name in names}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schedules", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", default="")
    arguments = parser.parse_args()
    rng, start = random.Random(arguments.seed), time.perf_counter()
    counts: collections.Counter[str] = collections.Counter()
    findings: list[dict[str, Any]] = []
    known = workloads()
    while counts["schedules"] < arguments.schedules:
        name, ranks = rng.choice(sorted(known)), rng.choice((2, 4))
        amd = rng.random() < 1 / 8
        machine = topologies.load("mi300x-full-mesh" if amd else rng.choice(("h100-nvswitch", "h200-nvswitch")), ranks)
        try:
            bound = bind(known[name].spec, sizes(rng, known[name].spec.symbols(), ranks), ranks, "bf16")
            schedule = sample_schedule(bound, machine, rng)
        except TileLinkError as error:
            counts[f"not drawn: {type(error).__name__}"] += 1
            continue
        source = lowering.emit(schedule)
        report = check_compiled(load_source(source, schedule.name), ranks, machine.gpu.arch)
        counts["schedules"] += 1
        counts["kernels"] += len(report.kernels)
        counts["kernels not followed"] += len(report.unknown)
        counts["accesses"] += report.events
        counts[machine.gpu.arch] += 1
        if report.findings or report.unknown:
            row = {"workload": name, "sizes": dict(bound.sizes), "choices": {k: str(v) for k, v in schedule.choices}}
            findings.append(row | {"lines": report.lines()})
            print("\n".join([name, str(dict(bound.sizes)), *report.lines()]), flush=True)
    counts["findings"] = sum("REFUTED" in row["lines"][0] for row in findings)
    found = {"seed": arguments.seed, "seconds": time.perf_counter() - start, **counts, "rows": findings}
    print(json.dumps({key: value for key, value in found.items() if key != "rows"}))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found, indent=1))
    return 1 if counts["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
