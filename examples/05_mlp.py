"""A whole tensor-parallel MLP in one spec: gather, two matmuls, gate, matmul, scatter."""

from __future__ import annotations

import lowering
import tilelink
from tilelink import Shard, Tensor, dims
from tilelink.runtime.run import run_emulated

M, H, F = dims("M H F")


@tilelink.overlap
def mlp(
    x: Tensor(M, H, placement=Shard(0)),
    w_gate: Tensor(H, F, placement=Shard(1)),
    w_up: Tensor(H, F, placement=Shard(1)),
    w_down: Tensor(F, H, placement=Shard(0)),
):
    x_full = tilelink.all_gather(x, dim=0)
    gate = tilelink.matmul(x_full, w_gate)
    up = tilelink.matmul(x_full, w_up)
    hidden = tilelink.silu(gate) * up
    y = tilelink.matmul(hidden, w_down)
    return tilelink.reduce_scatter(y, dim=0)


def main() -> None:
    schedule = mlp.plan(topology="h200-nvswitch", num_ranks=4, M=8192, H=4096, F=14336)
    print(schedule)

    small = mlp.plan(topology="laptop-switch", num_ranks=4, M=132, H=64, F=96)
    result = run_emulated(small, lowering.emit(small))
    print("\n".join(result.lines()))


if __name__ == "__main__":
    main()
