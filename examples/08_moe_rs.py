"""Experts + ReduceScatter: rows of tokens back from their experts, added up with weights, then over the ranks."""

from __future__ import annotations

import lowering
import tilelink
from tilelink import Shard, Tensor, dims
from tilelink.runtime.run import run_emulated

T, H, F, E, K = dims("T H F E K")


@tilelink.overlap
def moe_rs(
    h: Tensor(T * K, F, placement=Shard(1)),
    ids: Tensor(T, K, dtype="int32"),
    weights: Tensor(T, K, dtype="fp32"),
    w: Tensor(E, F, H, placement=Shard(1)),
):
    routing = tilelink.route(ids, num_experts=E)
    y = tilelink.grouped_matmul(h, w, routing)  # Partial: every rank holds a summand
    return tilelink.reduce_scatter(tilelink.combine(y, routing, weights), dim=0)


def main() -> None:
    schedule = moe_rs.plan(topology="h200-nvswitch", num_ranks=4, T=1024, H=2048, F=1408, E=60, K=4)
    print(schedule)

    small = moe_rs.plan(topology="laptop-switch", num_ranks=4, T=44, H=40, F=36, E=5, K=2)
    result = run_emulated(small, lowering.emit(small), calls=4)
    print("\n".join(result.lines()))


if __name__ == "__main__":
    main()
