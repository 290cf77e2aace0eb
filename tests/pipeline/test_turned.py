"""Tiles of fewer than 64 rows, whose products Hopper's tensor cores compute turned: columns as rows."""

from __future__ import annotations

import re

import pytest

import lowering
import topologies
from tests.pipeline.workloads import load
from tilelink.runtime.run import run_emulated

TURNED = {
    "in one piece": ("02_ag_gemm.py:ag_gemm", {"M": 32, "K": 64, "N": 256}, {"algorithm": "ll"}),
    "part by part, prefetching": ("02_ag_gemm.py:ag_gemm", {"M": 64, "K": 64, "N": 256}, {"mover": "CopyEngine()"}),
    "before words": ("03_gemm_rs.py:gemm_rs", {"M": 32, "K": 128, "N": 128}, {"algorithm": "ll-tiles"}),
    "ragged": ("04_gemm_ar.py:gemm_ar", {"M": 20, "K": 72, "N": 100}, {"algorithm": "ll-tiles"}),
    "two in one loop": ("05_mlp.py:mlp", {"M": 32, "H": 64, "F": 128}, {"algorithm": "ll", "up.loop": "shared"}),
}


@pytest.mark.parametrize("name", TURNED)
@pytest.mark.quick(2)
def test_the_product_is_the_same(name: str) -> None:
    example, sizes, pins = TURNED[name]
    pins = {**pins, "compute": "triton", "tile": "16x64x32/4w2s"}
    schedule = load(example).plan_for(topologies.load("h200-nvswitch", 2), sizes, "bf16", pins)
    source = lowering.emit(schedule)
    assert re.search(r"= tl\.trans\(left\w*\)\n", source) and re.search(r"tl\.dot\(right\w*, left", source)
    assert run_emulated(schedule, source, calls=2).equal


@pytest.mark.parametrize(
    ("tile", "topology", "dtype", "turned"),
    [
        ("16x64x32/4w2s", "h200-nvswitch", "bf16", True),
        ("64x64x32/4w2s", "h200-nvswitch", "bf16", False),
        ("16x32x32/4w2s", "h200-nvswitch", "bf16", False),
        ("16x64x32/4w2s", "mi300x-full-mesh", "bf16", False),
        ("16x64x32/4w2s", "h200-nvswitch", "fp32", False),
    ],
)
def test_where_it_is_worth_it(tile: str, topology: str, dtype: str, turned: bool) -> None:
    pins = {"algorithm": "ll", "compute": "triton", "tile": tile}
    operator = load("02_ag_gemm.py:ag_gemm")
    machine = topologies.load(topology, 2)
    source = lowering.emit(operator.plan_for(machine, {"M": 64, "K": 64, "N": 128}, dtype, pins))
    assert ("= tl.trans(left)\n" in source) is turned
