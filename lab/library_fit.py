"""Fit the model of the library's matmul to the matmuls alone of all records.

    python lab/library_fit.py [--steps 200] [--leave-out corpus_held]

The constants of `tilelink/planner/library_cost.py` are changed at random, a few at a time, and a change stays if the errors are
smaller: logarithms of predicted by measured time, at most 0.3 each, so that no row decides alone. Rows of corpora, whose sizes
nobody chose, count three times. Prints the constants, and the errors by number of rows.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import topologies
from tilelink.bench.again import row_of
from tilelink.bench.errors import NotABenchmarkFile
from tilelink.bench.record import RowResult, read
from tilelink.bench.rows import Operator
from tilelink.bench.spec_rows import bound_of
from tilelink.ir.spec import Matmul
from tilelink.planner import library_cost
from topologies.topology import Topology

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results"
FITTED = (
    "_STEP_US",
    "_FILL_US",
    "_SPLIT_US",
    "_WAVE_SHARE",
    "_WHOLE_TILES_SHARE",
    "_SHARE",
    "_MEMORY_SHARE",
    "_SOFTNESS",
)
_MOST, _OF_CORPUS = 0.3, 3.0
_LAUNCH_US = 1.0  # between kernels of a graph, back to back; in a schedule a launch costs more
_BETWEEN = (0, 64, 128, 256, 512, 1024, 1 << 30)


@dataclass(frozen=True)
class Alone:
    file: str
    machine: Topology
    m: int
    n: int
    k: int
    k_major: bool
    us: float

    @property
    def drawn(self) -> bool:
        """Whether nobody chose the sizes."""
        return "corpus" in self.file or "tile_loops" in self.file

    @property
    def error(self) -> float:
        found = library_cost.library_matmul(self.machine, self.m, self.n, self.k, "bf16", self.k_major)
        return math.log((found.total_us + _LAUNCH_US) / self.us)


def alone() -> list[Alone]:
    """Of rows with one matmul: by cuBLAS, with weights as they lie and with K-major ones."""
    found = []
    for file in sorted(RESULTS.glob("*.json*")):
        try:
            record = read(file)
        except NotABenchmarkFile:
            continue
        machine = topologies.load(record.machine.topology, record.machine.num_ranks)
        if "tile_loops" in file.stem:
            found += loops(file.stem, machine, record.rows)
            continue
        for result in record.rows:
            if result.operator not in ("ag_gemm", "gemm_rs", "gemm_ar") or result.dtype != "bf16":
                continue
            row = row_of(result)
            spec = bound_of(row, machine.num_ranks)
            (matmul,) = (node for node in spec.nodes if isinstance(node.operation, Matmul))
            m, n = matmul.output.shape
            k = spec.value(matmul.inputs[0]).shape[1]
            cut = "n" if row.operator is Operator.AG_GEMM else "k"
            sizes = {"m": m, "n": n, "k": k}
            sizes[cut] //= machine.num_ranks
            for one in result.contenders:
                if one.name in ("gemm", "gemm_k_major") and one.median_us is not None:
                    k_major = row.k_major or one.name == "gemm_k_major"
                    found.append(Alone(file.stem, machine, **sizes, k_major=k_major, us=one.median_us))
    return found


def loops(file: str, machine: Topology, rows: list[RowResult]) -> list[Alone]:
    """What the library took in rows of `benchmarks/tile_loops.py`, whose columns ranks share."""
    found = []
    for row in rows:
        sizes = {name: int(value) for name, value in (part.split("=") for part in row.name.split())}
        n, k_major = sizes["N"] // machine.num_ranks, row.operator.endswith("k_major")
        for one in row.contenders:
            if one.name == "library" and one.median_us is not None:
                found.append(Alone(file, machine, sizes["M"], n, sizes["K"], k_major, one.median_us))
    return found


def loss(rows: list[Alone]) -> float:
    weights = [_OF_CORPUS if row.drawn else 1.0 for row in rows]
    errors = [min(_MOST, abs(row.error)) for row in rows]
    return sum(w * e * e for w, e in zip(weights, errors, strict=True)) / sum(weights)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--leave-out", default="corpus_held", help="files with this in their names are not fitted to")
    arguments = parser.parse_args()
    rows = alone()
    fitted = [row for row in rows if not arguments.leave_out or arguments.leave_out not in row.file]
    rng, best, spread = random.Random(arguments.seed), loss(fitted), 0.1
    for _ in range(arguments.steps):
        before = {name: getattr(library_cost, name) for name in FITTED}
        for name in rng.sample(FITTED, 3):
            setattr(library_cost, name, before[name] * math.exp(rng.gauss(0.0, spread)))
        found = loss(fitted)
        if found < best:
            best, spread = found, min(0.3, spread * 1.3)
            continue
        spread = max(0.01, spread * 0.98)
        for name, value in before.items():
            setattr(library_cost, name, value)
    print(json.dumps({name: round(getattr(library_cost, name), 3) for name in FITTED}))
    for below, most in pairwise(_BETWEEN):
        for what in ("drawn", ""):
            some = [row.error for row in rows if below < row.m <= most and row.drawn == bool(what)]
            if some:
                print(f"{below + 1} to {most} rows, {what or 'others'}: {of(some)}")
    print(f"all: {of([row.error for row in rows])}")


def of(errors: list[float]) -> str:
    mean, rms = sum(errors) / len(errors), (sum(error * error for error in errors) / len(errors)) ** 0.5
    return f"{len(errors)}, mean {mean:+.3f}, rms {rms:.3f}"


if __name__ == "__main__":
    main()
