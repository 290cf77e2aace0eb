"""A layer of experts, some on each rank: tokens go to the ranks of their experts, through these, and back."""

from __future__ import annotations

import lowering
import tilelink
from tilelink import Shard, Tensor, dims
from tilelink.runtime.run import run_emulated

T, H, F, E, K = dims("T H F E K")


@tilelink.overlap
def ep_layer(
    x: Tensor(T, H, placement=Shard(0)),
    ids: Tensor(T, K, dtype="int32", placement=Shard(0)),
    weights: Tensor(T, K, dtype="fp32", placement=Shard(0)),
    gate: Tensor(E, H, F, placement=Shard(0)),
    up: Tensor(E, H, F, placement=Shard(0)),
    down: Tensor(E, F, H, placement=Shard(0)),
):
    routing = tilelink.route(ids, num_experts=E)
    rows = tilelink.dispatch(x, routing)  # tokens to the ranks of their experts
    h = tilelink.silu(tilelink.grouped_matmul(rows, gate, routing)) * tilelink.grouped_matmul(rows, up, routing)
    y = tilelink.grouped_matmul(h, down, routing)
    return tilelink.combine(y, routing, weights)  # back, and the weighted sum over a token's experts


def main() -> None:
    schedule = ep_layer.plan(topology="h200-nvswitch", num_ranks=4, T=512, H=2048, F=768, E=128, K=8)
    print(schedule)

    small = ep_layer.plan(topology="laptop-switch", num_ranks=4, T=44, H=40, F=36, E=8, K=2)
    result = run_emulated(small, lowering.emit(small), calls=4)
    print("\n".join(result.lines()))


if __name__ == "__main__":
    main()
