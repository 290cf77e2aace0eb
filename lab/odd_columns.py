"""On one GPU: the library's matmul over numbers of columns that tiles of 256 do not cover, whole and as two pieces of rows.

    python lab/odd_columns.py --json odd_columns.json

Models have such columns: 11,008 over two ranks are 43 tiles of 128. Sizes take turns behind a matmul that keeps the GPU busy, so
that all have the clocks of a GPU under load; a time is the median of the rounds, over as many calls as take a few milliseconds.
`rate`: TFLOP/s. The waves of `tilelink/planner/library_cost.py` are about such sizes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from lab.one_gpu import captured, time_us

_ROWS = (2048, 4096, 8192)
_COLUMNS = (2752, 2816, 3456, 3584, 5248, 5376, 5504, 5632, 6912, 7040, 7168, 14784)
_K = (4096, 8192)
_SETS = 3  # of operands in turns
_ROUNDS, _SAMPLE_US, _LOAD_US = 7, 8e3, 40e3


def graph_of(rows: int, cols: int, k: int, pieces: int, *, turned: bool) -> tuple[torch.cuda.CUDAGraph, Any]:
    """One call for each set of operands, and what has to be held meanwhile; weights lie as [K, N], or `turned`."""
    sets = []
    for _ in range(_SETS):
        weights = torch.randn((cols, k) if turned else (k, cols), device="cuda").bfloat16()
        out = torch.empty(rows, cols, device="cuda", dtype=torch.bfloat16)
        sets.append((torch.randn(rows, k, device="cuda").bfloat16(), weights.T if turned else weights, out))

    def call(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        for one, part in zip(left.chunk(pieces), out.chunk(pieces), strict=True):
            torch.mm(one, right, out=part)
        return out

    return captured(call, sets)[0], sets


def measure(rows: int, k: int, *, turned: bool) -> list[dict[str, Any]]:
    """All numbers of columns, whole and in two pieces, in turns."""
    graphs = {(cols, pieces): graph_of(rows, cols, k, pieces, turned=turned) for cols in _COLUMNS for pieces in (1, 2)}
    load, _held = graph_of(8192, 8192, 8192, 1, turned=False)
    load_replays = max(1, round(_LOAD_US / time_us(load, 5)))
    replays = {one: max(1, round(_SAMPLE_US / time_us(graph, 1))) for one, (graph, _) in graphs.items()}
    found = defaultdict[tuple[int, int], list[float]](list)
    for _ in range(_ROUNDS):
        for one, (graph, _) in graphs.items():
            time_us(load, load_replays)
            found[one].append(time_us(graph, replays[one]) / _SETS)
    out = []
    for (cols, pieces), us in found.items():
        middle = statistics.median(us)
        rate = round(2 * rows * cols * k / middle / 1e6, 1)
        out.append(
            {"m": rows, "n": cols, "k": k, "turned": turned, "pieces": pieces, "us": round(middle, 1), "rate": rate}
        )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--commit", default="unknown")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for k in _K:
        for m in _ROWS:
            for turned in (False, True):
                rows += measure(m, k, turned=turned)
                print(*rows[-2 * len(_COLUMNS) :], sep="\n", flush=True)
                if arguments.json is not None:
                    about = {"machine": torch.cuda.get_device_name(), "commit": arguments.commit, "rows": rows}
                    arguments.json.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
