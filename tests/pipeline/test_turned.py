"""Tiles of fewer than 64 rows, whose products Hopper's tensor cores compute turned: columns as rows."""

from __future__ import annotations

import pytest

import lowering
import topologies
from tests.pipeline.workloads import load


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
