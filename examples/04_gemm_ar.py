"""GEMM + AllReduce: like GEMM + ReduceScatter, but every rank gets the whole sum (one-shot or two-shot: the planner's choice)."""

from __future__ import annotations

import lowering
import tilelink
from tilelink import Shard, Tensor, dims
from tilelink.runtime.run import run_emulated

M, N, K = dims("M N K")


@tilelink.overlap
def gemm_ar(x: Tensor(M, K, placement=Shard(1)), w: Tensor(K, N, placement=Shard(0))):
    y = tilelink.matmul(x, w)
    return tilelink.all_reduce(y)


def main() -> None:
    schedule = gemm_ar.plan(topology="h200-nvswitch", num_ranks=4, M=2048, K=14336, N=4096)
    print(schedule)

    small = gemm_ar.plan(topology="laptop-switch", num_ranks=4, M=132, K=64, N=100)
    result = run_emulated(small, lowering.emit(small))
    print("\n".join(result.lines()))


if __name__ == "__main__":
    main()
