"""AllGather + experts: tokens of all ranks, each times the matrices of its experts, which are cut along their width."""

from __future__ import annotations

import lowering
import tilelink
from tilelink import Shard, Tensor, dims
from tilelink.runtime.run import run_emulated

T, H, F, E, K = dims("T H F E K")  # tokens of all ranks, hidden, width, experts, experts of a token


@tilelink.overlap
def ag_moe(
    x: Tensor(T, H, placement=Shard(0)), ids: Tensor(T, K, dtype="int32"), w: Tensor(E, H, F, placement=Shard(2))
):
    routing = tilelink.route(ids, num_experts=E)
    return tilelink.grouped_matmul(
        tilelink.all_gather(x, dim=0), w, routing
    )  # row t * K + j: token t at its j-th expert


def main() -> None:
    schedule = ag_moe.plan(topology="h200-nvswitch", num_ranks=4, T=1024, H=2048, F=1408, E=60, K=4)
    print(schedule)

    small = ag_moe.plan(topology="laptop-switch", num_ranks=4, T=44, H=40, F=36, E=5, K=2)
    result = run_emulated(small, lowering.emit(small), calls=4)
    print("\n".join(result.lines()))


if __name__ == "__main__":
    main()
