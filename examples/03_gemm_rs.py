"""GEMM + ReduceScatter: rows of the product leave for their ranks as soon as their tiles are done; each rank adds up its own."""

from __future__ import annotations

import tilelink
from tilelink import Shard, Tensor, dims

M, N, K = dims("M N K")


@tilelink.overlap
def gemm_rs(x: Tensor(M, K, placement=Shard(1)), w: Tensor(K, N, placement=Shard(0))):
    y = tilelink.matmul(x, w)  # Partial: every rank holds a summand
    return tilelink.reduce_scatter(y, dim=0)


def main() -> None:
    schedule = gemm_rs.plan(topology="h200-nvswitch", num_ranks=4, M=8192, K=14336, N=4096)
    print(schedule)


if __name__ == "__main__":
    main()
