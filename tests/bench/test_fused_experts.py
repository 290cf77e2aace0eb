"""The baseline of a fused loop over experts: right under Triton's interpreter, and compiled for Hopper without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel

from tilelink.bench import fused_experts
from tilelink.bench.fused_experts import Tile, tiles_for

_ROOT = Path(__file__).resolve().parents[2]
_SHARED_BYTES = 227 << 10  # that a program of an H100 can have
_TILES = sorted({tile for rows in (1, 50, 500) for tile in tiles_for(rows)}, key=str)


@pytest.mark.slow
def test_it_gives_what_the_definition_gives() -> None:
    """The interpreter has to be chosen before Triton is imported."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(_ROOT)}
    command = [sys.executable, "-m", "tests.bench.interpreted_experts"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=_ROOT, env=environment)
    assert done.stdout.endswith("all\n"), done.stderr


def compiled(kernel: Any, pointers: dict[str, str], constants: dict[str, object], **options: object) -> CompiledKernel:
    """For Hopper. Arguments that are neither pointers nor constants are integers of 32 bits; pointers are aligned."""
    names = kernel.arg_names
    signature = {name: "constexpr" if name in constants else pointers.get(name, "i32") for name in names}
    aligned = {(names.index(name),): [["tt.divisibility", 16]] for name, kind in pointers.items() if kind[0] == "*"}
    source: Any = ASTSource(kernel, signature, constants, aligned)
    found = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert found.metadata.shared <= _SHARED_BYTES
    return found


@pytest.mark.slow
@pytest.mark.parametrize("gated", [False, True], ids=["one weight", "two weights"])
@pytest.mark.parametrize("n", [2048, 704], ids=["whole tiles", "cut tiles"])
@pytest.mark.parametrize("tile", _TILES, ids=str)
def test_its_matmul_compiles(tile: Tile, n: int, gated: bool) -> None:
    cols = tile.cols // 2 if gated else tile.cols
    weight = f"tensordesc<bf16[{tile.depth}, {cols}]>" if tile.described else "*bf16"
    pointers = {"a": "*bf16", "w": weight, "w_up": weight, "out": "*bf16", "weights": "*fp32"}
    pointers |= dict.fromkeys(("order", "table", "number"), "*i32")
    constants: dict[str, object] = {"MOST_TILES": 100, "N": n, "K": 2048, "CHOICES": 4, "GROUP": tile.group}
    constants |= {"ROWS": tile.rows, "COLS": cols, "DEPTH": tile.depth}
    constants |= {"GATED": gated, "WEIGHTED": False, "DESCRIBED": tile.described}
    made = compiled(fused_experts.matmul_kernel, pointers, constants, num_warps=tile.warps, num_stages=tile.stages)
    assert ("wgmma" in made.asm["ptx"]) == (tile.rows >= 64)
    assert "cp.async.cg" in made.asm["ptx"]  # rows are gathered beside the matmul


@pytest.mark.slow
@pytest.mark.parametrize("slots", [16, 128])
def test_its_index_and_its_sum_compile(slots: int) -> None:
    words = dict.fromkeys(("ids", "counts", "order", "table", "number"), "*i32")
    cut: dict[str, object] = {"EXPERTS": slots - 3, "SLOTS": slots, "CHUNK": 16384 // slots, "CHUNKS": 4}
    counted = {name: words[name] for name in ("ids", "counts")}
    compiled(fused_experts.count_kernel, counted, cut, num_warps=8)
    for parts in (1, 128):
        placed = cut | {"PARTS": parts, "PARTS_SLOTS": parts, "TABLE": 128}
        compiled(fused_experts.place_kernel, words, placed, num_warps=8)
    tokens = {"rows": "*bf16", "ids": "*i32", "weights": "*fp32", "out": "*bf16"}
    summed: dict[str, object] = {"EXPERTS": slots - 3, "CHOICES": 8, "N": 2048, "COLS": 1024}
    compiled(fused_experts.sum_kernel, tokens, summed, num_warps=4)
