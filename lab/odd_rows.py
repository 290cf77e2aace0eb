"""On one GPU: a loop of tiles over few rows, whose descriptor ends within a tile or behind it.

    python lab/odd_rows.py --json odd_rows.json

Rows that a tile has and the tensor has not are filled with zeros by the TMA. Here the same products are computed from tensors of
M rows, and of M rows in memory for whole tiles, with weights either way, in one round and in two. The planner's rate of zeros
(`tilelink/planner/tile_work.py`) is fitted to what this took.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

_ROWS = (64, 71, 96, 123, 128, 151, 165, 192, 256)
_WEIGHTS = ((7168, 4096), (11264, 8192), (9216, 7168))  # K, N
_TILES = ((64, 64, 128, 4, 6), (128, 64, 128, 4, 4), (128, 128, 64, 4, 5), (64, 128, 64, 4, 4))
_COLD_BYTES = 300 << 20  # of weights in turns: none is left in the L2


@triton.jit(do_not_specialize=["M"])
def loop(
    left,
    right,
    out,
    M,
    N: tl.constexpr,
    K: tl.constexpr,
    TM: tl.constexpr,
    TN: tl.constexpr,
    TK: tl.constexpr,
    TURNED: tl.constexpr,
    PROGRAMS: tl.constexpr,
):
    rows = (M + TM - 1) // TM
    for tile in tl.range(tl.program_id(0), rows * (N // TN), PROGRAMS):
        row, col = (tile % rows) * TM, (tile // rows) * TN
        total = tl.zeros((TM, TN), tl.float32)
        for k in range(0, K, TK):
            if TURNED:
                total = tl.dot(left.load([row, k]), right.load([col, k]).T, total)
            else:
                total = tl.dot(left.load([row, k]), right.load([k, col]), total)
        out.store([row, col], total.to(tl.bfloat16))


def measure(m: int, k: int, n: int, tile: tuple[int, ...], turned: bool, whole: bool) -> float:
    """us of a call, weights from memory."""
    tm, tn, tk, warps, stages = tile
    held = -(-m // tm) * tm if whole else m
    sets = max(2, _COLD_BYTES // (2 * k * n))
    x = torch.randn(held, k, device="cuda").bfloat16()
    out = torch.empty(held, n, device="cuda", dtype=torch.bfloat16)
    programs = torch.cuda.get_device_properties(0).multi_processor_count
    weights = [torch.randn(*((n, k) if turned else (k, n)), device="cuda").bfloat16() for _ in range(sets)]
    left, result = TensorDescriptor.from_tensor(x, [tm, tk]), TensorDescriptor.from_tensor(out, [tm, tn])
    rights = [TensorDescriptor.from_tensor(w, [tn, tk] if turned else [tk, tn]) for w in weights]

    def calls() -> None:
        for right in rights:
            loop[(programs,)](
                left, right, result, m, n, k, tm, tn, tk, turned, programs, num_warps=warps, num_stages=stages
            )

    calls()
    wanted = x[:m].float() @ (weights[-1].T if turned else weights[-1]).float()
    assert ((out[:m].float() - wanted).abs() <= wanted.abs() * 2**-6 + 0.5).all(), "a wrong product"
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        calls()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        calls()
    times = []
    for _ in range(5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(1e3 * begin.elapsed_time(end) / sets)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--commit", default="unknown")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for k, n in _WEIGHTS:
        for tile in _TILES:
            for turned in (False, True):
                times = {m: [round(measure(m, k, n, tile, turned, whole), 1) for whole in (False, True)] for m in _ROWS}
                rows.append({"k": k, "n": n, "tile": tile, "k_major": turned, "us_of_tensor_and_of_whole_tiles": times})
                print(rows[-1], flush=True)
                if arguments.json is not None:
                    about = {"machine": torch.cuda.get_device_name(), "commit": arguments.commit, "rows": rows}
                    arguments.json.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
