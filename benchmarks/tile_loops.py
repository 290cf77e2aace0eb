"""Our tile loop against cuBLAS alone, on sizes that nobody chose: a matmul of each rank, with nothing to communicate.

    python benchmarks/tile_loops.py --drawn 7:60 --write-plans loops.json
    tilelink bench --plans loops.json --json tile_loops.jsonl --rounds 5
    python benchmarks/tile_loops.py --report tile_loops.jsonl

A row's matmul has the widths of a published model, as one of two ranks has them, any number of rows, and weights that lie either
way. Measured are the schedule that is planned, which may be a call of the library, the best tile loop of ours, and the call.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import tilelink
import topologies
from tilelink import Shard, Tensor, dims
from tilelink.bench.drawn import MOST_ROWS, WIDTHS, parse_drawing
from tilelink.bench.job import Job
from tilelink.bench.plans import Origin, Request, parse_variant, plan_rows
from tilelink.bench.record import read
from tilelink.bench.spec_rows import SpecRow
from tilelink.ir.spec import bind
from tilelink.measuring.measure import Options

_RANKS = 2
_LOOP = "loop"  # the label of the variant

M, K, N = dims("M K N")


@tilelink.overlap
def columns(x: Tensor(M, K), w: Tensor(K, N, placement=Shard(1))):
    return tilelink.matmul(x, w)


@tilelink.overlap
def columns_k_major(x: Tensor(M, K), w: Tensor(N, K, placement=Shard(0))):
    return tilelink.matmul(x, w.T)


def drawn(seed: int, count: int) -> list[SpecRow]:
    """`count` rows, no two alike; either width may be the one that ranks share."""
    rng = random.Random(seed)
    found: dict[str, SpecRow] = {}
    while len(found) < count:
        hidden, ffn = rng.choice([one for one in WIDTHS if one[1] % (16 * _RANKS) == 0])
        rows = max(1, round(math.exp(rng.uniform(0.0, math.log(MOST_ROWS)))))
        k, n = rng.choice([(hidden, ffn), (ffn // _RANKS, hidden * _RANKS)])
        overlap = rng.choice([columns, columns_k_major])
        row = SpecRow(bind(overlap.spec, {"M": rows, "K": k, "N": n}, _RANKS, "bf16"), "bf16")
        found.setdefault(row.key, row)
    return list(found.values())


def write_plans(rows: Sequence[SpecRow], topology: str, path: Path, rounds: int) -> None:
    machine = topologies.load(topology, _RANKS)
    planned = plan_rows(rows, Request(machine, (parse_variant(f"{_LOOP}:compute=triton"),)))
    link = machine.levels[0].gb_per_s
    options = Options(rounds, row_budget_s=30.0)
    Job(tuple(planned), _RANKS, machine.name, link, options, "unknown", Path("tile_loops.jsonl"), True, 120.0).write(
        path
    )


def report(path: Path) -> None:
    """Each row, and how the library's time compares with ours: above 1 is ours faster."""
    rows: list[tuple[float, float]] = []
    for row in read(path).rows:
        us = {one.name: one.median_us for one in row.contenders if one.median_us is not None}
        predicted = {one.name: one.schedule.predicted_us for one in row.contenders if one.schedule is not None}
        if not {Origin.PLANNED.value, _LOOP, Origin.LIBRARY.value} <= us.keys():
            print(f"{row.key}: not measured")
            continue
        library, loop, planned = (us[one] for one in (Origin.LIBRARY.value, _LOOP, Origin.PLANNED.value))
        rows.append((library / loop, library / planned))
        times = f"library {library:8.1f}  loop {loop:8.1f} (predicted {predicted[_LOOP]:8.1f})"
        print(f"{row.key:56} {times}  {rows[-1][0]:.2f}  planned {rows[-1][1]:.2f}")
    for name, values in (("loop", [one[0] for one in rows]), ("planned", [one[1] for one in rows])):
        mean = math.exp(sum(map(math.log, values)) / len(values))
        print(json.dumps({"of": name, "rows": len(values), "geomean": round(mean, 3), "worst": round(min(values), 3)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--drawn", metavar="SEED:COUNT", default="1:60")
    parser.add_argument("--topology", default="h100-nvswitch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write-plans", type=Path)
    parser.add_argument("--report", type=Path)
    arguments = parser.parse_args()
    if arguments.write_plans is not None:
        write_plans(drawn(*parse_drawing(arguments.drawn)), arguments.topology, arguments.write_plans, arguments.rounds)
    if arguments.report is not None:
        report(arguments.report)


if __name__ == "__main__":
    main()
