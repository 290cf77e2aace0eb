"""On one GPU: loops of tiles that are 192 columns wide, next to those of powers of two and to cuBLAS.

    python lab/wide_tiles.py --json wide_tiles.json

Triton has powers of two only, so that a tile of 192 is two products, of 128 and of 64 columns, in one loop over k: they share
the tile of the left operand. Cooperating warps compute both, one after the other.
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

# M, K, N: as few tiles of 192 as SMs, fewer, and many
_SIZES = (
    (335, 6144, 8192),
    (314, 7168, 4096),
    (537, 8192, 6144),
    (1028, 5120, 12800),
    (2048, 4096, 7168),
    (8192, 4096, 5504),
)
# rows, columns of the first and of the second product, step, warps, stages
_TILES = (
    (128, 256, 0, 64, 8, 3),
    (128, 128, 0, 64, 4, 5),
    (64, 256, 0, 64, 4, 4),
    (128, 128, 64, 64, 8, 4),
    (128, 128, 64, 64, 8, 3),
    (64, 128, 64, 64, 4, 5),
    (64, 128, 64, 128, 4, 3),
)


@triton.jit(do_not_specialize=["M"])
def loop(
    left,
    right,
    more,
    out,
    rest,
    M,
    N: tl.constexpr,
    K: tl.constexpr,
    TM: tl.constexpr,
    TN: tl.constexpr,
    TR: tl.constexpr,
    TK: tl.constexpr,
    PROGRAMS: tl.constexpr,
):
    rows = (M + TM - 1) // TM
    cols = (N + TN + TR - 1) // (TN + TR)
    for tile in tl.range(tl.program_id(0), rows * cols, PROGRAMS):
        first = tile // (8 * cols) * 8
        height = min(8, rows - first)
        row, col = (first + tile % (8 * cols) % height) * TM, (tile % (8 * cols) // height) * (TN + TR)
        total = tl.zeros((TM, TN), tl.float32)
        if TR > 0:
            other = tl.zeros((TM, TR), tl.float32)
            for k in range(0, K, TK):
                x = left.load([row, k])
                total = tl.dot(x, right.load([k, col]), total)
                other = tl.dot(x, more.load([k, col + TN]), other)
            rest.store([row, col + TN], other.to(tl.bfloat16))
        else:
            for k in range(0, K, TK):
                total = tl.dot(left.load([row, k]), right.load([k, col]), total)
        out.store([row, col], total.to(tl.bfloat16))


def graph_of(call: Any) -> torch.cuda.CUDAGraph:
    call()
    torch.cuda.synchronize()
    found = torch.cuda.CUDAGraph()
    with torch.cuda.graph(found):
        for _ in range(20):
            call()
    return found


def times(graphs: dict[str, torch.cuda.CUDAGraph]) -> dict[str, float]:
    """us of a call, the contenders in turns."""
    found: dict[str, list[float]] = {name: [] for name in graphs}
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(7):
        for name, graph in graphs.items():
            graph.replay()
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            found[name].append(begin.elapsed_time(end) * 1e3 / 20)
    return {name: round(statistics.median(us), 1) for name, us in found.items()}


def measure(m: int, k: int, n: int) -> dict[str, float]:
    x, w = torch.randn(m, k, device="cuda").bfloat16(), torch.randn(k, n, device="cuda").bfloat16()
    out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    wanted = x.float() @ w.float()
    programs = torch.cuda.get_device_properties(0).multi_processor_count
    graphs = {"cuBLAS": graph_of(lambda: torch.mm(x, w, out=out))}
    for tm, tn, tr, tk, warps, stages in _TILES:
        left, right = TensorDescriptor.from_tensor(x, [tm, tk]), TensorDescriptor.from_tensor(w, [tk, tn])
        more = TensorDescriptor.from_tensor(w, [tk, tr or tn])
        result, rest = TensorDescriptor.from_tensor(out, [tm, tn]), TensorDescriptor.from_tensor(out, [tm, tr or tn])

        def call(
            left: Any = left,
            right: Any = right,
            more: Any = more,
            result: Any = result,
            rest: Any = rest,
            fixed: tuple[int, ...] = (n, k, tm, tn, tr, tk, programs),
            how: tuple[int, int] = (warps, stages),
        ) -> None:
            loop[(programs,)](left, right, more, result, rest, m, *fixed, num_warps=how[0], num_stages=how[1])

        name = f"{tm}x{tn + tr}x{tk}/{warps}w{stages}s"
        try:
            out.zero_()
            graphs[name] = graph_of(call)
        except triton.runtime.errors.OutOfResources as error:
            print(name, error)
            continue
        assert ((out.float() - wanted).abs() <= wanted.abs() * 2**-6 + 0.5).all(), f"a wrong product: {name}"
    return times(graphs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    rows = []
    for m, k, n in _SIZES:
        rows.append({"M": m, "K": k, "N": n, "us": measure(m, k, n)})
        print(json.dumps(rows[-1]), flush=True)
    found = {"gpu": torch.cuda.get_device_name(), "rows": rows}
    arguments.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
