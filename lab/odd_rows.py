"""On one GPU: a loop of tiles over few rows, whose descriptor ends within a tile or behind it.

    python lab/odd_rows.py --json odd_rows.json

Rows that a tile has and the tensor has not are filled with zeros by the TMA. Here the same products are computed from tensors of
M rows (*tensor*), and of M rows in memory for *whole* tiles. Loops that are shifted *inwards* load the last tile so that it ends
with the tensor, and store those of its rows by pointer that the tile before has not; the others by descriptor, or all by
*pointer*.
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

_ROWS = (151, 537, 1028, 3000)
_WEIGHTS = ((8192, 6144),)  # K, N
_TILES = ((128, 256, 64, 8, 3), (128, 128, 64, 4, 5), (128, 64, 128, 4, 4))
_HOW = ("tensor", "whole", "inwards", "pointer")
_COLD_BYTES = 300 << 20  # of weights in turns: none is left in the L2


@triton.jit
def loop(
    left,
    right,
    out,
    out_pointer,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    TM: tl.constexpr,
    TN: tl.constexpr,
    TK: tl.constexpr,
    TURNED: tl.constexpr,
    HOW: tl.constexpr,
    PROGRAMS: tl.constexpr,
):
    rows: tl.constexpr = (M + TM - 1) // TM
    for tile in tl.range(tl.program_id(0), rows * (N // TN), PROGRAMS, flatten=True):
        row, col = (tile % rows) * TM, (tile // rows) * TN
        first = row if HOW == "tensor" else tl.minimum(row, M - TM)
        total = tl.zeros((TM, TN), tl.float32)
        for k in range(0, K, TK):
            if TURNED:
                total = tl.dot(left.load([first, k]), right.load([col, k]).T, total)
            else:
                total = tl.dot(left.load([first, k]), right.load([k, col]), total)
        if HOW == "tensor":
            out.store([row, col], total.to(tl.bfloat16))
        else:
            rows_of_tile = first + tl.arange(0, TM)[:, None]
            places = out_pointer + rows_of_tile * N + col + tl.arange(0, TN)[None, :]
            if HOW == "pointer":
                tl.store(places, total.to(tl.bfloat16), mask=rows_of_tile >= row)
            elif first == row:
                out.store([row, col], total.to(tl.bfloat16))
            else:
                tl.store(places, total.to(tl.bfloat16), mask=rows_of_tile >= row)


def measure(m: int, k: int, n: int, tile: tuple[int, ...], turned: bool, how: str) -> float:
    """us of a call, weights from memory; `how`: one of `_HOW`."""
    tm, tn, tk, warps, stages = tile
    if (how in ("inwards", "pointer") and m < tm) or (how == "inwards" and tm * tn > 128 * 128):  # too much shared memory
        return 0.0
    held = -(-m // tm) * tm if how == "whole" else m
    sets = max(2, _COLD_BYTES // (2 * k * n))
    x = torch.randn(held, k, device="cuda").bfloat16()
    out = torch.full((held + 1, n), 7.0, device="cuda", dtype=torch.bfloat16)
    programs = torch.cuda.get_device_properties(0).multi_processor_count
    weights = [torch.randn(*((n, k) if turned else (k, n)), device="cuda").bfloat16() for _ in range(sets)]
    left, result = TensorDescriptor.from_tensor(x, [tm, tk]), TensorDescriptor.from_tensor(out[:held], [tm, tn])
    rights = [TensorDescriptor.from_tensor(w, [tn, tk] if turned else [tk, tn]) for w in weights]

    kind = "tensor" if how == "whole" else how

    def calls() -> None:
        for right in rights:
            loop[(programs,)](
                left,
                right,
                result,
                out,
                m,
                n,
                k,
                tm,
                tn,
                tk,
                turned,
                kind,
                programs,
                num_warps=warps,
                num_stages=stages,
            )

    calls()
    wanted = x[:m].float() @ (weights[-1].T if turned else weights[-1]).float()
    assert ((out[:m].float() - wanted).abs() <= wanted.abs() * 2**-6 + 0.5).all(), "a wrong product"
    assert (out[held:] == 7.0).all(), "a row behind the product is written"
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
            for turned in (False,):
                times = {m: [round(measure(m, k, n, tile, turned, how), 1) for how in _HOW] for m in _ROWS}
                rows.append({"k": k, "n": n, "tile": tile, "k_major": turned, "us": times})
                print(rows[-1], flush=True)
                if arguments.json is not None:
                    about = {"machine": torch.cuda.get_device_name(), "commit": arguments.commit, "rows": rows}
                    arguments.json.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
