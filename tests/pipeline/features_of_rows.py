"""Rows of the table of features whose last tile of rows is shifted inwards, so that it ends with its segment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.pipeline import operators
from tests.pipeline.feature import COPIES, SMS, STORES, Feature
from tests.pipeline.operators import AG_GEMM, GEMM_AR, GEMM_RS, MLP
from tilelink.bench.operators import ag_linear, linear_rs


def inwards() -> Iterator[tuple[str, Feature]]:
    """Parts of 22 or 23 rows in tiles of 16: the second one computes 10 or 9 of them again, and stores the others."""
    shifted = (r"m_new = ", r"\bm = min\(m_new, \d+\)\n", r"store \w+\[m_new - m :\] -> ")
    pins = {"compute": "triton", "tile": "16x16x16/4w2s", "tail": "whole", "protocol": "simple"}
    base = Feature(AG_GEMM, {"K": 72}, pins, scaled={"M": 22, "N": 48}, ranks=(2, 3), steps=shifted)
    scattered = replace(base, operator=GEMM_RS, sizes={"N": 48}, scaled={"M": 23, "K": 32})
    whole = replace(base, operator=GEMM_AR, sizes={"N": 48}, scaled={"M": 23, "K": 32})
    # parts are ragged, and go through descriptors
    steps = (*shifted[:2], r"left = x_full\[m_segment, m : \+16, k : .*\] by descriptor\n", shifted[2])
    yield "behind a gather", replace(base.but({**COPIES, "transfer": "push"}, quick=True), steps=steps)
    yield "behind programs that gather", base.but({**SMS, "transfer": "pull"})
    yield "in chunks", base.but({**COPIES, "transfer": "push", "chunks": "2"})
    yield "loaded by tiles", base.but({"mover": "Fused()", "transfer": "pull", "prefetch": "no"})
    yield "weights as [n, k]", base.but({**COPIES, "transfer": "push"}, operator=ag_linear)
    yield (
        "with others behind the product",
        base.but({**COPIES, "transfer": "push"}, operator=operators.behind_a_matmul, scaled={"M": 22, "N": 132}),
    )
    yield (
        "in halves",
        base.but(
            {**COPIES, "transfer": "push", "tile": "16x32x16/4w2s", "tail": "halves"},
            scaled={"M": 22, "N": 96},
            ranks=(2,),
        ),
    )
    yield "split along k", base.but({**COPIES, "transfer": "push", "tail": "split-k"}, ranks=(2,))
    yield "tall tiles", base.but({**COPIES, "transfer": "push", "tile": "64x32x16/4w2s"}, scaled={"M": 70, "N": 64})
    yield "of parts that are copied", scattered.but({**COPIES, "sum": "kernel"})
    yield "of parts that programs send", scattered.but({**SMS, "sum": "epilogue"})
    yield "of parts that tiles store", scattered.but({**STORES, "sum": "epilogue"}, quick=True)
    yield "of parts in chunks", scattered.but({**COPIES, "sum": "epilogue", "chunks": "2"})
    yield "of parts, weights as [n, k]", scattered.but({**COPIES, "sum": "kernel"}, operator=linear_rs)
    yield "of sums that all have", whole.but({"shots": "2", **COPIES, "sum": "kernel"})
    pins = {"protocol": "simple", "compute": "triton", "tile": "16x16x16/4w2s", "tail": "whole"}
    yield "of an MLP", replace(base, operator=MLP, sizes={"H": 48}, scaled={"M": 22, "F": 64}, pins=pins)


def across_parts() -> Iterator[tuple[str, Feature]]:
    """Tiles of 16 rows of what a launch of its own or the library scatters: parts of 7 rows, of which a tile has two or three."""
    pins = {"compute": "triton", "tile": "16x32x16/4w2s"}
    one_matrix = (r"local y_staged\[\d+, 64\] ", r"store y(\[m_new - m :\])? -> y_staged\[m(_new)? : \+")
    base = Feature(GEMM_RS, {"K": 96, "N": 64}, pins, scaled={"M": 7}, ranks=(2, 3, 4), never=("y_staged.*m_segment",))
    base = replace(base, steps=one_matrix)
    by_packets = r"own = y_staged\[peer \* 7 : \+7, "
    yield "sums in packets", base.but({"algorithm": "ll"}, more=(by_packets,), quick=True)
    yield "sums in packets, all data", base.but({"algorithm": "lamport"}, more=(by_packets,))
    yield (
        "sums by the library",
        base.but({"algorithm": "library"}, more=(r"reduce_scatter\(y_staged\[0 : \+\d+, 0 : \+64\]\)",)),
    )
    yield "weights as [n, k]", base.but({"algorithm": "ll"}, operator=linear_rs)
    yield "shared along k", base.but({"algorithm": "ll", "tail": "split-k"}, sizes={"K": 192, "N": 64})
    mlp = {"out.algorithm": "ll", "x_full.algorithm": "ll", "y.tile": "16x16x16/4w2s"}
    yield "of an MLP", replace(base, operator=MLP, pins=mlp, sizes={"H": 64}, scaled={"M": 7, "F": 32})
