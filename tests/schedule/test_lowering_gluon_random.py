"""Ping-pong printed from steps: random sizes, tiles and pins give what torch gives."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import topologies
from lowering.steps.planned import lower_planned
from tilelink.bench.operators import declaration
from tilelink.bench.rows import Operator
from tilelink.runtime.run import run_emulated

TILES = ("64x64x16/4w2s2g", "64x128x32/4w3s2g", "128x64x16/4w2s2g", "128x128x32/4w2s2g", "64x32x16/4w2s2g")
KINDS: dict[str, tuple[Operator, str, dict[str, str]]] = {
    "gather": (Operator.AG_GEMM, "out", {"mover": "CopyEngine()", "algorithm": "direct"}),
    "scatter": (Operator.GEMM_RS, "y", {"mover": "Fused()", "transfer": "push", "algorithm": "direct"}),
    "scatter by copies": (Operator.GEMM_RS, "y", {"y_parts.mover": "CopyEngine()", "algorithm": "direct"}),
    "sum in pools": (Operator.GEMM_AR, "y", {"mover": "Fused()", "transfer": "push", "algorithm": "pooled"}),
    "sum in place": (Operator.GEMM_AR, "y", {"mover": "Fused()", "transfer": "push", "algorithm": "in-place"}),
}


@pytest.mark.slow
@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    tile=st.sampled_from(TILES),
    ranks=st.integers(2, 3),
    rows=st.integers(1, 3),
    cols=st.integers(2, 40),
    depth=st.integers(2, 9),
    k_major=st.booleans(),
)
def test_it_gives_what_torch_gives(
    kind: str, tile: str, ranks: int, rows: int, cols: int, depth: int, *, k_major: bool
) -> None:
    """Rows are whole tiles for each rank; columns and steps along k may be cut anywhere that descriptors allow."""
    operator, made, pins = KINDS[kind]
    sizes = {"M": ranks * rows * 128, "N": ranks * 8 * cols, "K": ranks * 8 * depth}
    pins = {f"{made}.tile": tile, f"{made}.compute": "triton", **pins}
    one = declaration(operator, k_major).plan_for(topologies.load("laptop-switch", ranks), sizes, "bf16", pins)
    text = lower_planned(one)
    assert "warp_specialize" in text
    assert run_emulated(one, text, seed=depth).equal
