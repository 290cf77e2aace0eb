"""GEMM + ReduceScatter: rows of the product leave for their ranks as soon as their tiles are done; each rank adds up its own."""

from __future__ import annotations

import lowering
import tilelink
from tilelink import Shard, Tensor, dims
from tilelink.runtime.run import run_emulated

M, N, K = dims("M N K")


@tilelink.overlap
def gemm_rs(x: Tensor(M, K, placement=Shard(1)), w: Tensor(K, N, placement=Shard(0))):
    y = tilelink.matmul(x, w)  # Partial: every rank holds a summand
    return tilelink.reduce_scatter(y, dim=0)


def main() -> None:
    schedule = gemm_rs.plan(topology="h200-nvswitch", num_ranks=4, M=8192, K=14336, N=4096)
    print(schedule)

    small = gemm_rs.plan(topology="laptop-switch", num_ranks=4, M=260, K=72, N=100)
    result = run_emulated(small, lowering.emit(small))
    print("\n".join(result.lines()))


if __name__ == "__main__":
    main()
